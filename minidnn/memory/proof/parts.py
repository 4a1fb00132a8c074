"""Proves that a program whose ops run in parts computes what the program does that has them as a whole.

Values get numbers, as in verify.py: what an op of the whole program writes is the value (op, place). In parts, a tensor
has some rows of such a value, or a sum of a gradient over some rows. Each op is checked against the whole program:

- A part reads the same rows of the values that its op reads there, and whole values where its kind wants them whole.
- A slice has rows of the value that it reads, at the place that it names. A concat has rows that lie one behind the
  other.
- An add has a sum over the first rows, and continues it with the rows behind these.
- A merge has what all parts of an op wrote of their own, of as many rows each, in the order of the rows.
- A part of one pass of an op stands for an op that the whole program has instead: its passes, as the table has them.
- Any other op is one of the whole program's, and reads whole values.

At the end each op has run once, for all rows, and each value that outlives the step is whole. All parts of an op have
one algorithm, and both passes of an op. This shares nothing with what made the parts (memory/parts/split.py) but the
tables of kinds and of passes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from minidnn.memory.parts.kinds import (
    MERGED,
    MERGES,
    ROWS,
    SUM,
    WHOLE,
    attrs_of_rows,
    axis_of,
    operands,
    rows_of,
    shape_of_rows,
)
from minidnn.memory.parts.passes import passes
from minidnn.memory.proof.verify import ScheduleError
from minidnn.memory.schedule import Schedule
from minidnn.program import Algorithm, Op, Program, Rows, Tensor

Number = tuple[str, int]  # what an op writes: its name, and the place; or a value that is given: its name, and -1


@dataclass(frozen=True)
class _Value:
    """Rows [first, last) of a value; or its sum over these rows, or what is merged with that of the others."""

    of: Number
    first: int
    last: int
    use: str = ROWS


class _Wrong(Exception):
    """The error, in words."""


def verify_parts(wholes: Iterable[Program], schedules: Iterable[Schedule]) -> None:
    """Raise ScheduleError unless each schedule's program computes what the whole one does, where ops run in parts."""
    for whole, schedule in zip(wholes, schedules, strict=True):
        if schedule.program.ops is not whole.ops:
            resident = whole.with_host_resident(schedule.program.host_resident)
            wrong = wrong_parts(resident, schedule.program, schedule.plan.algorithm)
            if wrong is not None:
                raise ScheduleError(f"{whole.name} in parts: {wrong}")


def wrong_parts(whole: Program, parted: Program, algorithm: Mapping[Op, Algorithm]) -> str | None:
    """The first error of the program in parts, or of its algorithms; None: it computes what the whole one does."""
    try:
        _Check(whole, {op.part.within for op in parted.ops if op.part is not None}).run(parted)
    except _Wrong as reason:
        return str(reason)
    chosen: dict[Op, Algorithm] = {}
    names: dict[Op, str] = {}
    for op, a in algorithm.items():
        if op.part is not None and chosen.setdefault(op.part.of, a) != a:
            return f"{op.name} takes {a.name}, and another part of {op.part.of.name} takes {chosen[op.part.of].name}"
        if op.part is not None and (name := names.setdefault(op.part.origin, a.name)) != a.name:
            return f"{op.name} takes {a.name}, and another pass of {op.part.origin.name} takes {name}"
    return None


