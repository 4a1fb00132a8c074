"""Evaluates decisions in C (native/evaluate.c): the order, live bytes and seconds of the plan that they make.

A gap is the time between two neighbouring uses of a tensor. Before its first use and after its last there is one, too.
Every evaluation is a whole one: 0.1 ms for ResNet-50, 1 to 2 ms for ResNet-1001. Its seconds are the simulator's to the
last bit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from minidnn.memory.joint.index import LONG, Gap, Index, large, repeatable
from minidnn.memory.joint.native import SOURCES
from minidnn.memory.plan import NEAR, OffloadInterval, Plan, Point, Share
from minidnn.memory.schedule import aligned, room
from minidnn.program import Tensor

KEEP, OFFLOAD, RECOMPUTE = range(3)  # of native/evaluate.c, like the next two lines
DONE, OVER, LOST, TOO_LONG, CROWDED = range(5)
INPUT, OUTPUT, HOST_RESIDENT = 1, 2, 4
UNLIMITED = -1
WRITE_BACK = -3  # an offload's end: the place of a host-resident tensor
NEVER = 255  # a hold: the tensor goes once more after each run that wants it
LONGEST = 4  # executions at most, in multiples of the program's

# The struct Frame of native/evaluate.c: the kinds of its fields, in its order. An array's kind is its dtype.
_FRAME: tuple[tuple[type, str], ...] = (
    (int, "ops tensors"),
    (np.int32, "reads_at reads writes_at writes pairs_at pair_read pair_write maker gaps_at"),
    (np.uint8, "flags renews"),
    (np.int64, "size place"),
    (np.float64, "out_seconds in_seconds out_drag in_drag"),
    (np.float64, "net_seconds"),
    (np.int32, "awaits_at awaits"),
    (float, "net_drag out_duplex in_duplex"),
    (np.uint8, "fate pin_from"),
    (np.float64, "seconds"),
    (np.int64, "workspace"),
    (int, "longest most_residencies most_offloads most_idle"),
    (np.int32, "order why"),
    (np.int64, "live"),
    (np.float64, "finish"),
    (np.int32, "residency_tensor residency_lo residency_hi residency_root shares_at shares_read shares_write"),
    (np.int32, "idle_gap idle_lo idle_hi offload_tensor offload_gap offload_from offload_to offload_after needed_at"),
    (np.int32, "offload_at free_at prefetch_at"),
    (np.float64, "offload_end offload_wait prefetch_wait"),
    (int, "executions residencies offloads shares idles worst host"),
    (np.uint8, "travels"),
    (float, "total compute"),
    (np.int32, "gap residency last wrote transient transient_gap stack stack_next stack_why"),
    (np.int32, "pair_from pair_to pair_when by_out by_free by_last next_out next_free next_last heap"),
    (np.uint8, "present coming on_host needs residency_leaves taken"),
    (np.int64, "root_hi"),
    (np.float64, "begin out_start out_stop"),
    (np.int32, "out_queue in_queue"),
    (np.float64, "out_ready in_ready net_start net_stop net_end received touched"),
    (np.int32, "residency_net by_net next_net"),
)
_OFFLOAD = ["offload_tensor", "offload_to", "offload_after", "offload_at", "free_at", "prefetch_at", "needed_at"]
_KIND = {name: kind for kind, names in _FRAME for name in names.split()}
_ARRAYS = [name for name, kind in _KIND.items() if kind not in (int, float)]


class _Frame(ctypes.Structure):
    _fields_ = [
        (name, {int: ctypes.c_int64, float: ctypes.c_double}.get(kind, ctypes.c_void_p))  # type: ignore[misc]
        for name, kind in _KIND.items()
    ]


@dataclass(frozen=True)
class Outcome:
    """The bytes and seconds of some decisions.

    seconds: of the step; infinite if the bytes exceed a limit
    compute: seconds of all executions
    over:    live bytes beyond the limit at execution `worst`, which has most
    crowded: bytes beyond those that the host has room for; at most so many while `over` is not 0
    """

    seconds: float
    compute: float
    over: int
    worst: Point
    crowded: int = 0

    @property
    def within_limits(self) -> bool:
        """Whether both limits are kept."""
        return self.over <= 0 and self.crowded <= 0

    @property
    def beyond(self) -> int:
        """Bytes to be saved next: of the device, then of the host."""
        return self.over if self.over > 0 else self.crowded

    @property
    def excess(self) -> int:
        """Bytes beyond both limits together."""
        return self.over + self.crowded


@dataclass(frozen=True, eq=False)
class Decisions:
    """A copy of an Evaluator's decisions."""

    fate: np.ndarray
    pin_from: np.ndarray
    choice: np.ndarray
    filled: int | None


