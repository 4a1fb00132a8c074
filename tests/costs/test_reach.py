"""What kernels of products are assumed to reach: between what nothing reaches and what public figures have."""

from __future__ import annotations

import pytest

from minidnn.backends.cuda.device import rates
from minidnn.costs import gpu
from minidnn.costs.reach import OWN, TORCH_ATTENTION, mma_sync
from minidnn.layers.matmul import MatMulAttrs
from minidnn.program import Op, Pass, Tensor

CLOCKS = {"h100": (132, 1_830_000, 2_619_000, 5120), "a100": (108, 1_410_000, 1_593_000, 5120)}
CAPABILITIES = {"h100": (9, 0), "a100": (8, 0)}


def rate(card: str, format: str, family: str) -> float:
    return gpu(card).own_rate(format, OWN[family].tensor_cores, OWN[family].without)


@pytest.mark.parametrize(
    "card, format, family, wanted",
    [
        ("a100", "bfloat16", "matmul", 156e12),
        ("h100", "bfloat16", "matmul", 312e12),
        ("h100", "float32", "matmul", 156e12),  # TF32
        ("h100:fp32", "float32", "matmul", 13.4e12),
        ("titan_x", "float32", "matmul", 1.4e12),  # no tensor cores
        ("titan_x", "float16", "attention", 1.05e12),
        ("a100", "bfloat16", "attention", 94e12),
        ("h100", "bfloat16", "attention", 187e12),
        ("b200", "bfloat16", "matmul", 349e12),
        ("h100", "bfloat16", "recurrent", 13.4e12),  # in float32 whatever the format
    ],
)
def test_a_simulated_card_has_the_table_s_part_of_its_peaks(card, format, family, wanted):
    assert rate(card, format, family) == pytest.approx(wanted, rel=0.01)


@pytest.mark.parametrize("card", CLOCKS)
def test_the_estimate_of_a_card_at_hand_and_its_profile_agree(card):
    here = rates(CLOCKS[card], CAPABILITIES[card], tf32=True)
    for family in OWN.keys() - {"recurrent"}:
        for format in ("bfloat16", "float32"):
            assert here.own[family][0] * here.products[format] == pytest.approx(rate(card, format, family), rel=0.02)


@pytest.mark.parametrize("card, least, most", [("a100", 0.5, 0.73), ("h100", 0.34, 0.36)])
def test_pytorch_s_attention_is_what_flashattention_2_was_measured_to_reach(card, least, most):
    peak = gpu(card).peak("bfloat16")
    assert peak is not None and least <= gpu(card).own_rate("bfloat16", TORCH_ATTENTION, 0) / peak <= most


def test_only_large_tensor_cores_are_more_than_mma_sync_feeds():
    assert [mma_sync(n) for n in (512, 1024, 2049, 3786, 4096, 7737)] == [1, 1, 1, 0.63, 0.63, 0.31]


def test_an_op_takes_that_rate():
    sizes = MatMulAttrs(8, 1024, 1024, 1024)
    a, b, y = (Tensor(name, (8, 1024, 1024), "bfloat16") for name in "aby")
    op = Op("product", "matmul.forward", "l", Pass.FORWARD, (a, b), (y,), sizes, flops=8 * 2 << 30)
    (choice,) = gpu("a100").choices(op)
    assert choice.seconds == pytest.approx(op.flops / 156e12 + 3e-6, rel=0.01)
