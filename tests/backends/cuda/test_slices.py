"""cuDNN gets no tensor of 2^31 elements or more: larger batches go to it in slices. Here the limit is small, and cuDNN
is the imitation; tests/support/cuda/plans.py asks cuDNN itself."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.gpu_check import large
from benchmarks.gpu_check.operations import check, once
from benchmarks.gpu_check.place import Rehearsal
from benchmarks.gpu_check.rounding import Precision, examples_in
from benchmarks.gpu_check.run import Wrong
from minidnn import formats
from minidnn.backends.cuda import slices
from minidnn.backends.cuda.cudnn import BACKWARD_FILTER, FORWARD, Convolution
from minidnn.backends.cuda.recipe import Execute, Launch
from minidnn.backends.reference import KERNELS
from minidnn.program import Tensor
from tests.support.cuda import host as cuda_host
from tests.support.cuda.fake import fake_device
from tests.support.op_examples import Example, Maker, attrs, convolutions, products

pytestmark = pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++ to compile CUDA sources for the CPU with")

VGG = Convolution(
    BACKWARD_FILTER, (669, 64, 224, 224), (64, 64, 3, 3), (669, 64, 224, 224), pad=(1, 1), dtype="bfloat16"
)
KINDS = ("convolution.forward", "convolution.backward_data", "convolution.backward_filter")
KINDS += ("inner_product.forward", "inner_product.backward_data", "inner_product.backward_filter")


def head(rows: int, way: str) -> Convolution:
    """GPT-2's last product, of as many tokens."""
    line = (1, 768, 1, rows), (50257, 768, 1, 1), (1, 50257, 1, rows)
    images = (rows, 768, 1, 1), (50257, 768, 1, 1), (rows, 50257, 1, 1)
    return Convolution(FORWARD, *(line if way == "line" else images), dtype="bfloat16")


def of_kind(kind: str, format: str) -> list[Example]:
    """Its examples with several rows, in a format."""
    every = [e for made in (convolutions(Maker(5)), products(Maker(5))) for e in made if e.op.kind == kind]
    return examples_in(Precision(format), [e for e in every if maps(e)[0].shape[0] > 2])[:6]


def maps(e: Example) -> tuple[Tensor, Tensor]:
    """x and y of an example, or their gradients: what has rows of the batch."""
    op = e.op
    ends = {"forward": (op.reads[0], op.writes[0]), "backward_data": (op.writes[0], op.reads[1])}
    return ends.get(op.kind.partition(".")[2], (op.reads[0], op.reads[-1]))


@pytest.mark.parametrize(
    "problem, axis, lengths",
    [
        (VGG, 0, [335, 334]),
        (head(65536, "line"), 3, [32768, 32768]),
        (head(65536, "images"), 0, [32768, 32768]),
        (head(42731, "images"), 0, [21368, 21363]),  # rows of an odd number of values: eight of them are aligned
        (head(42728, "images"), 0, [42728]),
    ],
)
def test_slices_are_few_and_small_and_begin_where_tensors_may(problem, axis, lengths):
    cut = slices.slices(problem, axis)
    assert [s.problem.x[axis] for s in cut] == lengths == [s.problem.y[axis] for s in cut]
    assert [s.first for s in cut] == [sum(lengths[:i]) for i in range(len(cut))]
    for s in cut:
        for shape in (s.problem.x, s.problem.y):
            assert math.prod(shape) < 2**31 and s.first * (math.prod(shape) // shape[axis]) * 2 % 16 == 0


def test_an_image_that_is_too_large_alone_goes_as_it_is():
    one = Convolution(FORWARD, (2, 1, 1 << 16, 1 << 16), (1, 1, 1, 1), (2, 1, 1 << 16, 1 << 16))
    assert [s.problem for s in slices.slices(one)] == [one]


@pytest.mark.parametrize("format", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_slices_compute_what_the_whole_does(kind, format, monkeypatch):
    """In place or elsewhere, and in a captured graph, as item a of the gpu check does it."""
    of, several = of_kind(kind, format), 0
    for e in of:
        monkeypatch.setattr(slices, "MOST", max(t.size for t in maps(e)) * 2 // 3 + 1)
        device = fake_device()
        several += sum(sum(isinstance(s, Execute) for s in r.steps) > 1 for r in device.recipes(e.op))
        check(device, [e], Precision(format))
    assert several, "none is cut"


def test_the_sum_over_slices_is_in_float32_and_rounded_once(monkeypatch):
    """And each slice's own, which cuDNN rounds."""
    formats.usable("bfloat16")
    monkeypatch.setattr(slices, "MOST", 2 * 3 * 8 * 8 + 1)
    random = np.random.default_rng(0)
    m = Maker(7)
    x, dy = m.normal(9, 3, 8, 8), m.normal(9, 3, 8, 8) * random.choice(np.float32([1, 64]), (9, 1, 1, 1))
    a = attrs(kernel=(3, 3), stride=(1, 1), pad=(1, 1), dilation=(1, 1), group=1)
    (e,) = examples_in(Precision("bfloat16"), [m.example("convolution.backward_filter", [x, dy], [(3, 3, 3, 3)], a)])
    device = fake_device()
    ((*executes, add),) = [r.steps for r in device.recipes(e.op)][:1]
    assert len(executes) == 5 and isinstance(add, Launch) and add.kernel == "add_slices"
    own = []
    for first in range(0, 9, 2):
        part = [e.data[t][first : first + 2].astype(np.float32) for t in e.op.reads]
        dw = np.zeros((3, 3, 3, 3), np.float32)
        KERNELS[e.op.kind](e.op.attrs, part, [dw])
        own.append(dw.astype("bfloat16").astype(np.float32))
    total = own[0]
    for dw in own[1:]:
        total = total + dw
    rounded_each = own[0].astype("bfloat16")
    for dw in own[1:]:
        rounded_each = (rounded_each.astype(np.float32) + dw).astype("bfloat16")
    got = results(device, e)
    assert got.tobytes() == total.astype("bfloat16").tobytes() != rounded_each.tobytes()


def results(device, e: Example) -> np.ndarray:
    room = 1 << 20
    bench = device.runtime(room, 0, 0.0, 0)
    try:
        (got,), _ = once(device, bench, e, device.algorithms(e.op)[0], 0, False, 0xFF, False)
    finally:
        bench.close()
    return got


@pytest.mark.parametrize("fault", [False, True])
def test_the_gpu_check_looks_at_every_slice(fault, monkeypatch):
    """A slice that begins at the wrong image is seen."""
    place = Rehearsal()
    with place.counting():
        if fault:
            of = slices._of
            monkeypatch.setattr(slices, "_of", lambda s, *more: of(replace(s, first=max(0, s.first - 2)), *more))
        for e, batch in large.examples(place.large_maps, place.large_products):
            with pytest.raises(Wrong) if fault else nullcontext():
                assert large.check(fake_device(), e, batch)["worst"] <= 0.02
