"""A plan as a file: a policy's decisions for one net on one device, to be read, compared as text, and used elsewhere.

The file is JSON with one fact a line, so that `diff` shows how two plans differ. A point has the name of the execution
that follows it. "relu1.forward" is the point before that execution, "relu1.forward#1" the one before its second run,
and "end" the end of the step. Besides the decisions, the file holds the net's tensors and a fingerprint of every op, so
that a plan is never applied to another net.

A file may be given in place of a policy's name (`--policy vgg16.plan`). Its plan is then placed and proved anew, under
the budget of that run.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from minidnn.costs import Costs, geometry
from minidnn.errors import BadInput, near
from minidnn.files import regular
from minidnn.files.replace import replacing
from minidnn.memory.parts import parted
from minidnn.memory.plan import OffloadInterval, Plan, Point, Policy, Sharing, Slot
from minidnn.memory.policies import plan_version_1
from minidnn.memory.schedule import Arrangement
from minidnn.program import Algorithm, Op, Program, SplitRegion, Tensor
from minidnn.spoken import option

SUFFIX = ".plan"
VERSION = 2
POINTS = ("offload_at", "free_at", "prefetch_at", "needed_at")
WORKSPACE = "workspace of "  # before an op's name, in "share"
AT = " at "  # between a tensor's name and an execution, in "share": the residency that it begins
END = "end"
NAMED = 4  # differences that a refusal names at most


class PlanError(BadInput, ValueError):
    """A plan file cannot be read, or its plan is of another net or device; the message says what differs."""


# ---- writing


def save(path: Path, arrangement: Arrangement, costs: Costs) -> None:
    """Write the plans of an arrangement. An older file of that name is replaced whole or kept. Raises OSError."""
    programs = {name: described(s.program, s.plan) for name, s in arrangement.schedules.items()}
    head = {"minidnn_plan": VERSION, "policy": arrangement.policy, "device": costs.device}
    with replacing(path) as file:
        file.write("\n".join(_lines({**head, "programs": programs})) + "\n")


def described(program: Program, plan: Plan) -> dict[str, Any]:
    """The part of the file for one program, as JSON values."""
    runs: Counter[Op] = Counter()
    points: list[str] = []
    for op in plan.order:
        points.append(op.name + (f"#{runs[op]}" if runs[op] else ""))
        runs[op] += 1
    points.append(END)
    parts = [{"count": region.count, "ops": list(region.ops)} for region in program.parts]
    return {
        "tensors": {t.name: _shape(t) for t in program.tensors},
        "ops": {op.name: fingerprint(op) for op in program.ops},
        "order": [op.name for op in plan.order],
        "algorithm": {op.name: [a.name, a.workspace] for op, a in plan.algorithm.items()},
        "offloads": [_interval(offload, points) for offload in plan.offloads],
        "share": {_holder(key, points): _target(value) for key, value in plan.share.items()},
        "hold": sorted(t.name for t in plan.hold),
        "host_resident": sorted(t.name for t in {*program.host_resident, *plan.host_resident}),
        "host_ops": sorted(op.name for op in plan.host_ops),
        "asap": plan.asap,
        **({"parts": parts} if parts else {}),
    }


def _shape(t: Tensor) -> str:
    """As in "float32 4x3x8x8"."""
    return f"{t.dtype} {'x'.join(map(str, t.shape))}"


def fingerprint(op: Op, version: int = VERSION) -> str:
    """Twelve hex digits of an op's kind and constants, and of its tensors by name and shape.

    version: of the file; version 1 has other words for some kinds"""
    text = f"{geometry(op)} | {' '.join(t.name for t in (*op.reads, *op.writes))}"
    return hashlib.sha256((plan_version_1.of_then(text) if version == 1 else text).encode()).hexdigest()[:12]


def _interval(offload: OffloadInterval, points: Sequence[str]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for f in fields(OffloadInterval):
        value = getattr(offload, f.name)
        if f.name == "tensor":
            result[f.name] = value.name
        elif f.name in POINTS:
            result[f.name] = None if value is None else points[value]
        elif value != f.default:
            result[f.name] = _target(value) if isinstance(value, Slot) else value
    return result


def _holder(key: Sharing, points: Sequence[str]) -> str:
    """The key of an entry of `share`."""
    if isinstance(key, tuple):
        return key[0].name + AT + points[key[1]]
    return WORKSPACE + key.name if isinstance(key, Op) else key.name


def _target(value: Tensor | Slot) -> Any:
    return {"slot": value.name, "nbytes": value.nbytes} if isinstance(value, Slot) else value.name


def _lines(value: Any, indent: int = 0) -> Iterator[str]:
    """Lines of JSON with one entry a line. An algorithm's pair, an offload interval and a slot take one line each."""
    pad = " " * indent
    if not isinstance(value, (dict, list)) or not value or not _nested(value):
        yield pad + json.dumps(value)
        return
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    yield pad + opening
    items = list(value.items()) if isinstance(value, dict) else [(None, v) for v in value]
    for k, (key, item) in enumerate(items):
        inner = list(_lines(item, indent + 1))
        if key is not None:
            inner[0] = f"{pad} {json.dumps(key)}: {inner[0].lstrip()}"
        inner[-1] += "," if k + 1 < len(items) else ""
        yield from inner
    yield pad + closing


