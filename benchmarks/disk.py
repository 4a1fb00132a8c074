"""A net whose step does not fit the memory that it may take trains through a disk, on this CPU.

    python -m benchmarks.disk --disk /scratch                    all: some ten minutes, 13 GiB of the disk
    python -m benchmarks.disk --disk /scratch --batch 16 --budget 320MiB --ring 100MiB --limit 1GiB    in small

Five parts, each in a process of its own:

- `train` trains some iterations, runs the net forward, saves a snapshot, and begins again from it. A thread reads the
  process's resident bytes every millisecond, phase by phase; the most of all must stay within the limit.
- `foresee` measures each op of the plan alone, at its size and with its algorithm, the copies, and the disk. The
  simulator makes the seconds of a step of that. Nothing is measured within a step.
- `memory` trains the same net in memory (liveness, the same algorithms) where the machine has room, and else at a
  smaller batch through both. The weights must have the same bytes.
- `full` starts on a full disk, which is refused; then a write within an iteration finds the disk full.
- `failing` lets a read within an iteration fail. These two use a small net. Both end with a snapshot; the run that goes
  on from it must end with the bytes of one that was never stopped.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it can also be run as a file

from benchmarks import machine
from minidnn import sizes
from minidnn.api.plan import plan
from minidnn.costs import Choice, Disk, Measurements, key, measured
from minidnn.measuring.bench import each
from minidnn.measuring.disk import disk
from minidnn.measuring.link import link
from minidnn.measuring.load import Load
from minidnn.memory.execution.disk import DiskFailed, NoDisk
from minidnn.memory.execution.host import free_memory, resident_memory
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.schedule import Compute
from minidnn.training.events import Saved
from minidnn.training.solver import Solver
from minidnn.zoo import load

SMALL = 8  # the batch at which both ways fit anywhere
CLOSE = 0.15  # how near the foreseen seconds should be, as a part of the measured ones
FIELDS = dict(base_lr=0.01, momentum=0.9, weight_decay=5e-4, lr_policy="fixed", seed=1, device="cpu", workers=0)
Answer = dict[str, Any]


class Watch:
    """Reads this process's resident bytes on a thread, and keeps the most of each phase."""

    def __init__(self) -> None:
        self.phase, self.most = "start", {"start": 0}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._end.wait(0.001):
            self._note()

    def _note(self) -> None:
        self.most[self.phase] = max(self.most[self.phase], resident_memory())

    def enter(self, phase: str) -> None:
        self._note()
        self.most[phase] = 0
        self.phase = phase

    def close(self) -> None:
        self._note()
        self._end.set()
        self._thread.join()


def opened(args: argparse.Namespace, batch: int | None = None, **more: Any) -> Solver:
    given = dict(policy=args.policy, budget=args.budget, host_ring=args.ring, disk=args.disk)
    given |= dict(max_iter=args.iterations, snapshot_prefix="net") | FIELDS
    return Solver(load(args.net), batch=batch or args.batch, **given | more)  # type: ignore[arg-type]


def digest(solver: Solver) -> str:
    """Of all values that live from step to step."""
    found = hashlib.sha256()
    for name, array in sorted(solver.values().items()):
        found.update(name.encode() + array.tobytes())
    return found.hexdigest()


# ---- the parts


def train(args: argparse.Namespace) -> Answer:
    watch, before = Watch(), Load.now()
    seconds, digests = [], []
    watch.enter("load")
    with opened(args, ram=args.limit) as solver:
        a, ram = solver.arrangement, solver.session.ram
        for k in range(args.iterations):
            watch.enter(f"iteration {k}")
            seconds.append(solver.step().seconds)
            digests.append(digest(solver))
        watch.enter("forward")
        solver.session.step("TEST")
        watch.enter("save")
        saved = solver.save().path
    del solver  # its parameters could still be read
    watch.enter("resume")
    with opened(args, ram=args.limit, resume=saved, max_iter=args.iterations + 1) as solver:
        solver.step()
    watch.close()
    return {
        "seconds": seconds, "digests": digests, "phases": watch.most, "planned_bytes": ram.plan,
        "said_bytes": ram.total,
        "peak_bytes": a.arena, "pinned_bytes": a.host, "pageable_bytes": a.store, "undo_bytes": a.undo,
        "on_disk_bytes": a.on_disk, "most_resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "others": before.others_until(Load.now()),
    }  # fmt: skip


