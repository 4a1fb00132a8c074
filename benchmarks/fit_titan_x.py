"""The profile titan_x compared with the published figures that it was fitted to, and a new fit to them.

    python benchmarks/fit_titan_x.py [--json]

Four numbers of the profile are free. The bars are published figures: seconds of a training step from public benchmarks
(benchmarks/titan_x.yaml), and the vDNN paper's Figures 4 and 14 (minidnn_papers/numbers/vdnn.py). docs/costs.md
explains the model. There are two fits:

  workspace_maps, workspace_filters   the least sum of squared MiB over the bars of Figure 4
  implicit_gemm, fast                 the least sum of squared errors over all seconds and the bars of Figure 14, with
                                      the workspaces of the first fit

Each fit searches a coarse grid, then a fine one around its best point. The second fit minimizes relative errors. On the
coarse grid it is also done with the logarithm of the model's figure over the bar. The script never writes the profile.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it can also be run as a file

from ruamel.yaml import YAML

from minidnn import L, Net, zoo
from minidnn.costs import GPU, Costs, gpu
from minidnn.costs.roofline import Number
from minidnn.layers import FACTS
from minidnn.memory.policies.papers.vdnn import feature_extraction
from minidnn.program import Algorithm, Op
from minidnn.programs.build import programs
from minidnn.report import table
from minidnn.zoo.pieces import full, imagenet, scored
from minidnn.zoo.vgg import VGG
from minidnn_papers.numbers.vdnn import NETS, PARTS

PROFILE = "titan_x"
PUBLIC = Path(__file__).with_name("titan_x.yaml")
MIB = 2**20

Numbers = Mapping[str, float]  # name -> a number of the profile
Grid = Mapping[str, Sequence[float]]


# ---- nets of the public benchmarks that are not in the zoo


class OverFeatFast(Net):
    """OverFeat, the fast model (Sermanet 2013), with a shorter classifier: only the layers before it count here."""

    def define(self, batch: int = 128) -> None:
        x, label = imagenet(batch, 231)
        for maps, kernel, stride, pad, halved in (
            (96, 11, 4, 0, True), (256, 5, 1, 0, True), (512, 3, 1, 1, False), (1024, 3, 1, 1, False),
            (1024, 3, 1, 1, True),
        ):  # fmt: skip
            x = L.ReLU(L.Convolution(x, num_output=maps, kernel_size=kernel, stride=stride, pad=pad), in_place=True)
            if halved:
                x = L.Pooling(x, pool="MAX", kernel_size=2, stride=2)
        scored(full(x, "fc", 1000), label)


class VGGA(VGG):
    """VGG, configuration A: 8 convolutions."""

    name = "vgg_a"
    convs = (1, 1, 2, 2, 2)


OWN: dict[str, type[Net]] = {"overfeat_fast": OverFeatFast, "vgg_a": VGGA}


def timed(net: str, batch: int) -> tuple[Op, ...]:
    """The ops of one training step before the classifier, under the paper's memory facts."""
    made = OWN[net](batch=batch) if net in OWN else zoo.load(net, batch)
    program = programs(made, None, ("TRAIN",), facts=FACTS["vdnn2016"])["TRAIN"]
    layers = {layer.name for layer in feature_extraction(program)}
    return tuple(op for op in program.ops if op.layer in layers)


# ---- bars, and the model's figure for each


@dataclass(frozen=True, eq=False)
class Bar:
    """One published figure. `kind`: "seconds", "speed" ((m) over (p)) or "workspace" (MiB, the largest)."""

    kind: str
    net: str
    batch: int
    algorithms: str  # "m" or "p"
    published: float
    source: str
    ops: tuple[Op, ...]

    def predicted(self, costs: Costs) -> float:
        if self.kind == "workspace":
            return max(costs.fastest(op).workspace for op in self.ops) / MIB
        if self.kind == "speed":
            return self._seconds(costs, costs.fastest) / self._seconds(costs, costs.least_memory)
        return self._seconds(costs, costs.least_memory if self.algorithms == "m" else costs.fastest)

    def _seconds(self, costs: Costs, choose: Callable[[Op], Algorithm]) -> float:
        return sum(costs.seconds(op, choose(op)) for op in self.ops)


