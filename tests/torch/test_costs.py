"""Costs of PyTorch's ops: operations and bytes of a call, and a GPU's seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minidnn.costs import gpu, profile
from minidnn.torch import capturing, costs
from minidnn.torch.arguments import Arguments
from minidnn.torch.tracing import trace
from tests.support import peers

pytestmark = pytest.mark.peer("torch")


def captured(module, *shapes, loss=None):
    args = tuple(peers.torch.empty(shape, device="meta") for shape in shapes)
    return capturing.captured(trace(module, Arguments.of(args), loss or (lambda y, x: (y * x).sum()), device="cpu"))


def of_kind(capture, kind):
    return [op for op in capture.program.ops if op.kind == kind]


def attention():
    class Attention(peers.torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = peers.torch.nn.Parameter(peers.torch.ones(1))

        def forward(self, x):
            x = x * self.scale
            return peers.torch.nn.functional.scaled_dot_product_attention(x, x, x)

    return Attention()


def test_products_count_a_multiply_add_as_two():
    capture = captured(peers.torch.nn.Linear(16, 32), (8, 16), (8, 32))
    (forward,) = of_kind(capture, "inner_product.addmm")
    assert forward.flops == 2 * 8 * 16 * 32
    work = costs.works(replace(capture, scratch={**capture.scratch, forward.name: 77}))[forward]
    assert work.nbytes == 4 * (32 + 8 * 16 + 16 * 32 + 8 * 32) and work.scratch == 77
    assert (work.format, work.launches) == ("float32", 1)


def test_attention_on_a_cpu_and_recurrent_layers_have_their_operations():
    n, h, t, d = 2, 3, 16, 8
    capture = captured(attention(), (n, h, t, d), (n, h, t, d))
    forward, backward = (op for op in capture.program.ops if op.family == "attention")
    assert forward.flops == 4 * n * h * t * t * d
    assert backward.flops == 10 * n * h * t * t * d
    capture = captured(peers.torch.nn.LSTM(6, 5), (7, 2, 6), (7, 2, 5), loss=lambda y, x: (y[0] * x).sum())
    flops = [op.flops for op in capture.program.ops if op.family == "recurrent"]
    weights = 4 * 5 * 6 + 4 * 5 * 5
    assert flops == [2 * 7 * 2 * weights, 4 * 7 * 2 * weights]


def test_an_embedding_reads_the_rows_that_it_makes():
    table = peers.torch.nn.Embedding(1000, 4)
    args = peers.torch.zeros(3, dtype=peers.torch.long), peers.torch.empty(3, 4)
    capture = capturing.captured(trace(table, Arguments.of(args), lambda y, x: (y * x).sum()))
    (op,) = of_kind(capture, "embed.embedding")
    assert costs.works(capture)[op].nbytes == 2 * 3 * 4 * 4


def test_expanded_views_count_their_elements_once():
    capture = captured(peers.torch.nn.Linear(2, 8), (4, 2), (8,), loss=lambda y, x: (y + x.expand(4, 8)).sum())
    add = next(op for op in capture.program.ops if op.name.endswith("loss.add"))
    assert costs.works(capture)[add].nbytes == 4 * (32 + 8 + 32)


def test_a_gpu_takes_its_roofline_and_the_caller_no_time():
    capture = captured(peers.torch.nn.Linear(512, 512), (512, 512), (512, 512))
    scratch = capture.scratch | {"Linear.addmm": 5}
    known = costs.on_gpu("rtx4090:fp32", costs.works(replace(capture, scratch=scratch)).__getitem__)
    card = gpu("rtx4090")
    (op,) = of_kind(capture, "inner_product.addmm")
    (choice,) = known.choices(op)
    assert choice.algorithm.workspace == 5
    busy = 512 * 512 / card.tile.value / card.multiprocessors.value
    assert choice.seconds == pytest.approx(
        op.flops / (card.peak_flops.value * card.gemm.value * busy) + card.launch_latency.value
    )
    assert known.memory == profile("rtx4090").memory and known.origin == "profile"
    assert known.choices(capture.program.ops[-1])[0].seconds == 0.0


@pytest.mark.parametrize("precision", ["highest", "high"])
def test_tf32_is_pytorchs_choice_or_the_names(precision):
    before = peers.torch.get_float32_matmul_precision()
    peers.torch.set_float32_matmul_precision(precision)
    try:
        said = {name: costs.card_for(name, "inner_product").tf32 for name in ("h100", "h100:tf32", "h100:fp32")}
    finally:
        peers.torch.set_float32_matmul_precision(before)
    assert said == {"h100": precision == "high", "h100:tf32": True, "h100:fp32": False}


def test_half_precision_is_quicker_where_a_card_has_rates():
    known = {}
    for dtype in (peers.torch.float32, peers.torch.bfloat16):
        args = tuple(peers.torch.empty((1024, 1024), device="meta", dtype=dtype) for _ in range(2))
        module = peers.torch.nn.Linear(1024, 1024, device="meta", dtype=dtype)
        capture = capturing.captured(trace(module, Arguments.of(args), lambda y, x: (y * x).sum(), device="cpu"))
        (op,) = of_kind(capture, "inner_product.addmm")
        known[dtype] = costs.on_gpu("h100:fp32", costs.works(capture).__getitem__).choices(op)[0].seconds
    assert known[peers.torch.bfloat16] < known[peers.torch.float32] / 3
