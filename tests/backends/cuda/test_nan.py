"""Which of cuDNN's plans with a ReLU keep NaN: those that hide it are not listed, and where all do nothing is fused. On
a CUDA of the host's memory (tests/support/cuda/fake.py), whose kernels can be made to hide it."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from minidnn.backends.cuda.cudnn import FORWARD, Convolution, CudnnPlan, NoPlan, Y
from minidnn.backends.cuda.device import CudaDevice, KernelFailed
from minidnn.backends.cuda.nan import one_image, touched
from minidnn.backends.reference import KERNELS
from minidnn.program import Op, Pass, Tensor
from minidnn.programs.fusion import kinds
from minidnn.training.session import Session
from minidnn.zoo import load
from tests.support.cuda import host as cuda_host
from tests.support.cuda.fake import FakeApi, FakeCudnn, fake_device
from tests.support.op_examples import Maker, attrs, convolutions
from tests.support.paths import NET_FILES

FORMATS = ["float32", "float16", "bfloat16"]


class Hiding(FakeCudnn):
    """Engines of these names, or these plans of theirs, make 0 of NaN, as a maximum with 0 may. `one`: what is listed
    for one image, where that is something else."""

    def __init__(self, api: FakeApi, *hide: str, one: tuple[str, ...] = ()) -> None:
        super().__init__(api)
        self.hide, self.one, self.ran = hide, one, []

    def listed(self, problem: Convolution) -> tuple[CudnnPlan, ...]:
        if self.one:
            return tuple(CudnnPlan(problem, name, 0, i, None) for i, name in enumerate(self.one))
        return self.plans(problem)

    def execute(self, plan: CudnnPlan, pack: dict[int, int], workspace: int) -> None:
        super().execute(plan, pack, workspace)
        self.ran.append(plan)
        if plan.problem.relu and (plan.name in self.hide or plan.engine in self.hide):
            self.api.enqueue(self.stream, lambda: zeroed(pack, plan.problem), "hides NaN")


def zeroed(pack: dict[int, int], problem: Convolution) -> None:
    y = np.ctypeslib.as_array((ctypes.c_float * int(np.prod(problem.y))).from_address(pack[Y]))
    np.nan_to_num(y, copy=False)


def device_of(*hide: str, one: tuple[str, ...] = ()) -> CudaDevice:
    api = FakeApi()
    return CudaDevice(api, Hiding(api, *hide, one=one), "a CUDA that hides NaN")  # type: ignore[arg-type]


def convolution(kind: str = "convolution.forward_relu", dtype: str = "float32", n: int = 3) -> Op:
    x, w, b, y = (
        Tensor(*t, dtype) for t in (("x", (n, 3, 7, 6)), ("w", (4, 3, 3, 3)), ("b", (4,)), ("y", (n, 4, 7, 6)))
    )
    a = attrs(kernel=(3, 3), stride=(1, 1), pad=(1, 1), dilation=(1, 1), group=1)
    return Op("conv1+relu1.forward", kind, "conv1", Pass.FORWARD, (x, w, b), (y,), a)


@pytest.mark.parametrize("dtype", FORMATS)
def test_plans_that_keep_nan_are_all_listed(dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    device, op = fake_device(), convolution(dtype=dtype)
    free = device.api.free_memory()
    assert device.fuses(op) and len(device.recipes(op)) == 2 == len(
        device.recipes(replace(op, kind="convolution.forward"))
    )
    assert device.nan.hiding() == [] and device.api.free_memory() == free, "what was taken is given back"
    assert not device.api.pending


def test_those_that_hide_it_are_left_out():
    device, op = device_of("eng0"), convolution()
    assert [r.algorithm.name for r in device.recipes(op)] == ["eng1_k0=1"] and device.fuses(op)
    assert device.nan.hiding() == ["eng0"]
    assert len(device.recipes(convolution("convolution.forward"))) == 2, "without a ReLU nothing is asked"


def test_where_all_hide_it_nothing_is_fused():
    device, op = device_of("eng0", "eng1"), convolution()
    assert not device.fuses(op)
    with pytest.raises(NoPlan, match=r"conv1\+relu1\.forward.*make 0 of NaN.*fuse=False"):
        device.recipes(op)
    assert device.fuses(replace(op, kind="relu.backward_bias")), "ours keep it"


def test_each_geometry_is_tried_once_on_one_image():
    device = device_of()
    for n in (3, 3, 64):
        assert device.fuses(convolution(n=n))
    assert [p.problem.x for p in device.cudnn.ran] == [(1, 3, 7, 6)] * 2


def test_a_plan_that_one_image_has_not_is_as_its_engine_is():
    keeps = {
        ("eng1_k0=7", "eng0"): True,
        ("eng1_k0=7", "eng1_k0=8", "eng0"): False,  # one of its engine hides it
        ("eng2", "eng0"): False,  # none of its engine is there
        ("eng1_k0=1", "eng1_k0=8", "eng0"): True,  # the plan itself is
    }
    for one, kept in keeps.items():
        device = device_of("eng1_k0=8", one=one)
        assert [r.algorithm.name for r in device.recipes(convolution())] == ["eng1_k0=1", "eng0"][0 if kept else 1 :], (
            one
        )


def test_a_plan_that_cudnn_does_not_run_is_not_listed():
    device = device_of()
    execute, free = device.cudnn.execute, device.api.free_memory()

    def picky(plan, *rest):
        if plan.engine == "eng1":
            raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")
        execute(plan, *rest)

    device.cudnn.execute = picky
    assert [r.algorithm.name for r in device.recipes(convolution())] == ["eng0"]
    ((plan, said),) = device.nan.refused.items()
    assert plan.startswith("eng1_k0=1 for convolution forward") and "EXECUTION_FAILED" in said
    assert device.api.free_memory() == free


def test_what_fails_on_the_gpu_is_no_reason_to_go_on():
    device = fake_device()

    def execute(*_):
        device.api.enqueue(device.compute, failing, "a kernel that fails")

    def failing():
        raise RuntimeError("cudaErrorIllegalAddress")

    device.cudnn.execute = execute
    with pytest.raises(KernelFailed, match=r"conv1\+relu1.*image of NaN.*IllegalAddress.*fuse=False"):
        device.fuses(convolution())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_expected_of_an_image_of_nan_is_what_the_reference_says():
    for e in [e for e in convolutions(Maker(0)) if e.op.kind == "convolution.forward" and len(e.op.reads) == 3]:
        x, w, b, a = *(e.data[t] for t in e.op.reads), e.op.attrs
        y = np.zeros((1, *e.op.writes[0].shape[1:]), np.float32)
        KERNELS["convolution.forward_relu"](a, [np.full_like(x[:1], np.nan), 0 * w, 0 * b], [y])
        problem = Convolution(
            FORWARD, x.shape, w.shape, e.op.writes[0].shape, a.stride, a.pad, a.dilation, True, relu=True
        )
        assert touched(one_image(problem)) == np.isnan(y).sum(), e.name
    beyond = Convolution(FORWARD, (1, 2, 3, 3), (1, 2, 1, 1), (1, 1, 7, 7), (1, 1), (2, 2), relu=True)
    assert touched(beyond) == 9, "windows on padding alone see no NaN"


@pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++ to run CUDA sources with")
@pytest.mark.parametrize("hide", [(), ("eng0", "eng1")])
def test_a_session_fuses_what_is_left(hide):
    net = load(NET_FILES / "nested.yaml")
    with Session(net, None, ("TRAIN",), device=device_of(*hide)) as session:
        found = kinds(session.programs["TRAIN"])
    assert found == [*(["convolution.forward_relu"] if not hide else []), "gradient.sum", "relu.backward_bias"]
    with Session(net, None, ("TRAIN",), device=device_of(*hide), fuse=False) as session:
        assert kinds(session.programs["TRAIN"]) == []
