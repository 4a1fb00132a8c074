"""Links between ranks as a user names them: a known one (costs/links/*.yaml), numbers, a file, or nodes of several.

nvlink4                 a known link, between each rank and all others
10GB,20us               bytes per second in each direction, and seconds of each message
link.yaml               a file of your own, as `minidnn devices --link` writes it (measuring/ranks.py)
8xnvlink4+ib100         nodes of eight ranks, of which each has one link to the others
8xnvlink4+8xib400       the same with eight, which the ranks of a node share
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from minidnn import sizes
from minidnn.costs.costs import MOST_DRAG
from minidnn.costs.net import LINK, Link, Network, Nodes
from minidnn.costs.profiles import SUFFIXES, ProfileError, content
from minidnn.costs.roofline import Number
from minidnn.errors import near

LINKS = Path(__file__).with_name("links")
FASTEST, SLOWEST = 1e15, 1e3  # bytes per second
LONGEST = 10.0  # seconds of a message
_MANY = re.compile(r"(\d+)x(?=[^\d\s])")
_NUMBERS = re.compile(r"([^,]+),\s*([\d.eE+-]+)\s*(s|ms|us|µs|ns)\s*")
_UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "µs": 1e6, "ns": 1e9}  # of them in a second
HOW = "a name, bytes per second and latency (10GB,20us), a FILE.yaml, or nodes (8xnvlink4+ib100)"


@dataclass(frozen=True)
class LinkFile:
    """The file of a link."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  (read by pydantic, not a field)

    title: str
    bandwidth: Number  # bytes per second of a rank, in each direction
    latency: Number  # seconds of a message without bytes
    gap: Number | None = None  # seconds between two messages that a rank sends in a row; left out: the latency
    drag: Number | None = None  # seconds of an op's work that a second of a communication takes away
    own: Number | None = None  # bytes per second at which a rank copies its own part; left out: that takes no time

    def link(self) -> Link:
        gap = None if self.gap is None else self.gap.value
        drag = 0.0 if self.drag is None else self.drag.value
        own = None if self.own is None else self.own.value
        return _checked(Link(self.bandwidth.value, self.latency.value, gap, drag, self.title, own))


def links() -> list[str]:
    """Names of the links that come with the package, eth10 before eth100."""
    return sorted((path.stem for path in LINKS.glob("*.yaml")), key=_number)


def _number(name: str) -> tuple[str, int, str]:
    return name.rstrip("0123456789"), len(name), name


def network(text: str) -> Network:
    """The link, or the nodes, that the text names. Raises ProfileError."""
    inside, plus, outside = text.strip().partition("+")
    each, within = _many(inside)
    if not plus:
        if each > 1:
            raise ProfileError(f"link {text}: nodes need a link between them, such as {inside}+ib100")
        return _one(inside)
    rails, between = _many(outside)
    if each < 2 or rails < 1:
        raise ProfileError(f"link {text}: nodes are written as 8xnvlink4+ib100, with two ranks or more each")
    return Nodes(_one(within), _one(between), each, rails)


def text(link: Link, source: str) -> str:
    """The text of a link's file. source: where all its numbers come from"""
    gap = link.latency if link.gap is None else link.gap
    numbers = {"bandwidth": link.bandwidth, "latency": link.latency, "gap": gap, "drag": link.drag}
    numbers |= {} if link.own is None else {"own": link.own}
    lines = [f'{name}: {{value: {value:.4e}, source: "{source}"}}' for name, value in numbers.items()]
    return "\n".join([f"title: {link.title}", *lines, ""])


def _many(text: str) -> tuple[int, str]:
    """(8, "nvlink4") of "8xnvlink4"; (1, the text) of any other text."""
    result = _MANY.match(text)
    return (int(result[1]), text[result.end() :]) if result else (1, text)


def named(name: str) -> Link:
    """A link that comes with the package, or that of a FILE.yaml. Raises ProfileError."""
    from pydantic import TypeAdapter, ValidationError

    path = Path(name) if name.endswith(SUFFIXES) else LINKS / f"{name}.yaml"
    if not name.endswith(SUFFIXES) and name not in links():
        there = ", ".join(links())
        raise ProfileError(f"no link is called {name!r}{near(name, links(), 0.5)}; give {HOW}; names are {there}")
    try:
        return TypeAdapter(LinkFile).validate_python(content(path)).link()
    except ValidationError as error:
        wrong = "; ".join(".".join(map(str, e["loc"])) + ": " + e["msg"] for e in error.errors())
        raise ProfileError(f"{path}: {wrong}") from None
    except ValueError as error:
        raise ProfileError(f"{path}: {error}") from None


def _one(text: str) -> Link:
    """A link by its name, its file, or its numbers."""
    text = text.strip()
    if text in links() or text.endswith(SUFFIXES):
        return named(text)
    result = _NUMBERS.fullmatch(text)
    try:
        rate = sizes.parse(result[1] if result else text)
    except ValueError:
        return named(text)  # which says what there is
    try:
        latency = float(result[2]) / _UNITS[result[3]] if result else LINK.latency
        title = f"{rate / 1e9:g} GB/s and {latency * 1e6:g} µs"
        return _checked(Link(float(rate), latency, title=title))
    except ValueError as error:
        raise ProfileError(f"link {text}: {error}") from None


def _checked(link: Link) -> Link:
    """Raises ValueError for numbers that no link has."""
    for name, rate in (("bandwidth", link.bandwidth), ("rate of its own part", link.own)):
        if rate is not None and not SLOWEST <= rate <= FASTEST:
            raise ValueError(f"a {name} of {rate:g} bytes per second; expected {SLOWEST:g} to {FASTEST:g}")
    for name, seconds in (("latency", link.latency), ("gap", link.gap or 0.0)):
        if not 0 <= seconds <= LONGEST:
            raise ValueError(f"a {name} of {seconds:g} s; expected 0 to {LONGEST:g}")
    if not 0 <= link.drag <= MOST_DRAG:
        raise ValueError(f"a drag of {link.drag:g}; expected 0 to {MOST_DRAG}")
    return link
