"""A picture of a run's losses, from the lines that `minidnn train` prints: training's mean since the last line, and the
first test net's first output.

    python -m benchmarks.loss_curve out/text/half.log docs/journeys/text.svg
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it can also be run as a file

from minidnn.report.draw import axis, ticks
from minidnn.report.plot import Plot, Point

STEP = re.compile(r"Iteration (\d+) \(.*\), loss = (\S+)")
TEST = re.compile(r"Iteration (\d+), Testing net \(#0\)\n.*Test net output #0: \w+ = (\S+)")


class Losses(Plot):
    caption = "iterations"

    def reads(self, value: float) -> str:
        return f"{value:g}"

    def marks(self) -> list[str]:
        return axis({at: f"{at:g}" for at in ticks(self.across[1], 8)}, self.x, self.bottom)

    def line(self, points: Sequence[Point], colour: str) -> None:
        places = [f"{self.x(a):.1f} {self.y(b):.1f}" for a, b in points]
        self.elements.append(f'<path d="M{"L".join(places)}" fill="none" stroke="var(--{colour})" stroke-width="1.8"/>')


def drawn(text: str) -> str:
    """The SVG of a run's lines. Raises SystemExit if they have no two losses."""
    trained, tested = ([(float(a), float(b)) for a, b in form.findall(text)] for form in (STEP, TEST))
    if len(trained) < 2:
        raise SystemExit("expected the lines of `minidnn train`, with two losses or more: see the solver's display")
    every = [*trained, *tested]
    last = max(a for a, _ in every)
    end = f", the last test {tested[-1][1]:.2f}" if tested else ""
    title = f"Loss of a byte: {trained[-1][1]:.2f} in training after {last:.0f} iterations{end}"
    names = {"training": "p-best", "test": "p-baseline"} if tested else {"training": "p-best"}
    plot = Losses(title, "e to the loss is the perplexity", (0, last), (0, max(b for _, b in every)), names)
    plot.line(trained, "p-best")
    for after in tested:
        plot.point(after, "p-baseline", f"iteration {after[0]:.0f}: test {after[1]:.4g}")
    return plot.svg(title)


if __name__ == "__main__":
    given, to = sys.argv[1:]
    Path(to).write_text(drawn(Path(given).read_text()))
