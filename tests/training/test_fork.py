"""fork() copies one thread. A child makes the threads that it needs, and computes the same bytes as its parent."""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
import traceback

import numpy.random.bit_generator
import pytest

from minidnn.backends.cpu import CpuDevice, forks
from minidnn.backends.cuda.api import CupyApi
from minidnn.backends.cuda.packages import CudaUnavailable
from minidnn.training.solver import Solver

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
NET = """
name: small
layer:
- {name: data, type: Data, top: [data, label], data_param: {source: "synthetic:3x8x8", batch_size: 4}}
- {name: c1, type: Convolution, bottom: data, top: c1,
   convolution_param: {num_output: 8, kernel_size: 3, pad: 1, weight_filler: {type: msra}}}
- {name: r1, type: ReLU, bottom: c1, top: c1}
- {name: c2, type: Convolution, bottom: c1, top: c2,
   convolution_param: {num_output: 8, kernel_size: 3, pad: 1, weight_filler: {type: msra}}}
- {name: ip, type: InnerProduct, bottom: c2, top: ip,
   inner_product_param: {num_output: 10, weight_filler: {type: xavier}}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
"""


def in_a_child(work) -> str:
    """What `work` returns in a child of this process; a traceback if it fails there. A child that hangs is ended by the
    limit of setup.cfg."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(into, work().encode())
        except BaseException:
            os.write(into, traceback.format_exc().encode()[-2000:])
        finally:
            os._exit(0)
    os.close(into)
    with open(out, "rb") as file:
        said = file.read().decode()
    assert os.waitpid(child, 0)[1] == 0
    return said


@pytest.fixture
def solver(tmp_path):
    (tmp_path / "net.yaml").write_text(NET)
    path = tmp_path / "solver.yaml"
    path.write_text("net: net.yaml\nbase_lr: 0.01\nlr_policy: fixed\nmomentum: 0.9\nmax_iter: 9\nrandom_seed: 1\n")
    return lambda device: Solver(path, device=device, policy="vdnn_all", host_ring="1MiB")


def trained(solver, steps) -> str:
    solver.step(steps)
    return hashlib.sha256(b"".join(v.tobytes() for v in solver.values().values())).hexdigest()


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_a_child_trains_as_its_parent_does(solver, device):
    def anew():
        with solver(device) as new:
            return trained(new, 4)

    with solver(device) as s:
        trained(s, 2)
        assert in_a_child(lambda: "another day") == "another day"
        new, continued = in_a_child(anew), in_a_child(lambda: trained(s, 2))
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.append(in_a_child(anew)))
        thread.start()
        thread.join()
        here = trained(s, 2)
    assert new == continued == elsewhere[0] == here


@pytest.fixture
def hooks(monkeypatch):
    """What a fork would call."""
    found = {}
    monkeypatch.setattr("os.register_at_fork", lambda **given: found.update(given))
    monkeypatch.setattr(forks, "_known", set())
    monkeypatch.setattr(forks, "_lost", False)
    return found


def test_an_openmp_that_cannot_end_its_threads_says_so_in_the_child(solver, hooks, monkeypatch):
    class Old:
        def __init__(self, *_, **__):
            self.omp_get_max_threads = None

    if CpuDevice().dnnl is None:
        pytest.skip("without oneDNN nothing runs on OpenMP's threads")
    with solver("cpu") as before:
        hooks.clear()
        with monkeypatch.context() as old:
            old.setattr("ctypes.PyDLL", Old)
            forks.end_threads_before(ctypes.CDLL(None))
        assert list(hooks) == ["after_in_child"]
        hooks["after_in_child"]()
        with pytest.raises(forks.Forked, match="'spawn'"):
            solver("cpu")
        with monkeypatch.context() as child:
            child.setattr("os.getpid", lambda: 0)
            with pytest.raises(forks.Forked, match="'spawn'"):
                before.step()


def test_a_library_without_openmp_is_left_alone(hooks):
    # Not CDLL(None), which has the OpenMP that PyTorch gives to the whole process where a test imported it.
    forks.end_threads_before(ctypes.CDLL(numpy.random.bit_generator.__file__))
    assert not hooks


def test_a_gpu_in_a_child_is_refused():
    api = object.__new__(CupyApi)
    api._process = os.getpid() + 1
    with pytest.raises(CudaUnavailable, match="'spawn'"):
        api.enter()
