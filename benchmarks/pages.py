"""Our pages in a headless Chromium, each at three widths, light and dark (extra `browser`, and the system's Chromium).

    python -m benchmarks.pages                     every page: a line each; ends with 1 if one fails
    python -m benchmarks.pages --site out/site     the pages and the pictures of the site that `make docs` built
    python -m benchmarks.pages --only policies,why those whose names contain one of these
    python -m benchmarks.pages --contrast          the contrast of all colours, which takes no browser
    python -m benchmarks.pages --shots FOLDER      screenshots, too

A page passes if its console stays empty, if it loads nothing, and if layout.js finds nothing cut, out of the window or
on something else. On a page of a report the pointer, the keyboard and the search must each name a bar.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import minidnn
from minidnn.report import palette
from minidnn.report.table import plain
from minidnn.visible import say

WIDTHS, SCHEMES = (390, 1280, 1920), ("light", "dark")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
PHONE, WIDE = 600, 1280  # pixels: windows up to here are phones'; from here on no column is cut
LAYOUT = Path(__file__).with_name("layout.js").read_text(encoding="utf-8")
PATIENCE = 5_000  # milliseconds that a page has to answer
MARK, TEXT = 3.0, 4.5  # the least contrasts (WCAG 2.1, level AA)
LENET, SMALL = "digits_lenet", {"gpu": "titan_x", "budget": "2.5MiB"}
Save = Callable[[Path], object]


def chromium() -> str | None:
    """The path of the system's Chromium; None if there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def pages() -> dict[str, Save]:
    """{name: what writes the page}"""
    policies = ["baseline:m", "liveness:m", "vdnn_all:m", "best"]
    return {
        "compare": lambda file: minidnn.compare(LENET, policies, **SMALL).save(file),  # type: ignore[arg-type]
        "compare, run": lambda file: minidnn.compare("digits_solver", policies, budget="2.5MiB", steps=8).save(file),
        "plan": lambda file: minidnn.plan(LENET, ["vdnn_all:m"], **SMALL).save(file),  # type: ignore[arg-type]
        "board": lambda file: minidnn.board(f"{LENET}:64", policies, gpus="titan_x,h100", budgets="90%,70%").save(file),
        "tune": lambda file: minidnn.tune(LENET, **SMALL).save(file),  # type: ignore[arg-type]
        "arena": lambda file: minidnn.plan(LENET, ["vdnn_all:m"], **SMALL).steps().save(file),  # type: ignore[arg-type]
    }


# ---- one page in one window