class Evaluator:
    """Evaluates decisions about one program on one device.

    fate:     uint8 (gaps,): KEEP, OFFLOAD or RECOMPUTE. May be written; so may `pin_from`
    pin_from: uint8 (gaps,): the number of the need from which a tensor that is back early remains
    choice:   int64 (ops,): the number of each op's algorithm in `index.choices`; set by `choose`
    filled:   bytes up to which tensors leave later, and come back earlier, than they must; None: the limit
    may_offload, may_recompute: bool (gaps,): whether OFFLOAD and RECOMPUTE are decisions there
    """

    def __init__(self, index: Index) -> None:
        """Raises NotCompiled without a C compiler."""
        self.index = index
        self.evaluations = 0
        self._host = UNLIMITED if index.host_room is None else max(0, index.host_room)
        self.filled: int | None = None
        self.makers = repeatable(index)
        self._library = SOURCES.load()
        self._library.evaluate.restype = ctypes.c_int64
        self._library.evaluate.argtypes = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
        self.tensors = [t for t in index.program.tensors if t not in index.persistent]
        self.number = {t: i for i, t in enumerate(self.tensors)}
        self.base = sum(aligned(room(index.program, t)) for t in index.persistent)
        self.gaps: list[Gap] = []
        self.arrays: dict[str, np.ndarray] = {}
        self._frame = _Frame(ops=len(index.ops), tensors=len(self.tensors))
        self._program()
        self._decisions()
        self._room()
        for name in _ARRAYS:
            setattr(self._frame, name, self.arrays[name].ctypes.data)

    # ---- arrays

    def _keep(self, name: str, values: Any) -> np.ndarray:
        self.arrays[name] = np.ascontiguousarray(values, _KIND[name])
        return self.arrays[name]

    def _lists(self, name: str, lists: Sequence[Sequence[int]]) -> None:
        """Lists of numbers one behind the other, and where each begins."""
        self._keep(f"{name}s_at", [0, *accumulate(map(len, lists))])
        self._keep(f"{name}s", [i for one in lists for i in one])

    def _program(self) -> None:
        index, number = self.index, self.number
        fixed = index.program.fixed

        def numbers(tensors: Iterable[Tensor]) -> list[int]:
            return [number[t] for t in dict.fromkeys(tensors) if t in number]

        reads = [numbers(op.reads) for op in index.ops]
        writes = [numbers(op.writes) for op in index.ops]
        self._lists("read", reads)
        self._lists("write", writes)
        self._keep("renews", [i in own for own, some in zip(map(set, reads), writes, strict=True) for i in some])
        pairs = [[(a, b) for a, b in op.inplace if a not in fixed and b not in fixed] for op in index.ops]
        self._keep("pairs_at", [0, *accumulate(map(len, pairs))])
        self._keep("pair_read", [number[a] for one in pairs for a, _ in one])
        self._keep("pair_write", [number[b] for one in pairs for _, b in one])
        self._keep("maker", [self.makers.get(t, -1) for t in self.tensors])
        kinds = (
            (INPUT, set(index.inputs)),
            (OUTPUT, set(index.program.outputs)),
            (HOST_RESIDENT, set(index.program.host_resident)),
        )
        self._keep("flags", [sum(flag for flag, of in kinds if t in of) for t in self.tensors])
        self._keep("size", [aligned(t.nbytes) for t in self.tensors])
        self._keep("place", [index.place(t) for t in self.tensors])
        costs = index.costs
        self._keep("out_seconds", [costs.latency + t.nbytes / costs.bandwidth_out for t in self.tensors])
        self._keep("in_seconds", [costs.latency + t.nbytes / costs.bandwidth_in for t in self.tensors])
        self._keep("net_seconds", [s if op.on_net else -1.0 for op, s in zip(index.ops, index.net, strict=True)])
        self._lists("await", self._awaited())
        self._frame.net_drag = index.drag
        self._frame.out_duplex, self._frame.in_duplex = costs.duplex
        end = len(index.ops)
        for t in self.tensors:
            uses = index.uses[t]
            self.gaps += [Gap(t, p, q, p < index.forward <= q) for p, q in zip([-1, *uses], [*uses, end], strict=True)]
        self._keep("gaps_at", [0, *accumulate(len(index.uses[t]) + 1 for t in self.tensors)])

    def _awaited(self) -> list[list[int]]:
        """For each op, the communications that it waits for because of persistent tensors: those that write its reads,
        and those that access its writes."""
        brought: dict[Tensor, int] = {}
        used: dict[Tensor, int] = {}
        result: list[list[int]] = []
        for p, op in enumerate(self.index.ops):
            mine = {brought[t] for t in op.reads if t in brought} | {used[t] for t in op.writes if t in used}
            result.append([] if op.on_net else sorted(mine))
            if op.on_net:
                used |= dict.fromkeys((t for t in op.tensors if t in self.index.persistent), p)
                brought |= dict.fromkeys((t for t in op.writes if t in self.index.persistent), p)
        return result

    def _decisions(self) -> None:
        index = self.index
        decided = {(g.tensor, g.last) for g in index.gaps}
        worth = {g.tensor for g in index.gaps} | large(index)
        parents = {t for m in self.makers.values() for t in index.ops[m].reads}
        outputs, inputs, host_resident = set(index.program.outputs), set(index.inputs), set(index.program.host_resident)
        away = len(index.ops) > LONG
        maker = self.arrays["maker"]
        self.may_offload, self.may_recompute = (np.zeros(len(self.gaps), bool) for _ in range(2))
        fate = np.zeros(len(self.gaps), np.uint8)
        for i, s in enumerate(self.gaps):
            behind = s.use == len(index.ops) and s.last < index.forward and s.tensor in worth and s.tensor in parents
            if s.last < 0:
                fate[i] = OFFLOAD if s.tensor in inputs else KEEP
            elif s.tensor not in outputs and ((s.tensor, s.last) in decided or behind):
                self.may_offload[i] = s.use > s.last + 1 and index.may_offload(s.tensor)
                self.may_recompute[i] = maker[self.number[s.tensor]] >= 0
                if away and s.tensor in host_resident and self.may_offload[i] and s.use - s.last > NEAR:
                    fate[i] = OFFLOAD
        self.fate = self._keep("fate", fate)
        self.pin_from = self._keep("pin_from", np.zeros(len(self.gaps)))
        self.choice = np.zeros(len(index.ops), np.int64)
        self.seconds = self._keep("seconds", np.zeros(len(index.ops)))
        self.drag = [self._keep(name, np.zeros(len(index.ops))) for name in ("out_drag", "in_drag")]
        self.workspace = self._keep("workspace", np.zeros(len(index.ops)))
        for p in range(len(index.ops)):
            self.choose(p, len(index.choices[p]) - 1)

    def _room(self) -> None:
        ops, tensors = len(self.index.ops), len(self.tensors)
        longest = LONGEST * ops + 16
        accesses = LONGEST * (len(self.arrays["reads"]) + len(self.arrays["writes"])) + 16
        f = self._frame
        f.longest, f.most_residencies, f.most_offloads, f.most_idle = longest, accesses, accesses, accesses
        sizes = {"order": longest, "live": longest + 1, "finish": longest, "why": longest, "begin": longest}
        sizes |= dict.fromkeys(("stack", "stack_next", "stack_why"), ops + 1)
        sizes |= dict.fromkeys(("by_out", "by_free", "by_last", "by_net"), longest + 1)
        sizes |= dict.fromkeys(("net_start", "net_stop"), longest) | {"net_end": ops}
        sizes |= dict.fromkeys(("gap", "residency", "last", "wrote", "present", "coming", "on_host", "needs"), tensors)
        sizes |= dict.fromkeys(("travels", "received", "touched"), tensors)
        sizes |= dict.fromkeys(("transient", "transient_gap"), accesses)
        for name in _ARRAYS:
            if name not in self.arrays:
                self._keep(name, np.zeros(sizes.get(name, accesses)))

    # ---- decisions

    def choose(self, op: int, choice: int) -> None:
        """Set an op's algorithm; where it is a part, that of all parts."""
        result = self.index.choices[op][choice]
        drag = self.index.costs.dragged(self.index.ops[op], result)
        for each in self.index.together.get(op, (op,)):
            self.choice[each], self.seconds[each] = choice, result.seconds
            self.workspace[each] = aligned(result.algorithm.workspace)
            for kept, way in zip(self.drag, drag, strict=True):
                kept[each] = way

    def save(self) -> Decisions:
        return Decisions(self.fate.copy(), self.pin_from.copy(), self.choice.copy(), self.filled)

    def restore(self, decisions: Decisions) -> None:
        self.fate[:], self.pin_from[:], self.filled = decisions.fate, decisions.pin_from, decisions.filled
        for op in np.flatnonzero(self.choice != decisions.choice).tolist():
            self.choose(op, int(decisions.choice[op]))

    # ---- answers

    def evaluate(self, limit: int) -> Outcome:
        """The outcome of the present decisions, with at most `limit` live bytes, each tensor's size aligned, and with
        what travels in the room that the host has (`index.host_room`).

        Raises ValueError if they contradict themselves, and TooLong if more runs again than there is room for.
        """
        f = self._frame
        self.evaluations += 1
        filled = limit if self.filled is None else self.filled
        how = self._library.evaluate(ctypes.addressof(f), limit - self.base, filled - self.base, self._host)
        if how == DONE:
            return Outcome(f.total, f.compute, 0, f.worst)
        if how == OVER:
            over = int(self.arrays["live"][f.worst]) - (limit - self.base)
            return Outcome(float("inf"), float("inf"), over, f.worst, self._crowded())
        if how == CROWDED:
            return Outcome(float("inf"), float("inf"), 0, f.worst, self._crowded())
        if how == TOO_LONG:
            raise TooLong
        raise ValueError("an op reads a tensor that is not there")

    def _crowded(self) -> int:
        return 0 if self._host == UNLIMITED else max(0, self._frame.host - self._host)

    def host_left(self) -> int | None:
        """Bytes of the host that the last answer leaves for further tensors that travel; None: any number."""
        return None if self._host == UNLIMITED else self._host - self._frame.host

    def view(self, name: str, count: str) -> np.ndarray:
        """An array of the last answer, as long as `count` says: "executions", "offloads" ..."""
        return self.arrays[name][: getattr(self._frame, count)]

    def plan(self) -> Plan:
        """The plan of the last `evaluate`, whose outcome must have kept its limit."""
        ops, tensors = self.index.ops, self.tensors
        order = tuple(ops[i] for i in self.view("order", "executions").tolist())
        columns = [self.view(name, "offloads").tolist() for name in _OFFLOAD]
        offloads = []
        for tensor, to, after, out, free, back, use in zip(*columns, strict=True):
            if to >= 0:
                left = None if after < 0 else free
                offloads.append(OffloadInterval(tensors[tensor], None if out < 0 else out, left, back, use))
            elif to == WRITE_BACK:
                offloads.append(OffloadInterval(tensors[tensor], out, free, None, None))
        share: Share = {}
        columns = [self.view(f"shares_{name}", "shares").tolist() for name in ("at", "read", "write")]
        for at, read, write in zip(*columns, strict=True):
            share[tensors[write], at] = tensors[read]
        algorithm = {op: self.index.choices[p][self.choice[p]].algorithm for p, op in enumerate(ops)}
        return Plan(order, tuple(offloads), algorithm, share)


class TooLong(Exception):
    """Far more ops run again than the program has."""
