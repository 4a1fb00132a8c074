"""A group of ops and the op that replaces them, and who makes and reads each tensor of a program."""

from __future__ import annotations

from collections import defaultdict

from minidnn.program import Op, Program, Tensor

Part = tuple[tuple[Op, ...], Op]  # (a group of ops, the fused op that takes the place of the first of them)


class Uses:
    """The makers and readers of each tensor of a program."""

    def __init__(self, program: Program) -> None:
        self.place = {op: p for p, op in enumerate(program.ops)}
        self.readers: dict[Tensor, list[Op]] = defaultdict(list)
        self.makers: dict[Tensor, Op] = {}  # the first op that writes it
        for op in program.ops:
            for t in op.reads:
                self.readers[t].append(op)
            for t in op.writes:
                self.makers.setdefault(t, op)
        self.given = {*program.inputs, *program.persistent, *program.host_resident}
        self.kept = {*program.outputs, *program.persistent, *program.host_resident}

    def reader(self, t: Tensor, kind: str, layer: str | None = None) -> Op | None:
        """The first op of this kind (and layer) that reads the tensor."""
        return next((op for op in self.readers[t] if op.kind == kind and layer in (None, op.layer)), None)

    def hidden(self, t: Tensor, *within: Op | None) -> bool:
        """Whether only the ops `within` read the tensor, and its value ends with the step."""
        return t not in self.kept and all(op in within for op in self.readers[t])

    def in_time(self, part: Part) -> bool:
        """Whether each tensor that the fused op reads exists at the op whose place it takes."""
        (first, *_), one = part
        return all(t in self.given or self.place[self.makers[t]] < self.place[first] for t in one.reads)


def rectifies(op: Op) -> bool:
    """Whether the op is a ReLU forward that a fused op can do: slope 0, and no mask."""
    return op.kind == "relu.forward" and len(op.writes) == 1 and op.attrs.negative_slope == 0


def rectified_from_y(op: Op) -> bool:
    """Whether the op is a ReLU backward that a fused op can do: slope 0, from y."""
    return op.kind == "relu.backward" and op.attrs.negative_slope == 0 and op.attrs.saved == "y"