def _nested(value: dict[str, Any] | list[Any]) -> bool:
    """Whether the value takes a line per entry: all do but an algorithm's pair, an offload interval and a slot."""
    small = isinstance(value, dict) and (value.keys() >= {"tensor", *POINTS} or value.keys() == {"slot", "nbytes"})
    pair = isinstance(value, list) and len(value) == 2 and isinstance(value[1], int)
    return not small and not pair


# ---- reading


@dataclass(frozen=True)
class _SplitRegion:
    """Ops that run in parts, as a file says it."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    count: int
    ops: list[str]


@dataclass(frozen=True)
class _Described:
    """One program's part of a file, with the types that it must have."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  (read by pydantic, not a field)

    tensors: dict[str, str]
    ops: dict[str, str]
    order: list[str]
    algorithm: dict[str, tuple[str, int]]
    offloads: list[dict[str, Any]]
    share: dict[str, Any]
    hold: list[str]
    host_resident: list[str] = field(default_factory=list)
    host_ops: list[str] = field(default_factory=list)
    asap: bool = False
    parts: list[_SplitRegion] = field(default_factory=list)

    def of(self, program: Program) -> Program:
        """The program that the plan is of: the net's, in the plan's parts, which it may have already. Raises ValueError
        if it has none such."""
        parts = tuple(SplitRegion(tuple(region.ops), region.count) for region in self.parts)
        return program if program.parts == parts else parted(program, parts)


@dataclass(frozen=True)
class _File:
    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    minidnn_plan: int
    policy: str
    device: str
    programs: dict[str, _Described]


def load(path: str | Path) -> Policy:
    """The policy that decides as the file says, whatever the budget.

    Raises PlanError if the file is no plan. The policy raises it for a program or costs of another net or device.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        content = json.loads(regular.content(path).decode())
        old = isinstance(content, dict) and content.get("minidnn_plan") == 1
        file: _File = TypeAdapter(_File).validate_python(plan_version_1.of_today(content) if old else content)
    except json.JSONDecodeError as error:
        raise PlanError(f"{path}:{error.lineno}:{error.colno}: not a plan: {error.msg}") from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise PlanError(f"{path}: not a plan: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise PlanError(f"{path}: not a plan: {where}: {first['msg']}") from None
    if file.minidnn_plan != VERSION:
        raise PlanError(f"{path}: a plan of version {file.minidnn_plan}; this minidnn reads versions 1 to {VERSION}")

    def decide(program: Program, costs: Costs, budget: int) -> Plan:
        if program.name not in file.programs:
            there = ", ".join(file.programs)
            raise PlanError(
                f"{path} plans {there}, not {program.name}: save it with the file that is run (a solver file has more "
                "programs than a model file)"
            )
        described = file.programs[program.name]
        try:
            program = described.of(program)
        except ValueError as error:
            raise PlanError(f"{path} is a plan of another net: {error}") from None
        if differences := list(_differences(described, program, 1 if old else VERSION)):
            more = f", and {len(differences) - NAMED} more" if len(differences) > NAMED else ""
            raise PlanError(f"{path} is a plan of another net: {'; '.join(differences[:NAMED])}{more}")
        return _Reader(str(path), file.device, described, program, costs).plan()

    return decide


def _differences(described: _Described, program: Program, version: int) -> Iterator[str]:
    """The differences between the plan's net and this one, in words, the most telling first. version: of the file"""
    mine = {t.name: _shape(t) for t in program.tensors}
    for name, planned in described.tensors.items():
        if mine.get(name, planned) != planned:
            yield f"{name} is {planned} in the plan and {mine[name]} in the net"
    ops = {op.name: fingerprint(op, version) for op in program.ops}
    if fused := next((n for n in (*ops, *described.ops) if "+" in n and (n in ops) != (n in described.ops)), None):
        fuses, other = ("this device", "the plan's") if fused in ops else ("the plan's device", "this one")
        remedy = f"plan for the same device, or {option('no_fusion', True)}"
        yield f"{fuses} makes one op {fused} of several, {other} does not ({remedy})"
    yield from (f"the net has no {name}" for name in described.ops if name not in ops)
    yield from (f"the plan has no {name}" for name in ops if name not in described.ops)
    for name, result in ops.items():
        if described.ops.get(name, result) != result:
            yield f"{name} has other constants or tensors"