def bars() -> list[Bar]:
    """All bars: public seconds, then the paper's Figure 14, then its Figure 4."""
    public = YAML(typ="safe").load(PUBLIC.read_text())
    wanted = {(b["net"], b["batch"]) for b in public} | set(NETS)
    ops = {case: timed(*case) for case in wanted}
    found = [
        Bar("seconds", b["net"], b["batch"], b["algorithms"], b["seconds"], b["source"], ops[b["net"], b["batch"]])
        for b in public
    ]
    for case, policies in NETS.items():
        speed = policies["baseline:m"][2]
        found.append(Bar("speed", *case, "m", speed, "vDNN, MICRO 2016, Figure 14: baseline", ops[case]))
    for case, parts in PARTS.items():
        found.append(Bar("workspace", *case, "p", parts[3], "vDNN, MICRO 2016, Figure 4: WS", ops[case]))
    return found


# ---- the fit


def steps(first: float, last: float, step: float) -> list[float]:
    return [round(first + i * step, 6) for i in range(round((last - first) / step) + 1)]


WORKSPACES = {"workspace_maps": steps(0.3, 1.2, 0.05), "workspace_filters": steps(0.2, 3.0, 0.2)}
EFFICIENCIES = {"implicit_gemm": steps(0.30, 0.50, 0.02), "fast": steps(0.70, 1.30, 0.05)}
FINER = 5  # how many fine steps make a coarse one


def relative(ours: float, published: float) -> float:
    return ours / published - 1


def logarithm(ours: float, published: float) -> float:
    return math.log(ours / published)


def difference(ours: float, published: float) -> float:
    return ours - published


Error = Callable[[float, float], float]


def changed(card: GPU, numbers: Numbers) -> GPU:
    return replace(card, **{name: Number(value, "this fit") for name, value in numbers.items()})


def squared(card: GPU, of: Iterable[Bar], error: Error) -> float:
    """The sum of squared errors over these bars."""
    costs = card.costs(PROFILE)
    return sum(error(bar.predicted(costs), bar.published) ** 2 for bar in of)


def best(card: GPU, grid: Grid, of: Sequence[Bar], error: Error) -> Numbers:
    """The point of a grid with the least sum of squared errors."""
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    return min(points, key=lambda point: squared(changed(card, point), of, error))


def around(grid: Grid, point: Numbers) -> Grid:
    """A finer grid: one coarse step to each side of the point."""
    found = {}
    for name, values in grid.items():
        step = values[1] - values[0]
        found[name] = steps(point[name] - step, point[name] + step, step / FINER)
    return found


@dataclass(frozen=True)
class Fit:
    committed: Numbers
    coarse: Numbers
    coarse_by_logarithm: Numbers
    fine: Numbers


def fit(card: GPU, found: Sequence[Bar]) -> Fit:
    space = [bar for bar in found if bar.kind == "workspace"]
    time = [bar for bar in found if bar.kind != "workspace"]
    coarse = best(card, WORKSPACES, space, difference)
    fine = best(card, around(WORKSPACES, coarse), space, difference)
    by_logarithm = {**coarse, **best(changed(card, coarse), EFFICIENCIES, time, logarithm)}
    coarse = {**coarse, **best(changed(card, coarse), EFFICIENCIES, time, relative)}
    fine = {**fine, **best(changed(card, fine), around(EFFICIENCIES, coarse), time, relative)}
    return Fit(committed(card), coarse, by_logarithm, fine)


def committed(card: GPU) -> Numbers:
    return {name: getattr(card, name).value for name in (*EFFICIENCIES, *WORKSPACES)}


# ---- output

TITLES = {
    "seconds": "Seconds of the layers before the classifier, one step",
    "speed": "Speed of (m) relative to (p), without offload",
    "workspace": "Largest workspace of a step, MiB",
}


