"""Workers: the same bytes as without them; an error names its sample; nothing is left, however the parent ends."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from minidnn.data import SOURCES, DataError, Encoded, Source, WorkerError, native, open_loader, staged
from minidnn.data import workers as module
from minidnn.data.augment import Augment
from minidnn.data.dataset import Arrays
from minidnn.data.loader import Loader
from minidnn.data.transform import Transform
from minidnn.data.workers import PRIVATE, SLOTS
from minidnn.schema.sources import DataParameter, TransformationParameter
from tests.support.paths import ROOT

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
CHANGE = Transform(
    5, (1.5, 2.5, 3.5), 0.3, True, True, 4, None, Augment((), 5, rotation=20.0, brightness=0.3, saturation=0.3, seed=4)
)


class Coded:
    """Encoded images of different sizes: a byte for the height, then that of the width, then the pixels."""

    name, shape = "coded", (3, 0, 0)

    def __init__(self, count: int = 20) -> None:
        self.count = count

    def highest(self, ignored=None) -> int:
        return 6

    def __len__(self) -> int:
        return self.count

    def take(self, indices):
        raise AssertionError("encoded images are read one by one")

    def place(self, index):
        return f"{index}.coded"

    def read(self, index):
        h, w = 6 + index % 3, 7 + index % 4
        return bytes([h, w]) + np.random.default_rng(index).bytes(3 * h * w), index % 7

    def decode(self, data):
        return np.frombuffer(data, np.uint8, -1, 2).reshape(data[0], data[1], 3).transpose(2, 0, 1)


def loader(dataset, workers: int, batch: int = 6, transform: Transform = CHANGE) -> Loader:
    return Loader(dataset, batch, transform, workers, "uint8")


def pids(of: Loader) -> list[int]:
    return list(of._workers._pids.values())


def gone(pid: int) -> bool:
    """Whether this child of ours has ended and has been waited for."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


def arrays() -> Arrays:
    images = np.random.default_rng(1).integers(0, 256, (20, 3, 9, 8)).astype(np.uint8)
    return Arrays.of("arrays", images, np.arange(20) % 7)


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("dataset", [Coded(), arrays()], ids=["encoded", "arrays"])
def test_batches_are_the_same_bytes_as_without_workers(dataset, workers):
    assert isinstance(dataset, Encoded) == (dataset.name == "coded")
    with loader(dataset, 0) as alone, loader(dataset, workers) as helped:
        for position in (0, 6, 12, 18, 24, 3, 9, 0):  # epochs end within a batch, and positions jump
            for take in ("take", "take_raw", "take"):
                want, found = getattr(alone, take)(position), getattr(helped, take)(position)
                for a, b in zip(want, found, strict=True):
                    assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_the_samples_of_an_encoded_dataset_are_cut_and_in_the_order_that_is_asked_for():
    image = Coded().decode(Coded().read(4)[0])
    top, left = (image.shape[1] - 6) // 2, (image.shape[2] - 6) // 2
    want = image[:, top : top + 6, left : left + 6]
    for order, channels in (("RGB", want), ("BGR", want[::-1])):
        transform = Transform(6, train=False, augment=Augment(crop=6, train=False, order=order))
        with loader(Coded(), 0, 1, transform) as found:
            assert np.array_equal(found.take(4)[0][0], channels)


@pytest.mark.parametrize("change, wanted", [(CHANGE, True), (Transform(mirror=True), True), (Transform(), False)])
def test_c_is_compiled_before_the_processes_part_and_only_where_it_is_needed(change, wanted, monkeypatch):
    asked = []
    monkeypatch.setattr(native, "library", lambda: asked.append(os.getpid()))
    with loader(Coded() if change is CHANGE else arrays(), 2, transform=change):
        assert asked == [os.getpid()] * wanted


class Faulty(Coded):
    """Sample 7 cannot be made, for this reason."""

    def __init__(self, fault) -> None:
        super().__init__()
        self.fault = fault

    def decode(self, data):
        if data == super().read(7)[0]:
            self.fault()
        return super().decode(data)


def thrown(error):
    def fault():
        raise error

    return fault


