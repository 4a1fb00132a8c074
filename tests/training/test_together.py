"""Ranks that a launcher has started on CPUs: each takes its part of them, and the user is told once."""

from __future__ import annotations

import os

import pytest

from minidnn.backends.cpu import CpuDevice
from minidnn.errors import InvalidInput
from minidnn.jobs.setting import Setting
from minidnn.memory.execution.device import Device
from minidnn.ranks.launched import Launch
from minidnn.ranks.threads import Group
from minidnn.training.together import together

needs_openmp = pytest.mark.skipif(CpuDevice().threads is None, reason="the cpu device has no threads to divide")


@pytest.fixture
def ranks(monkeypatch):
    """Makes this process seem one of two ranks, each of which may use all of three CPUs."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})
    engine = Group(1).engine(0)
    engine.share = lambda value: [value, value]
    monkeypatch.setattr("minidnn.ranks.launched.engine", lambda launch, limit: engine)
    monkeypatch.setattr("minidnn.backends.cpu.onednn.dnnl._usual_threads", lambda path, handle: 3)
    return engine


def launch(rank):
    return Launch("MPICH", rank, 2, rank, 2)


@needs_openmp
@pytest.mark.parametrize("rank", [0, 1])
def test_the_ranks_of_a_machine_divide_its_cpus_and_the_first_one_says_so(ranks, rank):
    setting, engine, told = together(Setting(device="cpu"), launch(rank))
    assert setting.device.threads == 1 and setting.engine is engine is ranks
    of_bits = ": the last bits depend on that number" if setting.device.native is None else ""
    said = [f"ranks share this machine's CPUs, and each computes with one thread{of_bits}, and OMP_NUM_THREADS sets it"]
    assert told == ([] if rank else said)


@needs_openmp
def test_the_user_s_number_of_threads_stays(ranks, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    setting, _, told = together(Setting(device="cpu"), launch(0))
    assert setting.device == "cpu" and told == []
    own = CpuDevice(threads=2)
    assert together(Setting(device=own), launch(0))[0].device is own


@needs_openmp
def test_a_launcher_that_has_bound_the_ranks_needs_no_division(ranks, monkeypatch):
    monkeypatch.setattr("minidnn.backends.cpu.onednn.dnnl._usual_threads", lambda path, handle: 1)
    setting, _, told = together(Setting(device="cpu"), launch(0))
    assert setting.device.threads == 1 and told == []


def test_other_devices_stay_and_one_with_memory_of_its_own_is_refused(ranks):
    assert together(Setting(device="reference"), launch(0))[0].device == "reference"
    far = Device()
    far.name, far.own_memory = "far", True
    with pytest.raises(InvalidInput, match="several ranks cannot compute on far: MPI moves bytes of host memory"):
        together(Setting(device=far), launch(0))
