"""Short trainings with the shim loaded: what they print, which files they leave, which calls they make."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from tests.faults.shim import Call, Fault, compile_shim, read_log
from tests.support.paths import ROOT

NET = """\
name: tiny
layer:
- {name: data, type: Data, top: [data, label], data_param: {source: "synthetic:1x4x4:classes=3", batch_size: 4}}
- {name: drop, type: Dropout, bottom: data, top: drop}
- {name: ip, type: InnerProduct, bottom: drop, top: ip,
   inner_product_param: {num_output: 3, weight_filler: {type: xavier}}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
"""
SOLVER = """\
net: net.yaml
base_lr: 0.05
momentum: 0.9
lr_policy: fixed
max_iter: 3
snapshot: 1
random_seed: 3
snapshot_prefix: out/t
"""
NO_FAULT = Fault()
SAVED = re.compile(r"Snapshotting to (?:.*/)?(\S+)")


@dataclass(frozen=True)
class Ended:
    """The end of a training: its exit code (negative: the signal that killed it), what it printed, what it called."""

    code: int
    out: str
    err: str
    calls: list[Call]

    @property
    def saved(self) -> list[str]:
        """The snapshots that it said it had saved."""
        return SAVED.findall(self.out)

    @property
    def counted(self) -> list[Call]:
        """The calls about files, in order: number n is at place n - 1."""
        return [call for call in self.calls if call.number]


class Trainer:
    """Runs trainings in forks of a process that has the shim loaded (worker.py); close it at the end.

    Its folder has the net, the solver and a folder `run`, where each training has its files."""

    def __init__(self) -> None:
        self.built = tempfile.TemporaryDirectory()  # not in memory: that may forbid code
        library = compile_shim(Path(self.built.name))
        # In memory: an fsync is quick there, and the shim sees it all the same.
        memory = Path("/dev/shm")
        self.folder = folder = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None))
        self.notes = folder / "notes"
        self.notes.mkdir()
        (folder / "net.yaml").write_text(NET)
        (folder / "solver.yaml").write_text(SOLVER)
        (folder / "other.yaml").write_text(SOLVER.replace("random_seed: 3", "random_seed: 4"))
        one = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
        env = {**os.environ, **one, "LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT)}
        words = [sys.executable, "-m", "tests.faults.worker"]
        self.process = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._resumed: dict[frozenset[tuple[str, bytes]], tuple[Ended, dict[str, bytes]]] = {}

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        shutil.rmtree(self.folder)
        self.built.cleanup()

    @property
    def root(self) -> str:
        """The folder that trainings have their files in."""
        return str(self.folder.resolve() / "run")

    def fresh(self, before: Mapping[str, bytes] = MappingProxyType({})) -> Path:
        """That folder, with nothing but these files in its folder `out`."""
        place = Path(self.root)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for name, data in before.items():
            (place / "out").mkdir(exist_ok=True)
            (place / "out" / name).write_bytes(data)
        return place

    def train(self, place: Path, *words: str, fault: Fault = NO_FAULT, solver: str = "solver") -> Ended:
        """Train in this folder, under this fault."""
        assert self.process.stdin and self.process.stdout
        line = ["train", str(self.folder / f"{solver}.yaml"), "--device", "reference", *words]
        job = {"folder": str(place), "notes": str(self.notes), "words": line, "fault": dataclasses.asdict(fault)}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        code = int(self.process.stdout.readline())
        out, err = ((self.notes / name).read_text() for name in ("out", "err"))
        return Ended(code, out, err, list(read_log(self.notes / "log")))

    def resume(self, place: Path) -> tuple[Ended, dict[str, bytes]]:
        """Train on in this folder with `--resume latest`, without a fault. Returns the end, and the files then.

        The same files go on in the same way, so the second time nothing is run."""
        key = frozenset(files(place).items())
        if key not in self._resumed:
            self._resumed[key] = self.train(place, "--resume", "latest"), files(place / "out")
        return self._resumed[key]

    @cached_property
    def undisturbed(self) -> tuple[Ended, dict[str, bytes]]:
        """The end of a training without a fault, and the files that it leaves in `out`, by name."""
        return self._undisturbed("solver", {})

    @cached_property
    def older(self) -> dict[str, bytes]:
        """The files of a training of the same names from another seed."""
        return self._undisturbed("other", {})[1]

    @cached_property
    def _over_older(self) -> tuple[Ended, dict[str, bytes]]:
        return self._undisturbed("solver", self.older)

    def _undisturbed(self, solver: str, before: dict[str, bytes]) -> tuple[Ended, dict[str, bytes]]:
        place = self.fresh(before)
        ended = self.train(place, solver=solver)
        assert ended.code == 0, ended.err
        return ended, files(place / "out")

    @property
    def whole(self) -> dict[str, bytes]:
        """The snapshots of an undisturbed training, by name."""
        return self.undisturbed[1]

    def calls(self, older: bool = False) -> list[Call]:
        """The calls about files of an undisturbed training: number n is at place n - 1.

        older: it replaces snapshots of the other seed"""
        ended, _ = self._over_older if older else self.undisturbed
        return ended.counted


def files(folder: Path) -> dict[str, bytes]:
    """All regular files below a folder by their paths in it, and folders as names that end in "/"."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found.update({f"{name}/": b""} if path.is_dir() else {name: path.read_bytes()})
    return found