class TestErrors:
    """In TEST the order is that of the dataset, so that sample 7 lies in the second batch."""

    change = Transform(6, augment=Augment(crop=6, train=False), train=False)

    @pytest.mark.parametrize(
        ("error", "kind", "said"),
        [
            (DataError("it is torn"), DataError, r"coded: sample 7 \(7\.coded\): it is torn"),
            (OSError(5, "Input/output error"), DataError, r"coded: sample 7 \(7\.coded\): Input/output error"),
            (KeyError("hue"), WorkerError, r"coded: sample 7 \(7\.coded\): KeyError: 'hue'"),
        ],
    )
    def test_what_fails_in_a_worker_is_raised_here_and_names_the_sample(self, error, kind, said):
        with loader(Faulty(thrown(error)), 2, transform=self.change) as found:
            found.take(0)
            with pytest.raises(kind, match=said):
                found.take(6)
            assert found.take(12)[1].tolist() == [5, 6, 0, 1, 2, 3]  # the others go on
            with pytest.raises(kind, match=said):
                found.take(6)

    def test_without_workers_the_sample_is_named_too(self):
        fault, said = thrown(DataError("it is torn")), r"coded: sample 7 \(7\.coded\): it is torn"
        with loader(Faulty(fault), 0, transform=self.change) as found, pytest.raises(DataError, match=said):
            found.take(6)

    @pytest.mark.parametrize(
        ("fault", "how"),
        [
            (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed by SIGKILL, perhaps because memory ran out"),
            (lambda: os._exit(3), "exit code 3"),
        ],
    )
    def test_a_worker_that_dies_is_named_with_its_sample(self, fault, how):
        with loader(Faulty(fault), 2, transform=self.change) as found:
            every = pids(found)
            said = rf"a worker process ended while it made coded: sample 7 .*\({how}"
            with pytest.raises(WorkerError, match=said):
                found.take(0)  # raises where one worker comes to sample 7 before the other has ended the first batch
                found.take(6)
            with pytest.raises(WorkerError, match=said):
                found.take(6)
            assert all(map(gone, every))

    def test_a_worker_that_is_killed_while_it_waits_is_noticed(self):
        with loader(Coded(), 1, transform=self.change) as found:
            found.take(0)
            os.kill(pids(found)[0], signal.SIGKILL)
            with pytest.raises(WorkerError, match=r"a worker process ended .*SIGKILL"):
                for position in range(6, 600, 6):
                    found.take(position)

    def test_a_source_that_promised_bytes_is_held_to_it(self):
        floats = Arrays.of("floats", np.ones((8, 3, 6, 6), np.float32), np.zeros(8, int))
        said = "floats: sample 0: it is float32, but its source says"
        with loader(floats, 1, transform=self.change) as found, pytest.raises(DataError, match=said):
            found.take_raw(0)

    @pytest.mark.parametrize("label", [2**31, np.uint64(2**64 - 1), np.int64(2**32 + 1), -(2**31) - 1, 1.0, "1"])
    @pytest.mark.parametrize("count", [0, 1])
    def test_a_label_that_a_label_has_no_room_for(self, count, label):
        class Wide(Coded):
            def read(self, index):
                return super().read(index)[0], label if index == 7 else 1

        said = r"coded: sample 7 \(7\.coded\): (.* is not a label: expected whole numbers below 2\^31|its label is)"
        with loader(Wide(), count, transform=self.change) as found, pytest.raises(DataError, match=said):
            found.take(6)

    def test_processes_that_cannot_be_had(self, monkeypatch):
        def none():
            raise OSError(11, "Resource temporarily unavailable")

        monkeypatch.setattr(os, "fork", none)
        with pytest.raises(DataError, match="3 workers cannot be started: Resource temporarily unavailable"):
            loader(Coded(), 3)


class TestSilence:
    """Workers that do not go on are noticed, and all end."""

    change = TestErrors.change

    @pytest.fixture(autouse=True)
    def quick(self, monkeypatch):
        monkeypatch.setattr(module, "_LOOK", 0.05)

    def opened(self, dataset, count: int = 2, batch: int = 6, limit: float = 0.4) -> Loader:
        return Loader(dataset, batch, self.change, count, "uint8", limit=limit)

    def refused(self, by: Loader, said: str) -> None:
        every = pids(by)
        for _ in range(2):
            with pytest.raises(WorkerError, match=said):
                for position in range(0, 60 * by.batch_size, by.batch_size):
                    by.take(position)
        assert all(map(gone, every))

    @pytest.mark.parametrize("fault", [lambda: time.sleep(1000), lambda: os.kill(os.getpid(), signal.SIGSTOP)])
    def test_one_that_hangs_is_named_with_its_sample_and_the_seconds(self, fault):
        why = "it was suspended, or waited for something"
        remedy = "worker_limit=0.8 waits longer, and workers=0 uses no processes"
        said = rf"\(pid \d+\) did not answer for 0\.4 s, while it made coded: sample 7 \(7\.coded\): {why}; {remedy}"
        with self.opened(Faulty(fault)) as found:
            self.refused(found, said)

    @pytest.mark.parametrize("batch", [6, 6000])  # tasks of the second do not fit into the socket
    def test_those_that_are_suspended_while_they_wait_for_a_task(self, batch):
        with self.opened(Coded(), batch=batch) as found:
            found.take(0)
            for pid in pids(found):
                os.kill(pid, signal.SIGSTOP)
            self.refused(found, r"did not answer for 0\.4 s, (between two samples|while it made coded: sample \d+)")

    def test_slow_ones_are_waited_for(self, monkeypatch):
        """Longer than the limit in all. It is looked after them when one has gone on, however busy the machine is."""

        class Slow(Coded):
            def decode(self, data):
                time.sleep(0.05)
                return super().decode(data)

        def wait(replies, seconds):
            seen = found._workers._making.tobytes()
            while not (ready := real(replies, 0.01)) and found._workers._making.tobytes() == seen:
                pass
            return ready

        real = module.wait
        monkeypatch.setattr(module, "wait", wait)
        with self.opened(Slow(), limit=0.1) as found:
            assert found.take(0)[1].tolist() == [0, 1, 2, 3, 4, 5]
            assert found.take(6)[1].tolist() == [6, 0, 1, 2, 3, 4]

    def test_one_that_goes_on_is_forgiven(self):
        with self.opened(Coded(), count=1, limit=30) as found:
            found.take(0)
            (pid,) = pids(found)
            os.kill(pid, signal.SIGSTOP)
            threading.Timer(0.3, os.kill, (pid, signal.SIGCONT)).start()
            for position in range(6, 60, 6):
                found.take(position)


class TestEnds:
    def test_close_ends_the_processes(self):
        with loader(Coded(), 3) as found:
            found.take(0)
            every = pids(found)
            assert len(every) == 3 and not any(map(gone, every))
        assert all(map(gone, every))

    def test_so_does_garbage_collection(self):
        found = loader(Coded(), 2)
        every = pids(found)
        del found
        gc.collect()
        assert all(map(gone, every))

    def test_what_cannot_be_loaded_leaves_none(self, monkeypatch):
        before, forked, fork = set(threading.enumerate()), [], os.fork

        def third_fails():
            if len(forked) == 2:
                raise OSError(11, "Resource temporarily unavailable")
            forked.append(fork())
            return forked[-1]

        monkeypatch.setattr(os, "fork", third_fails)
        with pytest.raises(DataError, match="cannot be started"):
            loader(Coded(), 3)
        gc.collect()
        assert all(map(gone, forked)) and set(threading.enumerate()) <= before  # another test's may end meanwhile

    def test_a_child_of_the_parent_makes_its_own(self):
        with loader(Coded(), 2) as found:
            found.take(0)
            out, into = os.pipe()
            if not (child := os.fork()):
                try:
                    os.write(into, found.take(6)[0].tobytes())
                    found.close()
                finally:
                    os._exit(0)
            os.close(into)
            with open(out, "rb") as file:
                said = file.read()
            assert os.waitpid(child, 0)[1] == 0
            assert said == found.take(6)[0].tobytes()

    def test_nothing_of_the_shared_memory_has_a_name(self):
        with loader(Coded(), 2) as found:
            found.take(0)
            maps = Path("/proc/self/maps").read_text().splitlines()
            assert not [line for line in maps if "/dev/shm" in line]

    @pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGTERM])
    def test_a_parent_that_is_killed_leaves_no_process(self, ended_by):
        """All processes hold the standard output: it ends when the last of them has ended."""
        script = (
            "from tests.data.test_workers import *\n"
            "found = loader(Coded(), 3)\n"
            "found.take(0)\n"
            "print(*pids(found), flush=True)\n"
            "signal.pause()\n"
        )
        run = subprocess.Popen(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
        )
        assert len(run.stdout.readline().split()) == 3
        run.send_signal(ended_by)
        assert run.stdout.read() == b"" and run.wait() == -ended_by


@dataclass(frozen=True)
class OfCoded(Source):
    form = "coded:"

    @classmethod
    def parse(cls, text, split):
        return cls(split)

    def sample_shape(self):
        return Coded.shape

    def sample_type(self):
        return "uint8"

    def open(self):
        return Coded()


def test_every_byte_of_the_staging_is_counted(monkeypatch):
    monkeypatch.setitem(SOURCES, "coded", OfCoded)
    data, change = DataParameter(source="coded:", batch_size=6, workers=2), TransformationParameter(crop_size=5)
    assert staged(data, change, "TRAIN", workers=0) == 0
    with open_loader(data, change, "TRAIN", seed=1) as found:
        shared = len(found._workers._memory)
        assert shared == SLOTS * (64 * -(-6 * 4 * 75 // 64) + 64) + 2 * 8  # float32 samples, and labels
        assert staged(data, change, "TRAIN") == shared + 2 * PRIVATE
        assert found.take(0)[0].shape == (6, 3, 5, 5)
