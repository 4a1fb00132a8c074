"""Our own kernels, kind by kind, beyond what test_cpu_backend.py shows of every algorithm: the same bits for any number
of threads, and nothing outside of the workspace that they declare."""

from __future__ import annotations

import numpy as np
import pytest

from minidnn.backends.cpu import CpuDevice
from minidnn.backends.cpu.native.native import NAME
from tests.cpu_ops import Example, examples, place, run

ALL = list(examples())


def devices(*threads: int) -> list[CpuDevice]:
    made = [CpuDevice(threads=n) for n in threads]
    if made[0].native is None:
        pytest.skip(made[0].description)
    return made


def native(device: CpuDevice, e: Example):
    return [a for a in device.algorithms(e.op) if a.name == NAME]


def test_same_bits_for_any_number_of_threads():
    one, *others = devices(1, 2, 3, 5)
    kinds = set()
    for e in ALL:
        for algorithm in native(one, e):
            want = run(one, e, algorithm)
            for device in others:
                (its,) = native(device, e)
                for t, a, b in zip(e.op.writes, want, run(device, e, its), strict=True):
                    assert a.tobytes() == b.tobytes(), f"{e.name}: {t.name} on {device.native.threads} threads"
            kinds.add(e.op.kind)
    assert "sgd.update" in kinds


def test_stays_within_its_workspace():
    """Guards around the declared bytes stay as they were."""
    for device in devices(1, 3):
        for e in ALL:
            for algorithm in native(device, e):
                if not algorithm.workspace:
                    continue
                guard = np.full(algorithm.workspace + 8192, 0xA5, np.uint8)
                at = -guard.ctypes.data % 256 + 256
                views = {t: device.array(np.zeros(t.nbytes, np.uint8), t) for t in e.op.tensors}
                for t, x in e.data.items():
                    views[t][...] = x
                device.prepare(e.op, algorithm, views, guard[at : at + algorithm.workspace])()
                assert (guard[:at] == 0xA5).all() and (guard[at + algorithm.workspace :] == 0xA5).all(), e.name


def test_a_call_may_be_repeated():
    """What is in the workspace from the last time does not matter."""
    (device,) = devices(2)
    for e in ALL:
        if {t for t in e.op.reads} & {t for t in e.op.writes}:
            continue
        for algorithm in native(device, e):
            call, views = place(device, e, algorithm)
            call()
            first = [views[t].tobytes() for t in e.op.writes]
            call()
            assert [views[t].tobytes() for t in e.op.writes] == first, e.name