def foresee(args: argparse.Namespace) -> Answer:
    before = Load.now()
    with opened(args) as solver:
        device, schedule, staging = (
            solver.session.device,
            solver.arrangement.schedules["TRAIN"],
            solver.session.costs.staging,
        )
    assert staging is not None and staging.disk is not None
    chosen = {x.op: x.algorithm for x in schedule.instructions if isinstance(x, Compute)}
    wanted = {key(op, algorithm): (op, algorithm) for op, algorithm in chosen.items()}
    copies, speed = link(device), disk(args.disk)
    known = Measurements(device.name, Path("costs.json"), copies.out, copies.back, copies.latency, copies.beside())
    known.seconds |= {name: float(seconds) for name, seconds in each(device, wanted)}  # type: ignore[arg-type]
    staging = replace(staging, disk=Disk(None, speed.write, speed.read))
    offered = replace(measured(device, known), staging=staging)
    costs = replace(offered, choices=lambda op: (Choice(chosen[op], known.seconds[key(op, chosen[op])]),))
    trace = simulate(replace(schedule, staging=staging), costs)
    busy: dict[str, float] = {}
    for span in trace.spans:
        busy[span.stream] = busy.get(span.stream, 0.0) + span.end - span.start
    return {
        "seconds": trace.seconds, "busy_seconds": busy, "stall_seconds": trace.stall_seconds, "ops": len(wanted),
        "write_bandwidth": speed.write, "read_bandwidth": speed.read, "direct": speed.direct,
        "others": before.others_until(Load.now()),
    }  # fmt: skip


def memory(args: argparse.Namespace) -> Answer:
    """The digests after each of two iterations, in memory and through the disk."""
    algorithms = args.policy.rpartition(":")[2]
    inside = dict(policy=f"liveness:{algorithms}", budget=None, host_ring=None, disk=None)
    whole = args.needs < 0.8 * free_memory()
    batch, steps = (args.batch, args.iterations) if whole else (SMALL, 2)
    found: dict[str, list[str]] = {}
    for way in ("memory",) if whole else ("memory", "disk"):
        more = inside if way == "memory" else dict(budget=None, host_ring=None)
        with opened(args, batch, **more) as solver:
            found[way] = [(solver.step(), digest(solver))[1] for _ in range(steps)]
            if way == "disk":
                assert solver.arrangement.disk
    return {"batch": batch, "iterations": steps, **found}


def small(folder: Path, **more: Any) -> Solver:
    """A small net whose maps go through the disk, with a snapshot at the end alone."""
    given = dict(policy="vdnn_all:m", host_ring="512KiB", max_iter=6, batch=128, disk=folder, test_interval=0)
    return Solver("digits_solver", **given | dict(seed=1) | more)  # type: ignore[arg-type]


def interrupted(name: str, number: int, folder: Path) -> Answer:
    """A run in whose third iteration call `name` fails, and the run that goes on from its snapshot."""
    with small(folder, snapshot_prefix="whole") as solver:
        want = solver.solve()
        want_bytes = Path("whole_iter_6.safetensors").read_bytes()
    each_step, real, left = 2, getattr(os, name), [5]
    assert want.iteration == 6

    def fails(*given: Any) -> Any:
        left[0] -= 1
        if not left[0]:
            raise OSError(number, os.strerror(number))
        return real(*given)

    saved, why = None, ""
    with small(folder, snapshot_prefix="stopped") as solver:
        assert sum(map(len, (s.disk_offset for s in solver.arrangement.schedules.values()))) == each_step
        setattr(os, name, fails)
        try:
            for event in solver.run():
                saved = event if isinstance(event, Saved) else saved
        except DiskFailed as error:
            why = str(error)
        finally:
            setattr(os, name, real)
    with small(folder, snapshot_prefix="stopped", resume="latest") as solver:
        solver.solve()
    same = Path("stopped_iter_6.safetensors").read_bytes() == want_bytes
    return {"why": why, "snapshot": saved and saved.iteration, "same_bytes": same}


def full(args: argparse.Namespace) -> Answer:
    """A disk of 256 KiB; then a write that finds a disk full, as where a file system has promised what it has not."""
    refused = ""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    mounted, folder = False, Path("small").absolute()
    folder.mkdir()
    if os.geteuid() == 0:
        command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    if not mounted:
        resource.setrlimit(resource.RLIMIT_FSIZE, (256 * 1024, limit[1]))
    try:
        with small(folder, snapshot_prefix="never"):
            pass
    except NoDisk as error:
        refused = str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)
    return {"refused": refused, "mounted": mounted, **interrupted("pwritev", errno.ENOSPC, args.disk)}


def failing(args: argparse.Namespace) -> Answer:
    return interrupted("preadv", errno.EIO, args.disk)


PARTS: dict[str, Callable[[argparse.Namespace], Answer]] = {
    "train": train, "foresee": foresee, "memory": memory, "full": full, "failing": failing,
}  # fmt: skip


# ---- the whole


def in_memory(args: argparse.Namespace) -> int:
    """The bytes of the arena under liveness with the same algorithms."""
    policy = f"liveness:{args.policy.rpartition(':')[2]}"
    return plan(load(args.net), policy, batch=args.batch, device="cpu").rows[0].peak_bytes


