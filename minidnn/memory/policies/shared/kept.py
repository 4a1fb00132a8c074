"""Plans of long programs are kept in the user's cache, since to find them takes seconds: a second start plans nothing.

A file's name is a digest of all that the plan depends on: the program, the costs, the budget, and the sources of
planning. So a file is never stale. A kept plan is placed and proved anew, like any other. The oldest files go.

A kept plan that cannot be used is made anew, whatever the reason. `load` finds no plan in a file that it cannot read;
`replanned` plans again after an error of lowering, placement or proof. Both say so on stderr.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import zlib
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import cache as remember
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from minidnn import memory
from minidnn.costs import Costs, geometry
from minidnn.errors import BadInput
from minidnn.files import cache
from minidnn.memory.parts.regions import candidates
from minidnn.memory.plan import Plan, complete
from minidnn.memory.policies import plan_file
from minidnn.program import Program, Tensor
from minidnn.version import __version__
from minidnn.visible import say_once

KEEPS = True  # False: no plan is kept, and none that was kept is used, as measurements of planning want it
LEAST = 200  # ops; shorter programs are planned anew
MOST = 64  # files


def place(program: Program, costs: Costs, budget: int, parts: bool = True, effort: float | None = None) -> Path | None:
    """Where the plan for this budget is kept; None for a short program that is not long in parts either.

    effort: the seconds for which a quicker one was looked for; then it is kept, however short the program is"""
    if not KEEPS:
        return None
    parts = parts and next(candidates(program), None) is not None
    if len(program.ops) < LEAST and not parts and effort is None:
        return None
    digest = hashlib.sha256(_sources())
    for fact in (
        __version__,
        program.name,
        budget,
        parts,
        costs.memory,
        costs.host,
        costs.latency,
        costs.drag,
        costs.doubt,
        costs.duplex,
        costs.staging,
        costs.placement,
        costs.net_drag,
    ):
        digest.update(f"{fact!r}\n".encode())
    if effort is not None:
        digest.update(f"effort {effort!r}\n".encode())
    digest.update(f"{costs.bandwidth_out!r} {costs.bandwidth_in!r}\n".encode())
    for tensors in (program.inputs, program.persistent, program.outputs, program.host_resident, program.held):
        digest.update(f"{[_named(t) for t in tensors]}\n".encode())
    for op in program.ops:
        choices = [(c.algorithm.name, c.algorithm.workspace, c.seconds, c.drag) for c in costs.choices(op)]
        names = [_named(t) for t in (*op.reads, *op.writes)], [(a.name, b.name) for a, b in op.inplace]
        digest.update(f"{op.name} {op.during} {geometry(op)} {names} {choices}\n".encode())
    return cache.home() / "plans" / f"{digest.hexdigest()[:32]}.json.z"


P = ParamSpec("P")
R = TypeVar("R")
_used: ContextVar[list[Path] | None] = ContextVar("_used", default=None)  # files used under `replanned`


def load(path: Path, program: Program, costs: Costs) -> Plan | None:
    """The plan that is kept there; None if there is none that can be used."""
    content = cache.kept(path)
    if content is None:
        return None
    try:
        result = json.loads(zlib.decompress(content))
        plan = replace(plan_file.plan_of(result["plan"], program, costs), bound=result["bound"])
    except Exception as error:  # whatever is wrong with it
        drop([path], error)
        return None
    if (used := _used.get()) is not None:
        used.append(path)
    with contextlib.suppress(OSError):
        path.touch()  # it is in use: others go first
    return plan


def replanned(work: Callable[P, R]) -> Callable[P, R]:
    """The same function, which is called again if it fails with plans that were kept: then these are made anew."""

    @wraps(work)
    def again(*args: P.args, **named: P.kwargs) -> R:
        outer = _used.get()
        used: list[Path] = [] if outer is None else outer
        token = _used.set(used)
        try:
            return work(*args, **named)
        except BadInput:
            raise
        except Exception as error:
            if not used:
                raise
            drop(used, error)
            used.clear()
        finally:
            _used.reset(token)
        return work(*args, **named)

    return again


def drop(files: Sequence[Path], why: Exception) -> None:
    """Remove files whose plans cannot be used, and say so."""
    for path in files:
        text = f"the kept plan {path.name} cannot be used, and is made again: {type(why).__name__}: {why}"
        say_once(f"minidnn: {text}")
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def keep(path: Path, program: Program, costs: Costs, plan: Plan) -> None:
    """Keep the plan. Where the cache cannot be used, say so once on stderr."""
    program = plan.program or program
    result = {"bound": plan.bound, "plan": plan_file.described(program, complete(program, costs, plan))}
    cache.keep(path, zlib.compress(json.dumps(result).encode()), "plans are made again at each start")
    with contextlib.suppress(OSError):
        files = sorted(path.parent.glob("*.json.z"), key=lambda file: file.stat().st_mtime)
        for file in files[:-MOST]:
            file.unlink(missing_ok=True)


def _named(t: Tensor) -> str:
    return f"{t.name} {t.dtype} {t.shape} {t.role.value}"


@remember
def _sources() -> bytes:
    """The text of all that decides a plan."""
    folder = Path(memory.__file__).parent
    files = sorted((*folder.rglob("*.py"), *folder.rglob("*.c")))
    return b"".join(file.read_bytes() for file in files)
