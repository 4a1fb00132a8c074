"""The seconds and workspace bytes of every algorithm of each op, and which algorithm a plan chose."""

from __future__ import annotations

from collections.abc import Sequence

from minidnn.costs import Costs
from minidnn.memory.plan import Plan
from minidnn.program import Op, Pass, Program
from minidnn.results.times import AlgorithmSum, AlgorithmTime


def algorithms(program: Program, plan: Plan, costs: Costs) -> list[AlgorithmTime]:
    """A row per algorithm of each convolution pass, and of every other op with more than one algorithm.

    The rows are sorted by layer, in the order of forward."""
    place = {layer: k for k, layer in enumerate(program.layers)}
    rows = []
    for op in sorted(program.ops, key=lambda op: place.get(op.whole.layer, len(place))):
        choices = costs.choices(op)
        for c in choices if len(choices) > 1 or _convolves(op) else ():
            rows.append(
                AlgorithmTime(
                    layer=op.layer,
                    part=_part(op),
                    op=op.name,
                    algorithm=c.algorithm.name,
                    workspace_bytes=c.algorithm.workspace,
                    op_seconds=c.seconds,
                    chosen=c.algorithm == plan.algorithm[op],
                )
            )
    return rows


def _part(op: Op) -> str:
    """The verb of the op's kind; of its name, where the kind is another pass's, as in a Deconvolution."""
    verb = op.kind.split(".", 1)[1]
    return verb if verb.startswith("backward") == (op.during is Pass.BACKWARD) else op.name.rsplit(".", 1)[1]


def _convolves(op: Op) -> bool:
    return op.family == "convolution" and op.kind != "convolution.backward_bias"


def sums(rows: Sequence[AlgorithmTime]) -> dict[str, AlgorithmSum]:
    """The sum of seconds over all ops and the largest workspace, for three choices of algorithms.

    These are the plan's ("chosen"), the fastest ("fastest"), and those of least workspace ("least")."""
    ops: dict[str, list[AlgorithmTime]] = {}
    for row in rows:
        ops.setdefault(row.op, []).append(row)
    taken = {
        "chosen": [row for row in rows if row.chosen],
        "fastest": [min(of, key=lambda row: (row.op_seconds, row.workspace_bytes)) for of in ops.values()],
        "least": [min(of, key=lambda row: (row.workspace_bytes, row.op_seconds)) for of in ops.values()],
    }
    return {
        which: AlgorithmSum(
            op_seconds=sum(row.op_seconds for row in of),
            workspace_bytes=max((row.workspace_bytes for row in of), default=0),
        )
        for which, of in taken.items()
    }
