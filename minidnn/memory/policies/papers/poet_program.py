"""POET's integer program (poet.py): the tensors in memory at each stage, the ops that run again, the
pages.

A stage ends with the first run of its op: stage t with that of op t. Before it, in stages of backward, ops of forward
may run again, in the program's order. These are the variables, for a stage t, a tensor x and an op i:

    there[t, x]   x is in memory when the stage begins              the paper's S_RAM
    again[t, i]   i runs again in the stage                                  R
    out[t, x]     x is copied out beside the stage's ops                     M_out
    back[t, x]    x has come back when the stage begins                      M_in
    early[t, x]   and its copy ran beside the ops of the stage before, where it has its bytes already
    faster[p, c]  op p has its algorithm number c and not its leanest

    there[t, x] + again[t, maker of x] >= again[t, i]      for each x that i reads; 1 for op t itself
    there[t+1, x] <= there[t, x] + made in stage t + back[t+1, x]
    out[t, x] <= there[t, x]
    back[t, x] <= out[s, x] of all stages s < t
    live bytes at each run <= memory                       within a stage, a tensor is freed behind its last reader

The paper minimises energy, which adds up. Seconds do not, since copies and ops run beside one another. So a stage takes
as long as its ops, its copies out, or the copies back that run beside it, whichever is longest. For other copies back
compute waits. A second of any copy costs HIDDEN seconds more, so that none is made that saves nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from minidnn.memory.joint.index import Index, repeatable
from minidnn.memory.joint.linear import Rows
from minidnn.memory.plan import Point, Share, in_place_sharing
from minidnn.memory.schedule import aligned, room
from minidnn.program import Tensor

UNITS = 1000.0  # the largest tensor, and the fastest step, are so many units: the solver's tolerances are absolute
HIDDEN = 0.01

Terms = list[tuple[int, float]]


class Stages(Rows):
    """The program of one step, once it is `written`. Bytes and seconds have the units `byte` and `second`.

    share:   {tensor: the tensor of as many bytes that it is written over}, for the plan
    memory:  the variable whose upper bound limits the live bytes
    there, again, out, back, early: {(stage, tensor or op): variable}
    faster:  {(op, number of an algorithm): variable}
    """

    def __init__(self, index: Index) -> None:
        super().__init__()
        self.index, self.ops = index, index.ops
        self.maker = repeatable(index)
        self.runs = sorted(set(self.maker.values()))
        self.readers: dict[Tensor, list[Point]] = defaultdict(list)  # {tensor: ops that may run again and read it}
        for i in self.runs:
            for t in dict.fromkeys(self.ops[i].reads):
                self.readers[t].append(i)
        self.wanted = self._last_reads()
        self.decided = self._decided()
        self.share: Share = {}
        self.over: dict[Tensor, Point] = {}  # {overwritten tensor: the op that does so}
        for y, x in in_place_sharing(index.program).items():
            both = isinstance(y, Tensor) and isinstance(x, Tensor) and y in self.decided and x in self.decided
            if both and _size(x) == _size(y):  # type: ignore[arg-type]
                self.share[y], self.over[x] = x, index.writers[y][0]  # type: ignore[index]
        self.byte = UNITS / max((_size(t) for t in self.decided), default=1)
        self.second = UNITS / (sum(c[-1].seconds for c in index.choices) or 1.0)
        self.there: dict[tuple[Point, Tensor], int] = {}
        self.out: dict[tuple[Point, Tensor], int] = {}
        self.back: dict[tuple[Point, Tensor], int] = {}
        self.early: dict[tuple[Point, Tensor], int] = {}
        self.again: dict[tuple[Point, Point], int] = {}
        self.faster: dict[tuple[Point, int], int] = {}

    def with_rows(self) -> Stages:
        """The same with its variables and rows."""
        self.memory = self.var()
        self._variables()
        self._moves()
        self._reads()
        self._seconds()
        self._bytes()
        return self

    @property
    def decisions(self) -> int:
        """The number of variables that are whole, known before they are written."""
        index, count = self.index, sum(len(choices) - 1 for choices in self.index.choices)
        for t in self.decided:
            stages, moves = len(self._stages(t)), index.may_offload(t)
            count += stages + moves * (2 if t in index.inputs else 3) * (stages - 1)
        for i in self.runs:
            last = min(max(self.wanted[t] for t in self.ops[i].writes), len(self.ops) - 1)
            count += max(0, last - index.forward + 1)
        return count

    # ---- which tensors are decided about

    def _last_reads(self) -> dict[Tensor, Point]:
        """{tensor that is not persistent: the last op for which it may be read}, by a run again for that op, too."""
        last = {t: max(uses) for t, uses in self.index.uses.items()}
        for i in reversed(self.runs):
            latest = max(last[t] for t in self.ops[i].writes)
            last |= {t: max(last[t], latest) for t in self.ops[i].reads if t in last}
        return last

    def _decided(self) -> dict[Tensor, Point]:
        """{tensor that may be away: its writer; of an input, the op before its first reader}."""
        index = self.index
        outputs = {*index.program.outputs, *index.program.host_resident}
        least = max((t.nbytes for t in index.uses), default=0) / index.small
        result: dict[Tensor, Point] = {}
        for t, uses in index.uses.items():
            once = len(index.writers[t]) == (0 if t in index.inputs else 1)
            if once and t not in outputs and t.nbytes >= max(1, least) and self.wanted[t] > uses[0]:
                result[t] = uses[0] - 1 if t in index.inputs else uses[0]
        return result

    def _stages(self, t: Tensor) -> range:
        """The stages at whose beginning the tensor may be in memory: none behind an op that writes over it."""
        return range(self.decided[t] + 1, min(self.wanted[t], self.over.get(t, len(self.ops))) + 1)

    # ---- variables, and the rows of each part

    def _variables(self) -> None:
        index = self.index
        for t in self.decided:
            arrives = t in index.inputs
            for s in self._stages(t):
                first = s == self.decided[t] + 1
                self.there[s, t] = self._choice(low=float(arrives and first))
                if index.may_offload(t) and not first:
                    self.back[s, t] = self._choice()
                    self.early[s, t] = self._choice()
                if index.may_offload(t) and not arrives and s < self._stages(t)[-1]:
                    self.out[s, t] = self._choice()
        for s in range(index.forward, len(self.ops)):
            for i in self.runs:
                if any(self.wanted[t] >= s for t in self.ops[i].writes):
                    self.again[s, i] = self._choice()
        for p, choices in enumerate(index.choices):
            for c in range(1, len(choices)):
                self.faster[p, c] = self._choice()

    def _choice(self, low: float = 0.0) -> int:
        return self.var(low=low, high=1.0, whole=True)

    def _makes(self, s: Point, t: Tensor) -> tuple[Terms, float]:
        """Whether stage s makes the tensor: variables, and a constant."""
        if self.decided[t] == s and t not in self.index.inputs:
            return [], 1.0
        run = self.again.get((s, self.maker.get(t, -1)))
        return ([] if run is None else [(run, 1.0)]), 0.0

    def _moves(self) -> None:
        """A tensor in memory was there, was made or has been paged in; a tensor that is paged in has been paged out."""
        for t in self.decided:
            left: Terms = []
            for s in self._stages(t):
                there, back = self.there[s, t], self.back.get((s, t))
                made, constant = self._makes(s - 1, t)
                source = [(v, -f) for v, f in made]
                source += [(self.there[s - 1, t], -1.0)] if (s - 1, t) in self.there else []
                if back is not None:
                    self.row([(back, 1.0), (there, -1.0)], high=0.0)
                    self.row([(self.early[s, t], 1.0), (back, -1.0)], high=0.0)
                    self.row([(back, 1.0), *((v, -f) for v, f in source)], high=1.0 - constant)  # it was away
                    if t not in self.index.inputs:
                        self.row([(back, 1.0), *left], high=0.0)
                if constant == 0.0 and self.low[there] == 0.0:
                    self.row([(there, 1.0), *source, *([] if back is None else [(back, -1.0)])], high=0.0)
                run, _ = self._makes(s, t)
                if run:  # it writes all results of its op anew
                    self.row([(there, 1.0), *run], high=1.0)
                if (s, t) in self.out:
                    self.row([(self.out[s, t], 1.0), (there, -1.0)], high=0.0)
                    left.append((self.out[s, t], -1.0))
            if left:
                self.row([(v, -f) for v, f in left], high=1.0)

    def _reads(self) -> None:
        """The reads of an op are in memory when it runs."""
        for s, op in enumerate(self.ops):
            for t in dict.fromkeys(op.reads):
                if t in self.decided and self.decided[t] < s:
                    self.row(self._source(s, t), low=1.0)
        for (s, i), run in self.again.items():
            for t in dict.fromkeys(self.ops[i].reads):
                if t in self.decided:
                    self.row([*self._source(s, t), (run, -1.0)], low=0.0)

    def _source(self, s: Point, t: Tensor) -> Terms:
        there = self.there.get((s, t))
        return [*self._makes(s, t)[0], *([] if there is None else [(there, 1.0)])]

    def _seconds(self) -> None:
        """The cost: seconds of the stages, and of the copies back that compute waits for."""
        costs, ops, runs = self.index.costs, defaultdict[Point, Terms](list), defaultdict[Point, Terms](list)
        fixed = [choices[0].seconds for choices in self.index.choices]
        for (p, c), variable in self.faster.items():
            choices = self.index.choices[p]
            ops[p].append((variable, (choices[c].seconds - choices[0].seconds) * self.second))
            if c == 1:
                self.row([(self.faster[p, n], 1.0) for n in range(1, len(choices))], high=1.0)
        for (s, i), run in self.again.items():
            choices = self.index.choices[i]
            least, most = choices[-1].seconds * self.second, choices[0].seconds * self.second
            if least == most:
                runs[s].append((run, least))
            else:
                seconds = self.var()
                self.row([(seconds, 1.0), (run, -least)], low=0.0)
                self.row([(seconds, 1.0), (run, -most), *((v, -f) for v, f in ops[i])], low=0.0)
                runs[s].append((seconds, 1.0))
        outs, ins = defaultdict[Point, Terms](list), defaultdict[Point, Terms](list)
        for (s, t), variable in self.out.items():
            seconds_out = (costs.latency + t.nbytes / costs.bandwidth_out) * self.second
            self.cost[variable] += HIDDEN * seconds_out
            outs[s].append((variable, seconds_out))
        for (s, t), variable in self.back.items():
            seconds_in = (costs.latency + t.nbytes / costs.bandwidth_in) * self.second
            self.cost[variable] += (1 + HIDDEN) * seconds_in
            self.cost[self.early[s, t]] -= seconds_in
            ins[s - 1].append((self.early[s, t], seconds_in))
        for s in range(len(self.ops)):
            stage = self.var(cost=1.0)
            terms = [*runs[s], *ops[s]]
            self.row([(stage, 1.0), *((v, -f) for v, f in terms)], low=fixed[s] * self.second)
            for copies in (outs[s], ins[s]):
                if copies:
                    self.row([(stage, 1.0), *((v, -f) for v, f in copies)], low=0.0)

    # ---- live bytes

    def _bytes(self) -> None:
        """Rows for the live bytes at each run."""
        always = sum(aligned(room(self.index.program, t)) for t in self.index.persistent)
        lives = dict(self._fixed_lives())
        for s, op in enumerate(self.ops):
            for i in [i for i in self.runs if (s, i) in self.again]:
                base = always + sum(_size(t) for t, (lo, hi) in lives.items() if lo < s <= hi)
                self._row(base, [*self._held(s, i), *self._workspace(s, i)])
            base = always + sum(_size(t) for t, (lo, hi) in lives.items() if lo <= s <= hi)
            base += aligned(self.index.choices[s][0].algorithm.workspace)
            over = {x for x, q in self.over.items() if q == s}
            base += sum(_size(t) for t in dict.fromkeys(op.tensors) if t in self.decided and t not in over)
            self._row(base, [*self._passing(s), *self._larger(s)])

    def _row(self, base: int, terms: Terms) -> None:
        self.row([*terms, (self.memory, -1.0)], high=-base * self.byte)

    def _fixed_lives(self) -> Iterator[tuple[Tensor, tuple[Point, Point]]]:
        """(tensor that is never away, its first op and its last) by the rules of `complete`, at most."""
        program, end = self.index.program, len(self.ops)
        for t, uses in self.index.uses.items():
            if t not in self.decided:
                comes = t in self.index.inputs
                last = end if t in program.outputs else self.wanted[t] + (t in program.host_resident)
                yield t, (max(0, uses[0] - 1) if comes else uses[0], last)
            elif t in self.index.inputs and uses[0]:
                yield t, (uses[0] - 1, uses[0] - 1)

    def _larger(self, p: Point) -> Terms:
        """The bytes by which op p's workspace exceeds that of its leanest algorithm."""
        choices = self.index.choices[p]
        least = aligned(choices[0].algorithm.workspace)
        return [
            (self.faster[p, c], (aligned(choices[c].algorithm.workspace) - least) * self.byte)
            for c in range(1, len(choices))
        ]

    def _workspace(self, s: Point, i: Point) -> Terms:
        """The workspace of a run again."""
        choices, run = self.index.choices[i], self.again[s, i]
        least = aligned(choices[0].algorithm.workspace) * self.byte
        if len(choices) == 1:
            return [(run, least)]
        nbytes = self.var()
        self.row([(nbytes, 1.0), (run, -least)], low=0.0)
        for c in range(1, len(choices)):
            more = aligned(choices[c].algorithm.workspace) * self.byte
            self.row([(nbytes, 1.0), (run, -more), (self.faster[i, c], -more)], low=-more)
        return [(nbytes, 1.0)]

    def _passing(self, s: Point) -> Terms:
        """The decided tensors that are in memory while op s runs first, and that it does not use."""
        return [
            term
            for t, made in self.decided.items()
            if made < s and t not in self.ops[s].tensors
            for term in self._most(t, self._residence(s, t))
        ]

    def _residence(self, s: Point, t: Tensor) -> list[tuple[Terms, float]]:
        """Why the tensor is in memory through stage s, its runs again apart: it is kept, leaves, or comes back."""
        result: list[tuple[Terms, float]] = []
        if (s + 1, t) in self.there:
            result.append((self._remains(s, t), 0.0))
        if (s, t) in self.out:
            result.append(([(self.out[s, t], 1.0)], 0.0))
        if (s + 1, t) in self.early:
            result.append(([(self.early[s + 1, t], 1.0)], 0.0))
        return result

    def _remains(self, s: Point, t: Tensor) -> Terms:
        """Whether the next stage finds it in memory without a copy back."""
        back = self.back.get((s + 1, t))
        return [(self.there[s + 1, t], 1.0), *([] if back is None else [(back, -1.0)])]

    def _held(self, s: Point, i: Point) -> Terms:
        """The decided tensors that are in memory while op i runs again in stage s."""
        terms: Terms = []
        for t, made in self.decided.items():
            if made >= s or self.over.get(t) == i:
                continue
            maker, there = self.maker.get(t, -1), self.there.get((s, t))
            why: list[tuple[Terms, float]] = []
            later = [self.again[s, j] for j in self.readers[t] if j >= i and (s, j) in self.again]
            if i >= maker:  # later readers in the stage have it from here on
                why += [([(run, 1.0)], 0.0) for run in later]
                why += [([(self.again[s, i], 1.0)], 0.0)] if i == maker else []
                why += [([], 1.0)] if t in self.ops[s].reads else []
                why += self._residence(s, t)
            else:
                if there is not None:
                    why += [([(there, 1.0), (run, 1.0)], -1.0) for run in later]
                    why += [([(there, 1.0)], 0.0)] if t in self.ops[s].reads else []
                    if (s + 1, t) in self.there:
                        why += [([(there, 1.0), *self._remains(s, t)], -1.0)]
                why += [w for w in self._residence(s, t) if (s + 1, t) not in self.there or w[0] != self._remains(s, t)]
            terms += self._most(t, why)
        return terms

    def _most(self, t: Tensor, why: list[tuple[Terms, float]]) -> Terms:
        """A variable for the tensor's bytes, which each of the reasons may ask for."""
        if not why:
            return []
        live = self.var(high=1.0)
        for terms, constant in why:
            self.row([(live, 1.0), *((v, -f) for v, f in terms)], low=constant)
        return [(live, _size(t) * self.byte)]


def _size(t: Tensor) -> int:
    return aligned(t.nbytes)