def report(found: Answer) -> list[str]:
    """Sentences on what was found, and whether it is what it should be."""
    t, f, m = found["train"], found["foresee"], found["memory"]
    text = sizes.text
    measured = median(t["seconds"][1:] or t["seconds"])
    off = f["seconds"] / measured - 1
    lines = [
        f"{found['net']}, batch {found['batch']}: in memory a step needs {text(found['needs_bytes'])} (liveness).",
        f"{found['policy']} takes {text(t['peak_bytes'])} of the device, of the host {text(t['pinned_bytes'])} pinned, "
        f"{text(t['pageable_bytes'])} ordinary and {text(t['undo_bytes'])} to go back to, and "
        f"{text(t['on_disk_bytes'])} of the disk.",
        "Resident at most: " + ", ".join(f"{name} {text(n)}" for name, n in t["phases"].items())
        + f"; of all {text(t['most_resident_bytes'])}, limit {text(found['limit_bytes'])}.",
        f"Iterations took {', '.join(f'{s:.1f}' for s in t['seconds'])} s; foreseen {f['seconds']:.1f} s, {off:+.1%}. "
        f"The disk writes {f['write_bandwidth'] / 1e9:.2f} and reads {f['read_bandwidth'] / 1e9:.2f} GB/s.",
        f"Other programs kept {t['others'] or 0:.1f} processors at work while it trained, {f['others'] or 0:.1f} while "
        "its ops were measured.",
        f"Weights and momenta after {m['iterations']} iterations at batch {m['batch']}, in memory and by disk: "
        + ("the same bytes." if found["same_bytes"] else "OTHER BYTES."),
        f"A full disk is refused: {found['full']['refused']}",
    ]  # fmt: skip
    for part in ("full", "failing"):
        one = found[part]
        bytes_ = "the bytes of a whole run" if one["same_bytes"] else "OTHER BYTES"
        lines.append(f"{one['why']}: snapshot of iteration {one['snapshot']}, from which a run ends with {bytes_}.")
    return lines


def wrong(found: Answer) -> list[str]:
    """What is not as it should be."""
    t, f = found["train"], found["foresee"]
    measured = median(t["seconds"][1:] or t["seconds"])
    checks = {
        "more is resident than the limit": t["most_resident_bytes"] <= found["limit_bytes"],
        "the foreseen seconds are far off": abs(f["seconds"] / measured - 1) <= CLOSE,
        "other bytes than in memory": found["same_bytes"],
        "a full disk was not refused": bool(found["full"]["refused"]),
        "no snapshot of the last whole iteration": found["full"]["snapshot"] == found["failing"]["snapshot"] == 2,
        "a run that went on has other bytes": found["full"]["same_bytes"] and found["failing"]["same_bytes"],
    }
    return [what for what, right in checks.items() if not right]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--disk", type=Path, required=True, help="a folder on the disk")
    parser.add_argument("--net", default="densenet121")
    parser.add_argument("--batch", type=int, default=112)
    parser.add_argument("--policy", default="vdnn_all:m", help="one that ends in :m or :p")
    parser.add_argument("--budget", default="1500MiB")
    parser.add_argument("--ring", default="640MiB")
    parser.add_argument("--limit", default="3GiB", help="resident bytes")
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--needs", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.disk = args.disk.absolute()
    if args.part:
        print(json.dumps(PARTS[args.part](args)))
        return 0
    args.needs = in_memory(args)
    found: Answer = {
        "net": args.net, "batch": args.batch, "policy": args.policy, "limit_bytes": sizes.parse(args.limit),
        "needs_bytes": args.needs, "machine": machine.described(),
    }  # fmt: skip
    words = [w for name in ("disk", "net", "batch", "policy", "budget", "ring", "limit", "iterations", "needs")
             for w in (f"--{name}", str(getattr(args, name)))]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": sys.path[0] + os.pathsep + os.environ.get("PYTHONPATH", "")}
    for part in args.parts.split(","):
        with tempfile.TemporaryDirectory(dir=args.disk) as folder:
            command = [sys.executable, str(Path(__file__).resolve()), *words, "--part", part]
            done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True, env=environment)
        found[part] = json.loads(done.stdout.splitlines()[-1])
        print(f"{part}: {found[part]}", file=sys.stderr)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    if set(PARTS) - found.keys():
        return 0
    m = found["memory"]
    through = m.get("disk", found["train"]["digests"])
    found["same_bytes"] = m["memory"] == through[: len(m["memory"])]
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    for line in report(found):
        print(line)
    for line in wrong(found):
        print(f"WRONG: {line}")
    return 1 if wrong(found) else 0


if __name__ == "__main__":
    sys.exit(main())
