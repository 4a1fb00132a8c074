"""All colours of pictures and pages, each with its value on a light and on a dark page.

A meaning has one colour in all pictures. Marks have a contrast of 3:1 or more to the paper, texts one of 4.5:1 (WCAG
2.1, 1.4.11 and 1.4.3). `python -m benchmarks.pages --contrast` prints the table.
"""

from __future__ import annotations

from collections.abc import Mapping

Pair = tuple[str, str]  # on a light page, on a dark one

PAPER: Pair = ("#fcfcfb", "#191918")

# Rules and grounds: they lie behind marks, and are none.
GROUND = {"grid": ("#ecebe6", "#2a2a28"), "line": ("#dddcd7", "#3b3a37")}

TEXTS = {"ink": ("#1d1d1b", "#f1f0ec"), "soft": ("#63625e", "#a8a7a1")}

# bytes over time, kinds of bars, stalls, and refusals
TIME = {
    "area": ("#3077d0", "#4c9deb"),  # bytes that are live
    "bad": ("#d4212d", "#f75c5e"),  # a budget, and refused bytes
    "stall": ("#22221f", "#eae8e0"),  # compute waits
    "convolution": ("#304ccc", "#4377f0"),
    "inner": ("#9163d5", "#b086eb"),
    "other": ("#7089a4", "#6a839d"),
    "update": ("#a77600", "#e0af3b"),
    "again": ("#d0268c", "#f164af"),
    "out": ("#dd6301", "#f99549"),
    "in": ("#069253", "#37c080"),
    "store": ("#75725e", "#8a8865"),
    "net": ("#9c14c8", "#c85cf0"),  # between ranks
    "host": ("#7d6a1f", "#b8a04c"),  # updates by the host
}

# what bytes are for
ROLES = {
    "weights": ("#4b2a9a", "#795fe2"),
    "weight_gradients": ("#af70bd", "#d9a0e1"),
    "optimizer_state": ("#6f530a", "#a88c48"),
    "feature_maps": ("#1195b4", "#4dc3dd"),
    "gradients": ("#a24102", "#cd632d"),
    "extra": ("#007272", "#1d9999"),
    "workspace": ("#5f9205", "#9ed24d"),
    "labels": ("#8e8c85", "#c4c2ba"),
}

# policies, as lines and points; the suffix of the algorithms changes nothing
POLICIES = {
    "best": ("#245fd4", "#6298fe"),
    "baseline": ("#65635d", "#97958f"),
    "liveness": ("#0a8282", "#5db5b5"),
    "vdnn_all": ("#ca5b04", "#fe955c"),
    "vdnn_conv": ("#a77f19", "#d9b66b"),
    "vdnn_dyn": ("#a63c0c", "#d67856"),
    "vdnn_pp": ("#d04a69", "#fe8da0"),
    "superneurons": ("#1b9247", "#6ec482"),
    "layrub": ("#9065d0", "#c29ffe"),
    "accudnn": ("#c11a8e", "#f36dbf"),
    "flashneuron": ("#697900", "#c3d145"),
    "poet": ("#7d4a1f", "#c99a6b"),
    "sqrt_n": ("#1f93b8", "#74c8e8"),
    "recompute_cheap": ("#504994", "#807dc1"),
}

# the frame of a page: its ground, the cards on it, texts and rules
PAGE = {
    "bg": ("#f4f3ef", "#111110"),
    "card": PAPER,
    "rule": ("#e2e1dc", "#302f2c"),
    "text": TEXTS["ink"],
    "dim": ("#63625e", "#a8a7a1"),
    "warn": ("#b42f2f", "#ef6a6a"),
    "good": ("#157a54", "#35bd8b"),
    "mark": ("#245fd4", "#6298fe"),
}

MARKS = {**TIME, **ROLES}


def policy(name: str) -> str | None:
    """The name of a policy's colour; None if it has none of its own."""
    base = name.split(":")[0]
    return base if base in POLICIES else None


def variables(selector: str, *colours: Mapping[str, Pair]) -> str:
    """CSS that gives `selector` these colours as variables, on a light and on a dark page."""
    every = {name: pair for table in colours for name, pair in table.items()}
    light, dark = (" ".join(f"--{name}:{pair[i]};" for name, pair in every.items()) for i in (0, 1))
    return f"{selector} {{ {light} }}\n@media (prefers-color-scheme: dark) {{ {selector} {{ {dark} }} }}\n"


def of_pictures() -> str:
    """The CSS of our pictures' colours: variables, and for each mark a class that fills with it."""
    fills = "".join(f".mini .{name} {{ fill: var(--{name}); }}\n" for name in MARKS if name != "area")
    policies = {f"p-{name}": pair for name, pair in POLICIES.items()}
    return variables(".mini", {"paper": PAPER}, GROUND, TEXTS, MARKS, policies) + fills


def of_pages() -> str:
    """The CSS of our pages' colours."""
    return variables(":root", PAGE)


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, from 1 to 21 (WCAG 2.1: relative luminance)."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
