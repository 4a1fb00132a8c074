"""l2l: weights come from the host layer by layer, L2L-style (Pudipeddi et al., "Training Large Neural Networks with
Constant Memory using a New Execution Algorithm", arXiv 2002.05645, 2020).

In the paper the model lives in the host's memory (its "eager param-server"). At any moment the device has little but
the layer that runs, and the one whose weights are on their way. A layer's output waits for backward on the device, or,
in the variant with constant memory, on the host. Here it waits on the host.

A turn is a run of neighbouring ops of one layer. Weights and maps come during the turn before the one that uses them.
They go when their turn is over; bytes that are copied out are free one turn later, so that the copy runs beside it.

It is not the paper's whole algorithm. There each layer runs on many micro-batches before the next one does; here a step
is one micro-batch (`iter_size` runs the whole net again). There the host updates weights; here the device does, and
momenta come for it. A transformer's layer makes its inner maps again in backward; a layer here is one of the net's, and
has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest

from minidnn.costs import Costs
from minidnn.memory.plan import OffloadInterval, Plan, Point, in_place_sharing
from minidnn.memory.policies.shared.algorithms import Algorithms, choose
from minidnn.program import Op, Program, Role, Tensor

MAPS = frozenset({Role.ACTIVATION, Role.EXTRA})


def l2l(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """Weights come from the host layer by layer."""
    share, turns = in_place_sharing(program), _Turns(program.ops)
    on_host = {*program.host_resident, *program.movable, *program.inputs} - program.double_buffered  # the host has them
    on_device = {*program.outputs, *program.persistent} - on_host
    offloads: list[OffloadInterval] = []
    for t, uses in turns.uses.items():
        if t in on_host or (t.role in MAPS and t not in on_device):
            offloads += _offloads(t, uses, turns, t in on_host)
    return Plan(
        algorithm=choose(program, costs, algorithms),
        share=share,
        offloads=tuple(offloads),
        host_resident=program.movable,
    )


@dataclass(frozen=True)
class _Use:
    """The use of a tensor in one turn. `read`: its first reader, unless the turn makes the tensor anew; `written`: its
    last writer"""

    turn: int
    read: Point | None
    written: Point | None


class _Turns:
    """begin: the first point of each turn, and the end; uses: {tensor: its uses, a turn each}"""

    def __init__(self, ops: Sequence[Op]) -> None:
        self.begin: list[Point] = []
        self.uses: dict[Tensor, list[_Use]] = {}
        p = 0
        for number, (_, several) in enumerate(groupby(ops, key=lambda op: op.layer)):
            self.begin.append(p)
            result: dict[Tensor, _Use] = {}
            for op in several:
                for t in op.tensors:
                    read, written = p if t in op.reads else None, p if t in op.writes else None
                    if (one := result.get(t)) is not None:
                        read, written = one.read, one.written if written is None else written
                    result[t] = _Use(number, read, written)
                p += 1
            for t, use in result.items():
                self.uses.setdefault(t, []).append(use)
        self.begin.append(p)

    def after(self, turn: int) -> Point:
        """The point at which this turn is over."""
        return self.begin[min(turn + 1, len(self.begin) - 1)]


def _offloads(t: Tensor, uses: Sequence[_Use], turns: _Turns, on_host: bool) -> Iterator[OffloadInterval]:
    """The absences of a tensor between turns. `on_host`: the host has it when the step begins"""
    first, changed, out = uses[0], not on_host, 0
    if on_host and first.read is not None:
        yield OffloadInterval(t, None, None, turns.begin[max(0, first.turn - 1)], first.read)
    for one, other in zip_longest(uses, uses[1:]):
        if one.written is not None:
            changed, out = True, one.written + 1
        free = turns.after(one.turn + 1 if changed else one.turn)
        if other is None:
            if on_host and changed:
                yield OffloadInterval(t, out, free, None, None)
        elif other.turn - one.turn > 1 and other.read is not None:
            yield OffloadInterval(t, out if changed else None, free, max(free, turns.begin[other.turn - 1]), other.read)
            changed = False
