"""A pass over a Program before planning: ops of chosen regions run in parts of the batch. So no op needs all of a large
tensor at once, and each part of it is offloaded by itself.

An op in parts becomes one op for each part, of the same kind, over tensors of some rows: "relu1_1.y[0:32]". Plans, the
lowering, the proof, machines and bounds see ordinary ops and tensors. Where the batch is one sequence, rows are tokens
(kinds.py).

- Between ops in equal parts no whole tensor exists.
- An op that wants other rows than there are gets them by a copy: a *slice* of some rows from a larger part, or a
  *concat* of several parts. Both are ops of Concat's kinds, along the axis of the rows. Each is a layer of its own, as
  each part is.
- The gradient of a parameter is a sum: each part writes its own, and `gradient.add` adds them in the order of the rows.
- Each part writes moments of its own, and sums by channel. Those of all parts are merged by one op, in their order.
- An op that goes twice over its rows becomes two (passes.py). What needs those of all parts is in a later
  region than what writes them.
- In forward the parts run last to first, in backward first to last, as the order of that sum wants. So backward begins
  with the part that forward made last, which has had no time to leave.

Ops could read ranges of whole tensors instead, but then kernels, costs and policies would have to know of ranges; and
the copies are small where regions end at small maps. A kernel could continue the sum of the part before, but Winograd's
sums are in another space until the last tile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from minidnn.memory.parts.kinds import (
    MERGED,
    MERGES,
    ROWS,
    SUM,
    WHOLE,
    Operands,
    attrs_of_rows,
    axis_of,
    operands,
    rows_of,
    shape_of_rows,
)
from minidnn.memory.parts.passes import passes
from minidnn.program import FORWARD, Op, Part, Pass, Program, Role, Rows, SplitRegion, Tensor

CONCAT, SLICE, ADD = "concat.forward", "concat.backward", "gradient.add"
Span = tuple[int, int]  # rows [first, last)


def parted(program: Program, regions: Sequence[SplitRegion]) -> Program:
    """The program whose ops of these regions run in parts. Raises ValueError if they cannot."""
    if not regions:
        return program
    twice = _twice(program, regions)
    ops = tuple(one for op in program.ops for one in (passes(op) if op in twice else (op,)))
    made = replace(program, ops=_Parting(replace(program, ops=ops), twice).ops_of(regions), parts=tuple(regions))
    made.check()
    return made


class _Parting:
    def __init__(self, program: Program, twice: Iterable[Op]) -> None:
        """twice: the ops of which the program has the passes"""
        self.before = program
        self.within = {one: op for op in twice for one in passes(op)}
        self.ops: list[Op] = []  # of the new program, so far
        self.spans: dict[Tensor, dict[Span, Tensor]] = {}  # {a tensor: its rows that are there as tensors}

    def ops_of(self, regions: Sequence[SplitRegion]) -> tuple[Op, ...]:
        at = 0
        for block in _blocks(self.before, regions):
            self._plain(*self.before.ops[at : block.first], *block.before)
            self._parts(block.inside, block.count)
            self._plain(*block.behind)
            at = block.last
        self._plain(*self.before.ops[at:])
        return tuple(self.ops)

    def _plain(self, *ops: Op) -> None:
        """Ops that do not run in parts: their reads are whole tensors."""
        for op in ops:
            for t in op.reads:
                if t in self.spans:
                    self._rows(t, (0, rows_of(t)), op)
            for t in op.writes:
                self.spans.pop(t, None)
            self.ops.append(op)

    def _parts(self, ops: Sequence[Op], count: int) -> None:
        for i in reversed(range(count)) if ops[0].during in FORWARD else range(count):
            for op in ops:
                step = _operands(op).rows // count
                self._part(op, (i * step, (i + 1) * step))
        for op in ops:
            if _operands(op).merged:
                self.ops.append(merge_of(op, count))
            for t in op.writes:
                if t in self.before.outputs:
                    self._rows(t, (0, rows_of(t)), op)

    def _part(self, op: Op, span: Span) -> None:
        """One part of an op, with the slices and concats that it needs, and the add of its gradient."""
        one = part_of(op, span, self.within.get(op))
        for t, some in zip(op.reads, one.reads, strict=True):
            if some is not t:
                self._rows(t, span, one)
            elif t in self.spans:
                self._rows(t, (0, rows_of(t)), one)
        self.ops.append(one)
        for t, use, some in zip(op.writes, _operands(op).writes, one.writes, strict=True):
            if use == ROWS:
                self.spans.setdefault(t, {})[span] = some
            elif use == SUM and span[0]:
                self.ops.append(sum_of(one, t, some))

    def _rows(self, t: Tensor, span: Span, by: Op) -> None:
        """See to it that these rows of t are there as a tensor, for the op `by`: by a slice or a concat, if need be."""
        there = self.spans.setdefault(t, {(0, rows_of(t)): t})
        first, last = span
        reads: tuple[Tensor, ...]
        starts: tuple[int, ...]
        if span in there:
            return
        if around := [(b - a, (a, b)) for a, b in there if a <= first and last <= b]:
            source = min(around)[1]
            kind, reads, starts = SLICE, (there[source],), (first - source[0],)
        elif tiles := _tiles(there, span):
            kind, reads, starts = CONCAT, tuple(there[s] for s in tiles), tuple(a - first for a, _ in tiles)
        else:
            self._rows(t, (0, rows_of(t)), by)
            self._rows(t, span, by)
            return
        there[span] = some = _some(t, span)
        during = Pass.FORWARD if by.during in FORWARD else Pass.BACKWARD
        name = f"{some.name}.{'slice' if kind == SLICE else 'concat'}"
        self.ops.append(Op(name, kind, some.name, during, reads, (some,), Rows(starts, axis_of(t)), flops=some.size))


# ---- a part of an op


def part_of(op: Op, span: Span, within: Op | None = None) -> Op:
    """The op for these rows alone. Where it writes the gradient of a parameter, or what is merged, it writes its own.

    within: the op of which it is a pass"""
    result = _operands(op)
    of = {t: t if use == WHOLE else _some(t, span) for t, use in zip(op.reads, result.reads, strict=True)}
    to = {
        t: replace(t, name=_named(t.name, span)) if use in (SUM, MERGED) else _some(t, span)
        for t, use in zip(op.writes, result.writes, strict=True)
    }
    return replace(
        op, name=_named(op.name, span), layer=_named(op.layer, span), part=Part(op, *span, within),
        attrs=attrs_of_rows(op, *span), reads=tuple(of[t] for t in op.reads), writes=tuple(to[t] for t in op.writes),
        inplace=tuple((of[a], to[b]) for a, b in op.inplace), flops=op.flops * (span[1] - span[0]) // result.rows,
    )  # fmt: skip


def sum_of(one: Op, whole: Tensor, more: Tensor) -> Op:
    """The sum of a gradient's parts up to that of the op `one`, which is `more`; of all parts it is `whole`."""
    assert one.part is not None and one.part.first
    first, last = one.part.first, one.part.last
    before = replace(whole, name=_named(whole.name, (0, first)))
    every = last == _operands(one.part.of).rows
    total = whole if every else replace(whole, name=_named(whole.name, (0, last)))
    pairs = (before, total), (more, total)
    return Op(
        f"{one.name}.add_{whole.name}", ADD, one.layer, one.during, (before, more), (total,), None, pairs, whole.size
    )


