"""Every op of the real nets, at their real sizes, has a recipe whose launches agree with the compiled kernels: the
number and types of arguments, what is read and written, the workspace. (Nothing is computed here.)"""

from __future__ import annotations

import pytest

from minidnn import zoo
from minidnn.backends.cuda.recipe import Launch, storage
from minidnn.formats import FORMATS
from minidnn.nets.net import Net
from minidnn.optimizers import SGD
from minidnn.program import Op
from minidnn.programs.autodiff import differentiate
from minidnn.programs.fusion import as_cuda, fused
from minidnn.programs.spec import TrainSpec
from tests.support.cuda import host as cuda_host
from tests.support.cuda.host import KernelError, library, mismatches

pytestmark = pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++ to compile CUDA sources for the CPU with")

PARTS = ("forward", "forward_relu", "backward_filter", "backward_data")
CUDNN = {f"{layer}.{part}" for layer in ("convolution", "inner_product") for part in PARTS}
BATCHES = {
    "alexnet": 256,
    "unet": 2,
    "vgg19": 256,
    "googlenet": 128,
    "resnet50": 256,
    "resnet152": 32,
    "digits_lenet": 64,
}


def ops(name: str, batch: int, phase: str, train: TrainSpec | None, format: str = "float32") -> tuple[Op, ...]:
    found = zoo.find(name, batch)
    net = found if isinstance(found, Net) else Net.from_file(found, batch)
    return fused(differentiate(net.graph(phase, format=format), train=train), as_cuda).ops


@pytest.mark.slow
@pytest.mark.parametrize(("name", "batch"), BATCHES.items())
@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
@pytest.mark.parametrize("format", FORMATS)
def test_launches_agree_with_kernels(name, batch, phase, format):
    if format == "bfloat16":
        pytest.importorskip("ml_dtypes")
    train = TrainSpec(SGD(momentum=0.9, weight_decay=1e-4), clip_gradients=10.0) if phase == "TRAIN" else None
    kinds, lacking, launches = cuda_host.kinds(), set(), 0
    for op in ops(name, batch, phase, train, format):
        if op.kind not in kinds:
            lacking.add(op.kind)
            continue
        for recipe in kinds[op.kind](op):
            for step in recipe.steps:
                assert isinstance(step, Launch) and 1 <= step.grid < 1 << 31 and step.shared <= 48 << 10, op
                if wrong := list(mismatches(op, recipe, step, library(step.source, storage=storage(op)).signatures)):
                    raise KernelError(f"{op}: {'; '.join(wrong)}")
                launches += 1
    assert lacking <= CUDNN and launches > (10 if phase == "TRAIN" else 5)


@pytest.mark.parametrize(("name", "format", "most"), [("resnet50", "float32", 540), ("googlenet", "bfloat16", 350)])
def test_a_step_takes_few_launches(name, format, most):
    """With one for each op of cuDNN's. It was 1102 and 734 while each update, cast and sum took one of its own."""
    kinds, train = cuda_host.kinds(), TrainSpec(SGD(momentum=0.9, weight_decay=1e-4))
    of = ops(name, BATCHES[name], "TRAIN", train, format)
    assert sum(len(kinds[op.kind](op)[0].steps) if op.kind in kinds else 1 for op in of) <= most


def test_workspaces_are_small_beside_the_tensors():
    """Sums by channel keep some floats a channel and block; clipping a number a block."""
    kinds, worst = cuda_host.kinds(), {}
    train = TrainSpec(SGD(momentum=0.9), clip_gradients=10.0)
    for op in ops("resnet50", 256, "TRAIN", train):
        if op.kind in kinds:
            worst[op.kind] = max(worst.get(op.kind, 0), kinds[op.kind](op)[0].algorithm.workspace)
    assert max(worst.values()) <= 4 << 20, worst
