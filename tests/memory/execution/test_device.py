"""The device contract: every backend is a Device, and what a device leaves out has a default that is right."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from minidnn.backends import DEVICES, names_here, open_device
from minidnn.backends.cuda import packages
from minidnn.backends.cuda.device import CudaDevice, Planner
from minidnn.costs import CPU
from minidnn.errors import InvalidInput
from minidnn.memory.execution import host
from minidnn.memory.execution.device import Device
from minidnn.memory.execution.threads import Threads
from minidnn.program import Op, Pass, Tensor

OP = Op("op", "relu.forward", "relu", Pass.FORWARD, (Tensor("x", (4,)),), (Tensor("y", (4,)),))


@pytest.mark.parametrize("name", ["cpu", "reference"])
def test_an_open_device_is_one(name):
    device = open_device(name)
    assert isinstance(device, Device) and open_device(device) is device
    assert device.name == name and device.description and device.memory == host.physical_memory()
    assert not device.own_memory


@pytest.mark.parametrize("kind", [type(open_device("cpu")), type(open_device("reference")), Planner, CudaDevice])
def test_what_a_backend_overrides_is_in_the_contract(kind):
    """Same names and same arguments, so that a machine may call any device alike."""
    for name in ("algorithms", "array", "view", "prepare", "fuses", "runtime"):
        assert list(inspect.signature(getattr(kind, name)).parameters) == list(
            inspect.signature(getattr(Device, name)).parameters
        ), name


@pytest.mark.parametrize(
    "device", [open_device("cpu"), open_device("reference"), Planner(None, 0, "")], ids=["cpu", "reference", "cuda"]
)
@pytest.mark.parametrize("shape", [(6,), (6, 5), (6, 3, 2, 5)])
def test_a_few_rows_lie_as_a_smaller_tensor(device, shape):
    tensor, rows = Tensor("x", shape), Tensor("x", (2, *shape[1:]))
    whole = np.arange(tensor.nbytes, dtype=np.uint8)
    part = whole[2 * tensor.nbytes // 6 : 4 * tensor.nbytes // 6]
    assert np.array_equal(device.array(whole, tensor)[2:4], device.array(part, rows), equal_nan=True)


def test_defaults_are_those_of_a_device_on_the_hosts_memory():
    class Least(Device):
        name, description, memory = "least", "nothing", 1 << 20

        def array(self, buffer, tensor):
            return buffer.view(tensor.dtype)

    device = Least()
    assert device.rates is CPU and not device.own_memory and not device.fuses(OP)
    assert device.view(np.zeros(16, np.uint8), OP.reads[0]).dtype == np.float32
    runtime = device.runtime(256, 512)
    assert isinstance(runtime, Threads) and runtime.arena.nbytes == 256 and runtime.host.nbytes == 512
    runtime.close()


@pytest.mark.parametrize("left_out", ["algorithms", "array", "prepare"])
def test_what_has_no_default_says_so(left_out):
    with pytest.raises(NotImplementedError):
        getattr(Device(), left_out)(*[None] * (len(inspect.signature(getattr(Device(), left_out)).parameters)))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("cpuu", "did you mean 'cpu'"),
        (object(), "a subclass of Device"),
        ("cpu:1", ""),
        ("cuda1", "did you mean 'cuda'"),
    ],
)
def test_what_is_no_device(given, said):
    with pytest.raises(InvalidInput, match=f"there is no device .*{said}.*there are {', '.join(DEVICES)}"):
        open_device(given)


@pytest.mark.parametrize("name", ["cuda:", "cuda:-1", "cuda:x", "cuda:1:2", "cuda:12345"])
def test_what_is_no_gpus_number(name):
    with pytest.raises(InvalidInput, match="a GPU's number comes after cuda:, as in cuda:1"):
        open_device(name)


def test_each_of_several_gpus_is_a_device(monkeypatch):
    def driver(*capabilities):
        cards = tuple(packages.Card(k, f"Card {k}", c) for k, c in enumerate(capabilities))
        monkeypatch.setattr(packages, "find_driver", lambda: packages.Driver((13, 0), cards))

    driver((9, 0))
    assert names_here() == ["cpu", "reference", "cuda"]
    driver((9, 0), (8, 0))
    assert names_here() == ["cpu", "reference", "cuda:0", "cuda:1"]


def test_a_gpu_that_is_not_there_or_too_old(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    driver = packages.Driver((13, 0), (packages.Card(0, "New", (9, 0)), packages.Card(1, "Old", (6, 1))))
    assert packages.card(driver, 0, 13, "9.28.0").name == packages.card(driver, 0, 12, "9.28.0").name == "New"
    assert packages.card(driver, 1, 12, "9.10.2").name == "Old"
    there = r"there are cuda:0 \(New\), cuda:1 \(Old\)"
    with pytest.raises(packages.CudaUnavailable, match=rf"no GPU cuda:2: {there}; CUDA_VISIBLE_DEVICES='0,1'"):
        packages.card(driver, 2, 13, "9.19.0")
    with pytest.raises(packages.CudaUnavailable, match=rf"cuda:1 \(Old\).* 6.1, .* 7.5 and later only: {there}"):
        packages.card(driver, 1, 13, "9.19.0")
    for without in ("9.11.0", "9.28.0", "10.0.0"):
        said = rf"cuda:1 \(Old\).* 6.1, .*cuDNN {without} .* 7.5 and later only: `pip install 'nvidia-cudnn-cu12<9.11'`"
        with pytest.raises(packages.CudaUnavailable, match=said):
            packages.card(driver, 1, 12, without)


def test_a_containers_limit_counts(monkeypatch):
    whole = host.physical_memory()
    read_text = host.Path.read_text
    limited = {"/sys/fs/cgroup/memory.max": f"{whole // 2}\n"}
    monkeypatch.setattr(host.Path, "read_text", lambda self, **how: limited.get(str(self)) or read_text(self, **how))
    assert host.physical_memory() == whole // 2 == open_device("reference").memory == open_device("cpu").memory
    limited["/sys/fs/cgroup/memory.max"] = "max\n"
    assert host.physical_memory() >= whole