def merge_of(op: Op, count: int) -> Op:
    """The op that merges what each of the op's parts writes: the first part's own, then the next one's."""
    step = _operands(op).rows // count
    own = tuple(t for i in range(count) for t in part_of(op, (i * step, (i + 1) * step)).writes)
    return Op(
        f"{op.name}.merge", MERGES[op.kind], op.layer, op.during, own, op.writes, flops=4 * sum(t.size for t in own)
    )


def _operands(op: Op) -> Operands:
    result = operands(op)
    assert result is not None, f"{op.name} cannot run in parts"
    return result


def _named(name: str, span: Span) -> str:
    return f"{name}[{span[0]}:{span[1]}]"


def _some(t: Tensor, span: Span) -> Tensor:
    """Some rows of a tensor; the tensor itself if these are all."""
    if span == (0, rows_of(t)):
        return t
    role = Role.ACTIVATION if t.role in (Role.INPUT, Role.LABEL) else t.role
    return replace(t, name=_named(t.name, span), shape=shape_of_rows(t, span[1] - span[0]), role=role)


def _tiles(there: Iterable[Span], span: Span) -> list[Span] | None:
    """Spans that are there and lie one behind the other over the whole of `span`; None: there are none."""
    result: list[Span] = []
    at = span[0]
    while at < span[1]:
        further = [(a, b) for a, b in there if a == at and b <= span[1]]
        if not further:
            return None
        result.append(max(further))
        at = result[-1][1]
    return result


