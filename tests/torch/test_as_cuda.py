"""Ops of CUDA where PyTorch has none: dropout and attention take its bytes."""

from __future__ import annotations

import pytest

from minidnn.torch import capturing
from minidnn.torch.arguments import Arguments
from minidnn.torch.as_cuda import as_cuda
from minidnn.torch.tracing import trace
from tests.support import peers

pytestmark = pytest.mark.peer("torch")

N, T, WIDTH = 2, 16, 32


def captured(module, dtype, *shape):
    x = peers.torch.empty(shape, dtype=dtype)
    with as_cuda():
        return capturing.captured(
            trace(module.to(dtype), Arguments.of((x, x)), lambda y, t: (y * t).sum(), device="cpu")
        )


def kinds(capture):
    return {op.kind.partition(".")[2]: op for op in capture.program.ops}


def test_a_dropouts_mask_has_a_byte_an_element():
    module = peers.torch.nn.Sequential(peers.torch.nn.Linear(WIDTH, WIDTH), peers.torch.nn.Dropout(0.1))
    ops = kinds(captured(module, peers.torch.float32, N, WIDTH))
    assert [t.nbytes for t in ops["native_dropout"].writes] == [4 * N * WIDTH, N * WIDTH]
    assert "native_dropout_backward" in ops


@pytest.mark.parametrize(
    ("dtype", "heads", "mask", "expected"),
    [
        ("bfloat16", 4, False, "_scaled_dot_product_flash_attention"),
        ("bfloat16", 4, True, "_scaled_dot_product_efficient_attention"),
        ("float32", 4, False, "_scaled_dot_product_efficient_attention"),
        ("float32", 4, True, "_scaled_dot_product_efficient_attention"),
        ("float32", 16, False, "bmm"),  # heads of 2: no kernel of CUDA's takes them in 32 bits
    ],
)
def test_attention_is_the_one_that_cuda_would_take(dtype, heads, mask, expected):
    class Attention(peers.torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = peers.torch.nn.Parameter(peers.torch.ones(1))
            self.register_buffer("mask", peers.torch.ones(T, T, dtype=peers.torch.bool) if mask else None)

        def forward(self, x):
            y = (x * self.scale).view(N, T, heads, -1).transpose(1, 2)
            y = peers.torch.nn.functional.scaled_dot_product_attention(y, y, y, attn_mask=self.mask, dropout_p=0.1)
            return y.transpose(1, 2).reshape(N, T, WIDTH)

    ops = kinds(captured(Attention(), getattr(peers.torch, dtype), N, T, WIDTH))
    assert expected in ops
    if expected != "bmm":
        assert f"{expected}_backward" in ops
        assert ops[expected].writes[0].nbytes == N * T * WIDTH * (2 if dtype == "bfloat16" else 4)


def test_functions_within_pytorchs_own_take_them_too_and_nothing_stays():
    functional = peers.torch.nn.functional
    before = functional.dropout, functional.scaled_dot_product_attention
    layer = peers.torch.nn.TransformerEncoderLayer(WIDTH, 4, 64, batch_first=True)
    ops = kinds(captured(layer, peers.torch.float32, N, T, WIDTH))
    assert {"_scaled_dot_product_efficient_attention", "native_dropout"} <= ops.keys()
    assert (functional.dropout, functional.scaled_dot_product_attention) == before