class Window:
    """A page in a window, and its faults in words. It may load files below `home`, and nothing else."""

    def __init__(self, browser: Any, file: Path, width: int, scheme: str, home: Path | None = None) -> None:
        self.wrong: list[str] = []
        self.home = None if home is None else home.resolve().as_uri()
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page.set_default_timeout(PATIENCE)
        self.page.on("console", lambda message: self.wrong.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("request", self._asked)
        self.file = file.resolve().as_uri()
        self.page.goto(self.file)

    def _asked(self, request: Any) -> None:
        if request.url != self.file and not (self.home and request.url.startswith(self.home)):
            self.wrong.append(f"loads {request.url}")

    def run(self) -> list[str]:
        """Make all checks; returns the faults."""
        self.wrong += self.page.evaluate(LAYOUT, {"narrow": PHONE, "wide": WIDE})
        return self.wrong


class Report(Window):
    """A page of a report, which also answers the pointer and the keyboard."""

    def run(self) -> list[str]:
        super().run()
        if self.page.locator("svg.step, svg.arena").count():
            self._hover()
            self._keyboard()
            self._search()
        elif self.page.locator(".picks button").count():
            self._pick()
        elif not self.page.locator("svg title").count():
            self.wrong.append("nothing has a name under the pointer")
        return self.wrong

    def _told(self) -> str:
        return str(self.page.locator("output").first.text_content())

    def _expect(self, what: str, name: str) -> None:
        """The page tells of `name`, or will in a moment."""
        from playwright.sync_api import TimeoutError as Late

        try:
            self.page.wait_for_function("name => document.querySelector('output').textContent.includes(name)", arg=name)
        except Late:
            self.wrong.append(f"{what} says {self._told()!r}, not {name!r}")

    def _hover(self) -> None:
        """The largest bar, by the pointer: it scrolls into view first."""
        bars = self.page.locator("svg.step .moving rect:has(title):not(.stall), svg.arena .lives rect")
        largest = bars.evaluate_all(
            "all => all.map((e, i) => [e.getBoundingClientRect(), i])"
            ".sort(([a], [b]) => b.width * b.height - a.width * a.height)[0][1]"
        )
        bar = bars.nth(largest)
        name = str(bar.locator("title").text_content()).split(":")[0].split(" … ")[0]
        bar.hover(force=True)
        self._expect("the pointer", name)

    def _keyboard(self) -> None:
        picture = self.page.locator("svg.step, svg.arena").first
        picture.focus()
        self.page.keyboard.press("ArrowRight")
        self.page.keyboard.press("ArrowRight")
        before = self._told()
        self.page.keyboard.press("ArrowRight")
        if self._told() == before or ":" not in before:
            self.wrong.append(f"the keyboard walks nowhere: {before!r}")
        style = picture.evaluate("e => getComputedStyle(e).outlineStyle")
        if style == "none":
            self.wrong.append("the focus is not seen")
        if self.page.locator("svg.step").count():
            bars = self.page.locator("svg.step").first.locator(".moving rect")
            for key in ("+", "+", "-", "0", "ArrowDown"):
                self.page.keyboard.press(key)
            self.page.wait_for_function("document.querySelectorAll('svg.step .moving rect.chosen').length == 1")
            if not bars.count():
                self.wrong.append("no bars after zooming")

    def _pick(self) -> None:
        """A policy, by the keyboard: its line stands out, and Escape ends that."""
        drawn = "document.querySelectorAll('g.line').length && document.querySelector('g.line').dataset.policy"
        button = self.page.locator(f".picks button[data-policy='{self.page.evaluate(drawn)}']")  # others may have none
        name = str(button.get_attribute("data-policy"))
        button.focus()
        self.page.keyboard.press("Enter")
        self._expect("the keyboard", name)
        if not self.page.locator(f"main.chosen g.line.on[data-policy='{name}']").count():
            self.wrong.append(f"no line of {name} stands out")
        self.page.keyboard.press("Escape")
        if self.page.locator("main.chosen, .on").count():
            self.wrong.append("Escape ends nothing")

    def _search(self) -> None:
        find = self.page.locator("input[type=search]").first
        find.fill("conv2_1")
        find.press("Enter")
        self._expect("the search", "conv2_1")


Open = Callable[[Any, int, str], Window]  # (browser, width, scheme)


def reports(folder: Path, only: Callable[[str], bool]) -> Iterator[tuple[str, Open]]:
    """Each page of a report, written to `folder`, and what opens it."""
    for name, save in pages().items():
        if only(name):
            file = folder / f"{name.replace(', ', '_')}.html"
            save(file)
            yield name, lambda browser, width, scheme, file=file: Report(browser, file, width, scheme)  # type: ignore[misc]


def of_site(site: Path, only: Callable[[str], bool]) -> Iterator[tuple[str, Open]]:
    """Each page of the site, and what opens it."""
    for file in sorted(site.rglob("*.html")):
        name = file.relative_to(site).with_suffix("").as_posix()
        if name not in GENERATED and only(name):
            yield name, lambda browser, width, scheme, file=file: Window(browser, file, width, scheme, site)  # type: ignore[misc]


GENERATED = ("genindex", "py-modindex", "search")  # pages of Sphinx's own


def checked(windows: Iterable[tuple[str, Open]], shots: Path | None) -> Iterator[tuple[str, int, str, list[str]]]:
    """(page, width, scheme, what is wrong) of every page in every window. Raises RuntimeError without a browser."""
    from playwright.sync_api import sync_playwright

    path = chromium()
    if path is None:
        raise RuntimeError("there is no Chromium (on Debian: apt install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        for name, open_ in windows:
            for width in WIDTHS:
                for scheme in SCHEMES:
                    one = open_(browser, width, scheme)
                    yield name, width, scheme, one.run()
                    if shots is not None:
                        file = f"{re.sub('[^a-z0-9]+', '_', name)}_{width}_{scheme}.png"
                        one.page.screenshot(path=shots / file, full_page=True, timeout=12 * PATIENCE)
                    one.page.close()
        browser.close()


# ---- colours


def contrasts() -> Iterator[tuple[str, str, float, float, float]]:
    """(what, its name, contrast on light paper, on dark, the least allowed) of each colour that says something."""
    kinds = {
        "over time": (palette.TIME, palette.PAPER, MARK), "bytes": (palette.ROLES, palette.PAPER, MARK),
        "policy": (palette.POLICIES, palette.PAPER, MARK), "text": (palette.TEXTS, palette.PAPER, TEXT),
        "text on a page": (
            {name: palette.PAGE[name] for name in ("text", "dim", "warn", "good")}, palette.PAGE["bg"], TEXT,
        ),
        "focus": ({"mark": palette.PAGE["mark"]}, palette.PAGE["bg"], MARK),
    }  # fmt: skip
    for what, (colours, paper, least) in kinds.items():
        for name, (light, dark) in colours.items():
            yield what, name, palette.contrast(light, paper[0]), palette.contrast(dark, paper[1]), least
    lane = palette.GROUND["grid"]
    for name, (light, dark) in palette.TIME.items():
        if name == "stall":
            yield "on a lane", name, palette.contrast(light, lane[0]), palette.contrast(dark, lane[1]), MARK


def show_contrasts() -> int:
    """Print the table; 1 if a contrast is too low."""
    rows = list(contrasts())
    lines = [
        [what, name, f"{light:.2f}", f"{dark:.2f}", f"{least:g}", "yes" if min(light, dark) >= least else "NO"]
        for what, name, light, dark, least in rows
    ]
    plain(["colour", "name", "light", "dark", "least", "enough"], lines, "Contrast to what lies behind (WCAG 2.1)")
    return int(any(min(light, dark) < least for _, _, light, dark, least in rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--contrast", action="store_true", help="the contrast of all colours; no browser is needed")
    parser.add_argument("--shots", metavar="FOLDER", type=Path, help="write a screenshot of each page there")
    parser.add_argument("--site", metavar="FOLDER", type=Path, help="the site's pages, instead of the reports'")
    parser.add_argument("--only", metavar="NAMES", default="", help="pages whose names contain one of these")
    args = parser.parse_args()
    if args.contrast:
        return show_contrasts()
    if args.shots is not None:
        args.shots.mkdir(parents=True, exist_ok=True)

    def only(name: str) -> bool:
        return any(part in name for part in args.only.split(","))

    with tempfile.TemporaryDirectory() as folder:
        windows = of_site(args.site, only) if args.site else reports(Path(folder), only)
        found = list(checked(windows, args.shots))
    lines = [[name, str(width), scheme, "; ".join(wrong) or "ok"] for name, width, scheme, wrong in found]
    plain(["page", "width", "scheme", "what"], lines, "Pages in Chromium")
    bad = sum(bool(wrong) for *_, wrong in found)
    say(f"{len(found)} windows, {bad} with a fault.")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