# ---- regions


@dataclass(frozen=True, eq=False)
class _Block:
    """A region's ops, and those between them, which run before it or behind it: ops [first, last) of the program."""

    first: int
    last: int
    count: int
    before: Sequence[Op]
    inside: Sequence[Op]
    behind: Sequence[Op]


def refused(program: Program, op: Op, count: int) -> str | None:
    """Why an op of the program cannot run in so many parts; None: it can."""
    result = operands(op)
    if result is None:
        return f"an op of kind {op.kind} needs all rows at once"
    if not result.divides(count) or count < 2:
        of = "" if result.step == 1 else f" of a multiple of {result.step}"
        return f"its {result.rows} rows are not {count} equal parts{of}"
    lasting = next((t for t in result.tensors if t in op.writes and t in program.lasting), None)
    return None if lasting is None else f"it writes {lasting.name}, which lives from step to step"


def _twice(program: Program, regions: Sequence[SplitRegion]) -> list[Op]:
    """The ops of which the regions name the passes. Raises ValueError if both passes are not in as many parts."""
    counts = {name: region.count for region in regions for name in region.ops}
    result = [op for op in program.ops if any(one.name in counts for one in passes(op))]
    for op in result:
        first, last = passes(op)
        if counts.get(first.name) != counts.get(last.name):
            raise ValueError(f"{op.name} cannot run in parts: {first.name} and {last.name} are not in as many")
    return result


class Touched:
    """The tensors that some ops read and write."""

    def __init__(self) -> None:
        self.used: set[Tensor] = set()
        self.changed: set[Tensor] = set()

    def add(self, op: Op) -> None:
        self.used.update(op.tensors)
        self.changed.update(op.writes)

    def before(self, op: Op) -> bool:
        """Whether these ops must run before this one."""
        return not (self.changed.isdisjoint(op.tensors) and self.used.isdisjoint(op.writes))


def _blocks(program: Program, regions: Sequence[SplitRegion]) -> list[_Block]:
    place = {op.name: p for p, op in enumerate(program.ops)}
    if unknown := next((name for region in regions for name in region.ops if name not in place), None):
        raise ValueError(f"{unknown} cannot run in parts: {program.name} has no such op")
    result: list[_Block] = []
    for region in sorted(regions, key=lambda region: place[region.ops[0]]):
        block = _block(program, region, [place[name] for name in region.ops])
        if result and result[-1].last > block.first:
            raise ValueError(f"{region.ops[0]} cannot run in parts: its region and the one before it overlap")
        result.append(block)
    return result


def _block(program: Program, region: SplitRegion, points: Sequence[int]) -> _Block:
    """The region whose ops stand at these points. Raises ValueError if they cannot run in parts together."""
    inside = [program.ops[p] for p in points]
    for op in inside:
        if why := refused(program, op, region.count):
            raise ValueError(f"{op.name} cannot run in parts: {why}")
    if sorted(set(points)) != points or len({op.during in FORWARD for op in inside}) > 1:
        raise ValueError(
            f"{inside[0].name} cannot run in parts: its region is not in the program's order, or in both passes"
        )
    before: list[Op] = []
    behind: list[Op] = []
    own, so_far, waiting = set(points), Touched(), Touched()
    late = {t for op in inside for t in _operands(op).late}
    late |= {t for op in inside for t in op.writes}.intersection(t for op in inside for t in _operands(op).whole)
    for p in range(points[0], points[-1] + 1):
        op = program.ops[p]
        if p in own and (early := next((t for t in op.reads if t in late), None)):
            raise ValueError(
                f"{op.name} cannot run in parts with {inside[0].name}: {early.name} needs all rows of them"
            )
        if p in own and waiting.before(op):
            raise ValueError(f"{op.name} cannot run in parts with {inside[0].name}: {behind[-1].name} is between them")
        if p in own:
            so_far.add(op)
        elif so_far.before(op) or waiting.before(op):
            behind.append(op)
            waiting.add(op)
        else:
            before.append(op)
    return _Block(points[0], points[-1] + 1, region.count, before, inside, behind)
