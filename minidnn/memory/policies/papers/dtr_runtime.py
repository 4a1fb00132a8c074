"""DTR's runtime, simulated: which ops run again and which tensors are evicted, while a program runs within a limit.

An evicted tensor belongs to a class of its evicted neighbours: those that its op reads, and those made from it. A class
knows the seconds of its ops together. Classes join when a tensor between them is evicted. When a tensor is made again,
its seconds leave its class, which is not split. So a class only approximates the evicted neighbourhood, as in the
authors' simulator.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping

from minidnn.costs import Costs
from minidnn.memory.plan import Point
from minidnn.memory.policies.shared.orders import last_uses, makers
from minidnn.memory.schedule import aligned, room
from minidnn.program import Algorithm, Op, Program, Tensor

LONGEST = 4  # executions at most, in multiples of the program's: beyond, the runtime thrashes
LOOKED_AT = 256  # tensors of the pool that are looked at for one eviction
LEAST = 1e-9  # seconds since a use, at least


class Full(Exception):
    """The runtime has no tensor left to evict, or runs almost nothing but repetitions."""


class Runtime:
    """Runs one program within limits of bytes."""

    def __init__(self, program: Program, costs: Costs, algorithm: Mapping[Op, Algorithm]) -> None:
        self.program, self.costs = program, costs
        self.make = makers(program, costs)
        self.last = last_uses(program.ops)
        self.seconds = {op: costs.seconds(op, algorithm[op]) for op in program.ops}
        self.workspace = {op: aligned(algorithm[op].workspace) for op in program.ops}
        self.size = {t: aligned(room(program, t)) for t in program.tensors}
        # Of what lives on the host, the device has what ops use: another program may use the rest.
        self.fixed = self.size.keys() & {*program.persistent, *program.inputs, *program.host_resident}
        self.ends = program.fixed
        around: dict[Tensor, dict[Tensor, None]] = defaultdict(dict)
        for t, op in self.make.items():
            for parent in op.reads:
                if parent in self.make:
                    around[t][parent] = None
                    around[parent][t] = None
        self.around = {t: tuple(near) for t, near in around.items()}

    def order(self, limit: int) -> list[Op]:
        """The executions of a step within `limit` bytes. Raises Full."""
        run = _Step(self, limit)
        for p, op in enumerate(self.program.ops):
            run.call(op, p)
        return run.order


class _Step:
    """One step of the runtime. pool: the evictable tensors on the device, and when each was used last"""

    def __init__(self, runtime: Runtime, limit: int) -> None:
        self.of, self.limit = runtime, limit
        self.order: list[Op] = []
        self.clock = 0.0
        self.used = sum(runtime.size[t] for t in runtime.fixed)
        self.held: dict[Tensor, int] = {}  # bytes of each tensor that is there, without fixed ones
        self.pool: dict[Tensor, float] = {}
        self.locks: dict[Tensor, int] = defaultdict(int)
        self.classes = _Classes()
        self.random = random.Random(0)

    def call(self, op: Op, p: Point) -> None:
        """Run the program's op at p, and before it all that brings its reads back."""
        self._lock(op)
        stack = [op]
        while stack:
            now = stack[-1]
            missing = next((t for t in now.reads if t in self.of.make and t not in self.held), None)
            if missing is not None:
                stack.append(self.of.make[missing])
                self._lock(stack[-1])
                continue
            stack.pop()
            self._execute(now, p, again=bool(stack) or now is not op)
            for t in now.reads:
                self.locks[t] -= 1
        for t in op.tensors:
            if self.of.last[t] == p and t in self.held and t not in self.of.ends:
                self._evict(t)

    def _lock(self, op: Op) -> None:
        for t in op.reads:
            self.locks[t] += 1

    def _execute(self, op: Op, p: Point, again: bool) -> None:
        of = self.of
        over = self._overwritten(op, p, again)
        new = [t for t in op.writes if t not in self.held and t not in of.fixed]
        need = of.workspace[op] + sum(of.size[t] for t in new if t not in over)
        self._free(need)
        if len(self.order) >= LONGEST * len(of.program.ops):
            raise Full
        self.order.append(op)
        self.clock += of.seconds[op]
        for t in new:
            if t in over:
                self.held[t] = self.held[over[t]]
                self.used += self.held[t]  # those of the tensor below, which goes
                self._evict(over[t])
            else:
                self.held[t] = of.size[t]
                self.used += of.size[t]
            if t in of.make:
                self.classes.leave(t, of.seconds[op])
                self.pool[t] = self.clock
        for t in op.tensors:
            if t in self.pool:
                self.pool[t] = self.clock

    def _overwritten(self, op: Op, p: Point, again: bool) -> dict[Tensor, Tensor]:
        """{tensor that the op writes: the tensor that it writes over, for which neither the program nor a run waits}"""
        result: dict[Tensor, Tensor] = {}
        for read, write in op.inplace:
            done = self.of.last[read] < p or (self.of.last[read] == p and not again)
            free = done and self.locks[read] == 1 and read not in self.of.ends and write not in self.of.ends
            fits = read in self.held and write not in self.held and self.held[read] >= self.of.size[write]
            if free and fits and write not in result and read not in result.values():
                result[write] = read
        return result

    def _free(self, need: int) -> None:
        """Evict tensors until so many bytes are free. Raises Full."""
        while self.used + need > self.limit:
            able = [t for t in self.pool if not self.locks[t] and self.held[t]]
            if not able:
                raise Full
            if len(able) > LOOKED_AT:
                able = self.random.sample(able, LOOKED_AT)
            self._evict(min(able, key=self._h))

    def _h(self, t: Tensor) -> float:
        """Seconds to bring it and its evicted neighbours back, by its bytes and by the time since its last use."""
        near = (n for n in self.of.around.get(t, ()) if n not in self.held)
        cost = self.of.seconds[self.of.make[t]] + self.classes.seconds(near)
        return cost / (self.held[t] * max(self.clock - self.pool[t], LEAST))

    def _evict(self, t: Tensor) -> None:
        """Free the tensor's bytes. A tensor that an op can make again joins the class of its evicted neighbours."""
        self.used -= self.held.pop(t)
        if t in self.pool:
            del self.pool[t]
            near = [n for n in self.of.around.get(t, ()) if n not in self.held]
            self.classes.join(t, self.of.seconds[self.of.make[t]], near)


class _Classes:
    """Classes of evicted tensors, with the seconds of each: a union-find."""

    def __init__(self) -> None:
        self.root: dict[Tensor, int] = {}
        self.parent: list[int] = []
        self.cost: list[float] = []

    def _find(self, i: int) -> int:
        while self.parent[i] != i:
            self.parent[i] = i = self.parent[self.parent[i]]
        return i

    def join(self, t: Tensor, seconds: float, near: Iterable[Tensor]) -> None:
        """A tensor is evicted beside these evicted ones."""
        own = self.root[t] = len(self.parent)
        self.parent.append(own)
        self.cost.append(seconds)
        for n in near:
            other = self._find(self.root[n]) if n in self.root else own
            if other != own:
                self.parent[other] = own
                self.cost[own] += self.cost[other]

    def leave(self, t: Tensor, seconds: float) -> None:
        """A tensor is on the device again."""
        if t in self.root:
            self.cost[self._find(self.root.pop(t))] -= seconds

    def seconds(self, tensors: Iterable[Tensor]) -> float:
        """The sum over the classes of these tensors, each counted once."""
        return sum(self.cost[i] for i in {self._find(self.root[t]) for t in tensors if t in self.root})