def rows(card: GPU, found: Sequence[Bar], fitted: Fit) -> list[dict[str, Any]]:
    """A row per bar, with the committed profile's figure and the best fit's."""
    ours, other = (changed(card, numbers).costs(PROFILE) for numbers in (fitted.committed, fitted.fine))
    listed = []
    for bar in found:
        now, then = bar.predicted(ours), bar.predicted(other)
        listed.append(
            {
                "kind": bar.kind, "net": bar.net, "batch": bar.batch, "algorithms": bar.algorithms,
                "published": bar.published, "committed": now, "committed_ratio": now / bar.published,
                "best": then, "best_ratio": then / bar.published, "source": bar.source,
            }
        )  # fmt: skip
    return listed


def errors(card: GPU, found: Sequence[Bar], numbers: Numbers) -> dict[str, float]:
    """The sums of squared errors of the profile with these numbers: those that the fits minimize."""
    one = changed(card, numbers)
    space = [bar for bar in found if bar.kind == "workspace"]
    time = [bar for bar in found if bar.kind != "workspace"]
    return {
        "relative": squared(one, time, relative),
        "logarithm": squared(one, time, logarithm),
        "workspace_mib": squared(one, space, difference),
    }


def apart(fitted: Fit) -> dict[str, float]:
    """{name: the best fit's number over the committed one, less 1}"""
    return {name: fitted.fine[name] / value - 1 for name, value in fitted.committed.items()}


def document(card: GPU, found: Sequence[Bar], fitted: Fit) -> dict[str, Any]:
    points = vars(fitted)
    return {
        "profile": PROFILE,
        "numbers": points,
        "apart": apart(fitted),
        "errors": {name: errors(card, found, numbers) for name, numbers in points.items()},
        "rows": rows(card, found, fitted),
    }


def show(result: Mapping[str, Any]) -> None:
    for kind, title in TITLES.items():
        headings = ("bar", "published", "committed", "off", "best fit", "off", "source")
        lines = [_line(row) for row in result["rows"] if row["kind"] == kind]
        table.plain(headings, lines, title)
    headings = ("numbers", *result["apart"], "relative", "logarithm", "MiB")
    lines = []
    for name, numbers in result["numbers"].items():
        sums = result["errors"][name]
        left = [f"{sums['relative']:.3f}", f"{sums['logarithm']:.3f}", f"{math.sqrt(sums['workspace_mib']):.0f}"]
        lines.append([name.replace("_", " "), *(f"{numbers[key]:g}" for key in result["apart"]), *left])
    lines.append(["fine over committed", *(f"{value:+.0%}" for value in result["apart"].values()), "", "", ""])
    table.plain(headings, lines, "The numbers, and the sums of squared errors that they leave (MiB: its root)")
    print(verdict(result))


def _line(row: Mapping[str, Any]) -> list[str]:
    written = {"seconds": table.duration, "speed": "{:.3f}".format, "workspace": "{:.0f}".format}[row["kind"]]
    return [
        f"{row['net']} ({row['batch']}), {row['algorithms']}", written(row["published"]),
        written(row["committed"]), f"{row['committed_ratio'] - 1:+.0%}",
        written(row["best"]), f"{row['best_ratio'] - 1:+.0%}", row["source"],
    ]  # fmt: skip


def verdict(result: Mapping[str, Any]) -> str:
    """Sentences that say how far apart the committed numbers and the best fit are."""
    numbers, sums = result["numbers"], result["errors"]
    same = [name for name in ("coarse", "coarse_by_logarithm") if numbers[name] == numbers["committed"]]
    where = f"the best point of a coarse grid ({same[0].replace('_', ' ')})" if same else "best on no coarse grid"
    far = max(abs(value) for value in result["apart"].values())
    less = {key: 1 - sums["fine"][key] / sums["committed"][key] for key in ("relative", "workspace_mib")}
    return (
        f"The committed numbers are {where}. The best fit's numbers are within {far:.0%} of them; its squared errors "
        f"are {less['relative']:.0%} less for seconds and speeds, {less['workspace_mib']:.0%} less for workspaces. "
        "The profile is left as it is."
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
    args = parser.parse_args(argv)
    card, found = gpu(PROFILE), bars()
    result = document(card, found, fit(card, found))
    if args.json:
        table.dump(result)
    else:
        show(result)


if __name__ == "__main__":
    main()
