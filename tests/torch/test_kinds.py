"""Families of PyTorch's ops: what is a product, and so dear."""

from __future__ import annotations

import pytest

from minidnn.program import PRODUCTS
from minidnn.torch.kinds import FAMILIES, OTHER, family, kind
from tests.support import peers


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("convolution_backward", "convolution"),
        ("addmm", "inner_product"),
        ("_scaled_dot_product_flash_attention_for_cpu_backward", "attention"),
        ("relu_", "relu"),
        ("threshold_backward", "relu"),
        ("_softmax_backward_data", "softmax"),
        ("embedding_dense_backward", "embed"),
        ("add", OTHER),
        ("_backward", OTHER),
    ],
)
def test_a_backward_and_a_change_in_place_are_of_the_forward_ops_family(op, expected):
    assert family(op) == expected and kind(op) == f"{expected}.{op}"


def test_products_are_families_here():
    assert FAMILIES.keys() >= PRODUCTS


def test_an_op_has_one_family():
    names = [op for ops in FAMILIES.values() for op in ops]
    assert len(names) == len(set(names))


@pytest.mark.peer("torch")
def test_names_are_those_of_pytorch():
    """All but those that another version has, or another device."""
    known = [op for ops in FAMILIES.values() for op in ops]
    there = [op for op in known if any(hasattr(peers.torch.ops.aten, op + end) for end in ("", "_backward"))]
    assert len(there) > 0.9 * len(known), set(known) - set(there)
