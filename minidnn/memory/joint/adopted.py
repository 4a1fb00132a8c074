"""The decisions that a plan of any policy makes, as far as an evaluator knows them: a start for a search.

Each gap of a tensor is looked up in the plan: whether the tensor leaves in it, is made again, or stays. What the
evaluator cannot say is left out, such as shared slots, and so the decisions may exceed a limit that the plan keeps.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict

from minidnn.memory.joint.evaluator import KEEP, OFFLOAD, RECOMPUTE, Decisions, Evaluator
from minidnn.memory.plan import Plan
from minidnn.memory.schedule import aligned
from minidnn.program import Op, Tensor


def adopt(evaluator: Evaluator, first: Decisions, plan: Plan) -> None:
    """Give the evaluator the decisions of a plan of its program; `first` are those by which nothing moves."""
    ev, ops = evaluator, evaluator.index.ops
    ev.restore(first)
    runs: dict[Op, list[int]] = defaultdict(list)
    for p, op in enumerate(plan.order or ops):
        runs[op].append(p)
    begins = [runs[op][0] for op in ops] + [len(plan.order or ops)]
    leaves: dict[Tensor, list[int]] = defaultdict(list)
    for offload in plan.offloads:
        if offload.free_at is not None:
            leaves[offload.tensor].append(offload.free_at)
    for i, gap in enumerate(ev.gaps):
        if gap.last < 0 or not (ev.may_offload[i] or ev.may_recompute[i]):
            continue
        after, until = begins[gap.last], begins[gap.use]
        maker = ev.makers.get(gap.tensor)
        again = maker is not None and _any_between(runs[ops[maker]], after, until)
        if ev.may_recompute[i] and again:
            ev.fate[i] = RECOMPUTE
        else:
            away = ev.may_offload[i] and _any_between(sorted(leaves[gap.tensor]), after, until)
            ev.fate[i] = OFFLOAD if away else KEEP
    for p, op in enumerate(ops):
        if (algorithm := plan.algorithm.get(op)) is not None:
            room = aligned(algorithm.workspace)
            fit = [n for n, c in enumerate(ev.index.choices[p]) if aligned(c.algorithm.workspace) <= room]
            ev.choose(p, max(fit, default=0))


def _any_between(points: list[int], after: int, until: int) -> bool:
    """Whether one of these rising points is behind `after`, and not behind `until`."""
    return bisect_right(points, until) > bisect_left(points, after + 1)
