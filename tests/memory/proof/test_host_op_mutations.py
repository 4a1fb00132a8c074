"""Wrong schedules of steps in which the host runs ops are refused: a wait between a gradient's copy, the op and the
weight's copy is lost or too early; the op runs twice, on a stale gradient, by another algorithm, on another stream. An
independent oracle says which of the changed schedules are wrong; the others are not counted.

    pytest -s tests/memory/proof/test_host_op_mutations.py                            shows them by kinds
    HYPOTHESIS_PROFILE=deep pytest -s tests/memory/proof/test_host_op_mutations.py    tries 50 times as many
"""

from __future__ import annotations

import random
from dataclasses import replace

from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.placement import place
from minidnn.memory.plan import Plan, complete
from minidnn.memory.planning import arrange
from minidnn.memory.policies.papers.zero_offload import updates
from minidnn.memory.policies.shared.algorithms import choose
from minidnn.memory.proof.verify import verify
from minidnn.memory.schedule import Schedule
from minidnn.optimizers.trust import LAMB
from minidnn.program import Op, Pass, Program, Role, Tensor
from tests.support import several
from tests.support.examples import TIMES
from tests.support.hunt import hunted
from tests.support.mutate_host_ops import CHANGES, by_host, dropped_wait, early
from tests.support.oracle import broken
from tests.support.programs import chain, costs

WRONG = 500 * TIMES


def looked_at(program: Program) -> Program:
    """The program with ops at its end that read each new weight on the device."""
    weights = [t for t in program.persistent if t.role is Role.PARAM]
    looks = [
        Op(f"{w.name}.look", "identity.forward", "look", Pass.UPDATE, (w,), (Tensor(f"{w.name}.seen", w.shape),))
        for w in weights
    ]
    return replace(program, ops=(*program.ops, *looks))


def persistent(program: Program) -> Schedule:
    """By a plan that says what the host runs and no offload."""
    host_ops = updates(program, costs(), choose(program, costs(), "m"))
    host_resident = frozenset(
        t for op in host_ops for t in op.tensors if t in program.persistent and t not in program.inputs
    )
    plan = complete(program, costs(), Plan(host_resident=host_resident, host_ops=host_ops))
    return place(lower(program, plan))


def planned(program: Program, bandwidth: float) -> Schedule:
    return arrange([program], "zero_offload:m", costs(bandwidth=bandwidth)).schedules["TRAIN"]


def schedules(all_: bool) -> list[Schedule]:
    small = [persistent(chain(2)), persistent(looked_at(chain(2))), planned(chain(2), 2e8)]
    made = {case: several.made(1, case)["TRAIN"] for case in ("plain", "clipped", "summed")}
    made["lamb"] = several.made(1, "plain", optimizer=LAMB((0.9, 0.99, 1e-6), 0.01))["TRAIN"]
    if not all_:
        return [*small, planned(made["plain"], 2e9)]
    large = [f(p) for p in made.values() for f in (lambda p: planned(p, 2e8), lambda p: planned(p, 2e9))]
    return [*small, *large, *(persistent(looked_at(p)) for p in made.values())]


def test_500_wrong_schedules_of_ops_of_the_host_are_refused():
    r, every = random.Random(18), schedules(TIMES > 1)
    for s in every:
        verify(s)
        assert broken(s) is None and by_host(s)
    changes = (*CHANGES, dropped_wait, dropped_wait, early)
    wrong = hunted(every, changes, WRONG, r, lambda s, *_: broken(s), lambda s, _: verify(s))
    assert len(wrong) >= len(CHANGES) - 1