def plan_of(values: dict[str, Any], program: Program, costs: Costs) -> Plan:
    """The plan that `described` described. Raises ValueError if it is of another program or device, or no plan."""
    from pydantic import TypeAdapter

    described: _Described = TypeAdapter(_Described).validate_python(values)
    return _Reader("a kept plan", costs.device, described, described.of(program), costs).plan()


class _Reader:
    """Turns a file's names back into values. An error raises PlanError, which names the wrong entry."""

    def __init__(self, path: str, device: str, described: _Described, program: Program, costs: Costs) -> None:
        self.path, self.device, self.described, self.costs = path, device, described, costs
        self.program = program
        self.ops = {op.name: op for op in program.ops}
        self.tensors = {t.name: t for t in (*program.tensors, *program.host_resident)}
        runs: Counter[str] = Counter()
        self.points: dict[str, Point] = {}
        for p, name in enumerate(described.order):
            self.points[name + (f"#{runs[name]}" if runs[name] else "")] = p
            runs[name] += 1
        self.points[END] = len(described.order)

    def plan(self) -> Plan:
        result = self.described
        return Plan(
            order=tuple(self._named(self.ops, name, "op") for name in result.order),
            offloads=tuple(self._interval(values) for values in result.offloads),
            algorithm={self._named(self.ops, op, "op"): self._algorithm(op, *a) for op, a in result.algorithm.items()},
            share=dict(self._share(key, value) for key, value in result.share.items()),
            hold=frozenset(self._named(self.tensors, name, "tensor") for name in result.hold),
            host_resident=frozenset(self._named(self.tensors, name, "tensor") for name in result.host_resident),
            host_ops=frozenset(self._named(self.ops, name, "op") for name in result.host_ops),
            asap=result.asap,
            program=self.program if self.program.parts else None,
        )

    def _named(self, table: Mapping[str, Any], name: Any, what: str) -> Any:
        if not isinstance(name, str) or name not in table:
            raise PlanError(f"{self.path}: there is no {what} {name!r}{near(str(name), table)}")
        return table[name]

    def _interval(self, values: dict[str, Any]) -> OffloadInterval:
        known = {f.name for f in fields(OffloadInterval)}
        if missing := {"tensor", *POINTS} - values.keys() or values.keys() - known:
            raise PlanError(
                f"{self.path}: an offload interval {values} lacks a field, or has an unknown one: "
                f"{', '.join(sorted(missing))}"
            )
        points: dict[str, Any] = {
            p: None
            if values[p] is None
            else self._named(self.points, values[p], f"execution (an offload interval's {p})")
            for p in POINTS
        }
        rest = {name: value for name, value in values.items() if name not in ("tensor", *POINTS)}
        if not isinstance(rest.get("on_demand", False), bool):
            raise PlanError(f"{self.path}: an offload interval {values}: on_demand is true, or left out")
        if "into" in rest:
            rest["into"] = self._slot(f"an offload interval of {values['tensor']}", rest["into"])
        return OffloadInterval(self._named(self.tensors, values["tensor"], "tensor"), **points, **rest)

    def _algorithm(self, op: str, name: str, workspace: int) -> Algorithm:
        wanted = Algorithm(name, workspace)
        offered = [c.algorithm for c in self.costs.choices(self._named(self.ops, op, "op"))]
        if wanted not in offered:
            there = ", ".join(f"{a.name} ({a.workspace})" for a in offered)
            raise PlanError(
                f"{self.path}, a plan for {self.device}: {op} takes {name} with {workspace} bytes of workspace, but "
                f"{self.costs.device} offers {there}: plan again for it"
            )
        return wanted

    def _slot(self, who: str, value: Any) -> Slot:
        slot = isinstance(value, dict) and value.keys() == {"slot", "nbytes"} and type(value["nbytes"]) is int
        if not slot or not 0 <= value["nbytes"] < 2**63:
            raise PlanError(f"{self.path}: {who} shares {value}; expected a tensor, or a slot with its nbytes")
        return Slot(str(value["slot"]), value["nbytes"])

    def _share(self, key: str, value: Any) -> tuple[Sharing, Tensor | Slot]:
        holder: Sharing
        name, at, point = key.rpartition(AT)
        if key.startswith(WORKSPACE):
            holder = self._named(self.ops, key.removeprefix(WORKSPACE), "op")
        elif at and key not in self.tensors:
            holder = self._named(self.tensors, name, "tensor"), self._named(self.points, point, "execution")
        else:
            holder = self._named(self.tensors, key, "tensor")
        if isinstance(value, dict):
            return holder, self._slot(key, value)
        return holder, self._named(self.tensors, value, "tensor")
