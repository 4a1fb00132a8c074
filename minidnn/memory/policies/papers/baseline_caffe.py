"""Caffe's own allocation, which Layrub compares itself with (Jin et al., TACO 15(3), 2018, section 2 and Figure 9).

    baseline = data and diff of every blob + tensors that layers keep for themselves + a workspace for each convolution

All of these are allocated for the whole step. With the facts of Caffe (`--facts caffe`) the program has a diff for each
data, also for each top of a Split. BatchNorm and Scale then have their own copies. With other facts the program has the
tensors that those facts say. Caffe gives each convolution layer a workspace of its own and never takes it back. It is
as large as the largest workspace of the layer's passes.
"""

from __future__ import annotations

from minidnn.costs import Costs
from minidnn.memory.plan import Plan, Share, Slot
from minidnn.memory.policies.papers.baseline_sum import baseline_sum
from minidnn.memory.policies.shared.algorithms import Algorithms
from minidnn.program import Program


def baseline_caffe(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """Data and diff of each blob are held, as in Caffe."""
    plan = baseline_sum(program, costs, budget, algorithms)
    largest: dict[str, int] = {}
    for op, a in plan.algorithm.items():
        largest[op.layer] = max(largest.get(op.layer, 0), a.workspace)
    share: Share = dict(plan.share)
    share |= {op: Slot(f"{op.layer}.workspace", largest[op.layer]) for op, a in plan.algorithm.items() if a.workspace}
    return Plan(algorithm=plan.algorithm, share=share, hold=plan.hold)