class _Check:
    def __init__(self, whole: Program, twice: Container[Op | None]) -> None:
        """twice: the ops that stand for their passes"""
        ops = tuple(one for op in whole.ops for one in ((op in twice and passes(op)) or (op,)))
        self.program = replace(whole, ops=ops)
        self.reads: dict[Op, list[Number]] = {}  # the values that each op reads
        self.rows: dict[Number, int] = {}  # the rows over which a gradient is summed
        now = {t: (t.name, -1) for t in (*whole.inputs, *whole.persistent, *whole.host_resident)}
        self.axis = {number: axis_of(t) for t, number in now.items()}  # of each value's rows
        for op in ops:
            self.reads[op] = [now[t] for t in op.reads]
            written = {t: (op.name, i) for i, t in enumerate(op.writes)}
            now |= written
            self.axis |= {number: axis_of(t) for t, number in written.items()}
        self.last = now
        self.values: dict[Tensor, _Value] = {}  # of the program in parts
        self.spans: dict[Op, list[tuple[int, int]]] = defaultdict(list)  # the rows of its parts that have run
        self.ran: list[Op] = []  # as a whole

    def run(self, parted: Program) -> None:
        for names in ("inputs", "persistent", "outputs", "host_resident"):
            if getattr(parted, names) != getattr(self.program, names):
                raise _Wrong(f"its {names} are others")
        for t in (*parted.inputs, *parted.persistent, *parted.host_resident):
            self.values[t] = _whole((t.name, -1), t)
        for op in parted.ops:
            if missing := next((t for t in op.reads if t not in self.values), None):
                raise _Wrong(f"{op.name} reads {missing.name}, which nothing before it writes")
            self._op(op)
        times = Counter(self.ran)
        for op in self.program.ops:
            spans, result = sorted(self.spans[op]), operands(op)
            ends = [0, *(last for _, last in spans)]
            once = result is not None and [first for first, _ in spans] == ends[:-1] and ends[-1] == result.rows
            if times[op] + bool(spans) != 1 or (spans and not once):
                raise _Wrong(f"{op.name} does not run once for each row")
        for t in (*self.program.persistent, *self.program.outputs, *self.program.host_resident):
            if t in self.last and self.values.get(t) != _whole(self.last[t], t):
                raise _Wrong(f"at the end {t.name} is not what it shall be")

    def _op(self, op: Op) -> None:
        if op.part is not None:
            self._part(op, self._same(op.part.of), op.part.first, op.part.last)
        elif op in self.reads:
            self.ran.append(op)
            for t, number in zip(op.reads, self.reads[op], strict=True):
                self._expect(op, t, _whole(number, t))
            self.values |= {t: _whole((op.name, i), t) for i, t in enumerate(op.writes)}
        elif isinstance(op.attrs, Rows):
            self._copy(op, op.attrs)
        elif op.kind == "gradient.add":
            self._add(op)
        elif op.kind in MERGES.values():
            self._merge(op)
        else:
            raise _Wrong(f"{op.name} is no op of the whole program")

    def _part(self, op: Op, of: Op, first: int, last: int) -> None:
        result = operands(of)
        if of not in self.reads or result is None or not 0 <= first < last <= result.rows:
            raise _Wrong(f"{op.name} is no part of an op of the whole program")
        same = (op.kind, op.attrs, op.during, len(op.reads), len(op.writes))
        if same != (of.kind, attrs_of_rows(of, first, last), of.during, len(of.reads), len(of.writes)):
            raise _Wrong(f"{op.name} is another op than {of.name}")
        self.spans[of].append((first, last))
        for t, wanted, number, use in zip(op.reads, of.reads, self.reads[of], result.reads, strict=True):
            value = _whole(number, wanted) if use == WHOLE else _Value(number, first, last)
            self._expect(op, t, value, wanted.shape if use == WHOLE else shape_of_rows(wanted, last - first))
        for i, (t, wanted, use) in enumerate(zip(op.writes, of.writes, result.writes, strict=True)):
            self._shape(op, t, shape_of_rows(wanted, last - first) if use == ROWS else wanted.shape)
            number = of.name, i
            self.values[t] = _Value(number, first, last, use)
            if use != ROWS:
                self.rows[number] = result.rows

    def _copy(self, op: Op, attrs: Rows) -> None:
        """A slice of some rows, or a concat."""
        (to,), values = op.writes, [self.values[t] for t in op.reads]
        alike = len(attrs.starts) == len(values) and all(v.of == values[0].of and v.use == ROWS for v in values)
        if not alike or attrs.axis != self.axis[values[0].of] or attrs.axis >= len(to.shape):
            raise _Wrong(f"{op.name} mixes values")
        rows = to.shape[attrs.axis]
        if op.kind == "concat.backward" and len(values) == 1:
            first = values[0].first + attrs.starts[0]
            if not values[0].first <= first <= first + rows <= values[0].last:
                raise _Wrong(f"{op.name} takes rows that are not there")
        elif op.kind == "concat.forward":
            first = at = values[0].first
            for value, start in zip(values, attrs.starts, strict=True):
                if value.first != at or start != at - first:
                    raise _Wrong(f"{op.name} joins rows that do not lie one behind the other")
                at = value.last
            if at - first != rows:
                raise _Wrong(f"{op.name} leaves rows out")
        else:
            raise _Wrong(f"{op.name} is neither a slice nor a concat")
        of = op.reads[0].shape
        self._shape(op, to, (*of[: attrs.axis], rows, *of[attrs.axis + 1 :]))
        self.values[to] = _Value(values[0].of, first, first + rows)

    def _add(self, op: Op) -> None:
        before, more = (self.values[t] for t in op.reads)
        sums = before.use == more.use == SUM and before.of == more.of
        if not sums or before.first or before.last != more.first:
            raise _Wrong(f"{op.name} adds what does not continue the sum")
        (to,) = op.writes
        self._shape(op, to, op.reads[0].shape)
        done = more.last == self.rows[more.of]
        self.values[to] = _whole(more.of, to) if done else _Value(more.of, 0, more.last, SUM)

    def _merge(self, op: Op) -> None:
        values = [self.values[t] for t in op.reads]
        name, whole = values[0].of[0], next((one for one in self.reads if one.name == values[0].of[0]), None)
        if whole is None or MERGES.get(whole.kind) != op.kind or len(op.writes) != len(whole.writes):
            raise _Wrong(f"{op.name} merges what it cannot")
        size, rows = values[0].last - values[0].first, self.rows[values[0].of]
        spans = [(k, k + size) for k in range(0, rows, size)]
        if values != [_Value((name, i), *span, MERGED) for span in spans for i in range(len(op.writes))]:
            raise _Wrong(f"{op.name} does not merge what all parts wrote in their order")
        for i, to in enumerate(op.writes):
            self._shape(op, to, op.reads[i].shape)
            self.values[to] = _whole((name, i), to)

    def _same(self, of: Op) -> Op:
        """The op of the whole program that this is: itself, or the same pass of one of its ops."""
        alike = (one for one in self.reads if one.name == of.name and _fields(one) == _fields(of))
        return of if of in self.reads else next(alike, of)

    def _expect(self, op: Op, t: Tensor, value: _Value, shape: tuple[int, ...] | None = None) -> None:
        if self.values[t] != value:
            raise _Wrong(f"{op.name} reads another value in {t.name} than it does as a whole")
        self._shape(op, t, t.shape if shape is None else shape)

    def _shape(self, op: Op, t: Tensor, shape: tuple[int, ...]) -> None:
        if t.shape != shape:
            raise _Wrong(f"{op.name}: {t.name} has the shape {t.shape} instead of {shape}")


def _fields(op: Op) -> tuple[object, ...]:
    return op.kind, op.attrs, op.during, op.reads, op.writes


def _whole(number: Number, t: Tensor) -> _Value:
    return _Value(number, 0, rows_of(t))
