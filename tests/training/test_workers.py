"""Training on samples that worker processes make: the same bytes, also resumed; every end leaves no process."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from minidnn.cli.main import main
from minidnn.data import SOURCES, DataError, Source, WorkerError
from minidnn.data.workers import PRIVATE
from minidnn.errors import InvalidInput
from minidnn.memory.budget import RamError
from minidnn.training.events import Saved
from minidnn.training.solver import Solver
from tests.support.paths import ROOT

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
NET = """
name: small
layer:
- name: data
  type: Data
  top: [data, label]
  data_param: {source: "SOURCE", batch_size: 6}
  transform_param: {crop_size: 8, mirror: true, rotation: 20, brightness: 0.3, contrast: 0.3, saturation: 0.3,
                    scale: 0.01}
- {name: ip, type: InnerProduct, bottom: data, top: ip,
   inner_product_param: {num_output: 4, weight_filler: {type: xavier}}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
"""
SOLVER = """
net: net.yaml
base_lr: 0.1
lr_policy: fixed
momentum: 0.9
max_iter: 9
random_seed: 5
test_iter: 3
test_interval: 3
snapshot_prefix: out/small
display: 1
"""


@pytest.fixture
def case(tmp_path, monkeypatch):
    """A solver on 20 images in bytes, so that epochs end within a batch."""
    random = np.random.default_rng(1)
    images = random.integers(0, 256, (20, 3, 11, 10)).astype(np.uint8)
    np.savez(tmp_path / "a.npz", x=images, y=np.arange(20) % 4)
    (tmp_path / "net.yaml").write_text(NET.replace("SOURCE", "a.npz"))
    (tmp_path / "solver.yaml").write_text(SOLVER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def forked(monkeypatch):
    """The processes that are forked."""
    found, fork = [], os.fork

    def noted():
        found.append(fork())
        return found[-1]

    monkeypatch.setattr(os, "fork", noted)
    return found


def ended(pids) -> bool:
    for pid in pids:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return True


def values(solver) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in solver.values().items()}


def test_workers_change_no_byte_and_neither_does_a_resumed_run(case, forked):
    trained = {}
    for workers in (0, 2):
        with Solver("solver.yaml", device="reference", workers=workers) as solver:
            solver.solve()
            trained[workers] = values(solver)
    assert len(forked) == 2 * 2 and ended(forked)  # those of training, and those of the test
    with Solver("solver.yaml", device="reference", workers=2, max_iter=4) as solver:
        solver.solve()
    for workers in (0, 1):
        with Solver(
            "solver.yaml", device="reference", workers=workers, resume="out/small_iter_4.safetensors"
        ) as solver:
            solver.solve()
            assert values(solver) == trained[0] == trained[2]


def test_the_file_may_say_their_number(case, forked):
    (case / "net.yaml").write_text(
        (case / "net.yaml").read_text().replace("batch_size: 6", "batch_size: 6, workers: 3")
    )
    (case / "solver.yaml").write_text(SOLVER.replace("test_iter: 3\ntest_interval: 3\n", ""))
    with Solver("solver.yaml", device="reference", max_iter=1):
        assert len(forked) >= 3
    assert ended(forked)


@pytest.mark.parametrize("count", [-1, 257, 1.5, True])
def test_numbers_that_are_none(case, count):
    with pytest.raises(InvalidInput, match="expected a whole number from 0 to 256"):
        Solver("solver.yaml", device="reference", workers=count)


def test_the_command_refuses_too_many(case, capsys):
    assert main(["train", "solver.yaml", "--device", "reference", "--workers", "257"]) == 2
    assert "--workers 257: expected a whole number from 0 to 256" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", [0, -1, math.inf, math.nan, "3"])
def test_seconds_that_are_none(case, seconds):
    with pytest.raises(InvalidInput, match=r"worker_limit .*: expected a number of seconds above 0"):
        Solver("solver.yaml", device="reference", worker_limit=seconds)


class Fatal:
    """A dataset of which a sample sends a signal to the process that takes it, from the second epoch on."""

    name, shape, number = "fatal", (3, 9, 9), signal.SIGKILL

    def __init__(self) -> None:
        self.parent, self.seen = os.getpid(), set()

    def highest(self, ignored=None) -> int:
        return 3

    def __len__(self) -> int:
        return 12

    def take(self, indices):
        (index,) = indices
        if index in self.seen and index == 7:
            os.kill(os.getpid(), self.number)
        self.seen.add(index)
        return np.full((1, 3, 9, 9), index, np.uint8), np.array([index % 4], np.int32)


@dataclass(frozen=True)
class OfFatal(Source):
    form = "fatal:"

    @classmethod
    def parse(cls, text, split):
        return cls(split)

    def sample_shape(self):
        return Fatal.shape

    def sample_type(self):
        return "uint8"

    def open(self):
        return Fatal()


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (signal.SIGKILL, r"ended while it made fatal: sample 7 \(killed by SIGKILL"),
        (signal.SIGSTOP, r"did not answer for 1 s, while it made fatal: sample 7: it was suspended, or waited"),
    ],
)
def test_a_worker_that_dies_or_stands_still_ends_the_run_with_a_snapshot(case, monkeypatch, forked, number, why):
    monkeypatch.setattr(Fatal, "number", number)
    monkeypatch.setitem(SOURCES, "fatal", OfFatal)
    (case / "net.yaml").write_text(NET.replace("SOURCE", "fatal:"))
    (case / "solver.yaml").write_text(SOLVER.replace("test_iter: 3\ntest_interval: 3\n", ""))
    events = []
    said = pytest.raises(WorkerError, match=why)
    with Solver("solver.yaml", device="reference", workers=1, worker_limit=1) as solver, said:
        for event in solver.run():
            events.append(event)
    assert isinstance(events[-1], Saved) and events[-1].iteration >= 2
    assert ended(forked)


def test_a_net_that_is_refused_leaves_no_process(case, forked):
    with pytest.raises(RamError):
        Solver("solver.yaml", device="reference", workers=2, ram="8MiB")
    assert len(forked) == 5 and ended(forked)  # the workers, and the child that plans


@pytest.mark.usefixtures("default_handlers")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_signal_to_all_processes_ends_all_of_them(case, number, code):
    """Ctrl-C goes to the workers, too, and they ignore it. All hold the output, which ends with the last of them."""
    command = [sys.executable, "-m", "minidnn", "train", "solver.yaml", "--device", "reference", "--workers", "2"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.Popen(
        [*command, "--max-iter", "1000000"], env=env, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    next(line for line in run.stdout if "Iteration 2" in line)
    if number == signal.SIGKILL:
        run.kill()  # this one alone
    else:
        os.killpg(run.pid, number)
    run.stdout.read()
    assert run.wait() == code
    assert len(list((case / "out").glob("small_iter_*"))) == (number != signal.SIGKILL)


def test_their_bytes_are_in_the_ram_that_is_predicted(case, capsys):
    def rows(*more):
        assert main(["plan", "solver.yaml", "--device", "reference", "--ram", "16GiB", "--json", *more]) == 0
        return json.loads(capsys.readouterr().out)["rows"][0]["ram_workers_bytes"]

    slot = 64 * -(-6 * 4 * 3 * 8 * 8 // 64) + 64
    assert rows() == 0 and rows("--workers", "2") == 2 * (3 * slot + 2 * 8 + 2 * PRIVATE)  # training and the test
    with Solver("solver.yaml", device="reference", workers=2) as solver:
        assert solver.session.ram.workers == 2 * (3 * slot + 2 * 8 + 2 * PRIVATE)
        assert "workers 128 MiB" in str(solver.session.ram)


def test_the_test_verb_has_them_too(case, capsys):
    assert main(["train", "solver.yaml", "--device", "reference", "--max-iter", "2"]) == 0
    found = []
    for workers in ("0", "2"):
        weights = ["--weights", "out/small_iter_2.safetensors"]
        capsys.readouterr()
        assert main(["test", "solver.yaml", "--device", "reference", "--json", "--workers", workers, *weights]) == 0
        found.append(json.loads(capsys.readouterr().out)["outputs"])
    assert found[0] == found[1]


def test_pictures_that_are_labels_are_not_rotated(case):
    np.savez(case / "b.npz", x=np.zeros((20, 1, 1, 1), np.uint8), y=np.zeros(20, int))
    labels = (
        "{name: more, type: Data, top: pixels, data_param: {source: b.npz, batch_size: 6}, transform_param: CHANGE}"
    )
    net = (
        NET.replace("SOURCE", "a.npz")
        .replace("[ip, label]", "[ip, pixels]")
        .replace("- name", f"- {labels}\n- name", 1)
    )
    (case / "net.yaml").write_text(net.replace("CHANGE", "{mirror: true}"))
    Solver("solver.yaml", device="reference").close()
    (case / "net.yaml").write_text(net.replace("CHANGE", "{rotation: 5}"))
    with pytest.raises(DataError, match="rotation make values between those of pixels, but pixels holds labels"):
        Solver("solver.yaml", device="reference")
