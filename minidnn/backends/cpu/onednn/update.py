"""Gradients of weights that are collected over several passes."""

from __future__ import annotations

from functools import partial

from minidnn.backends.cpu.layout import flat
from minidnn.backends.cpu.onednn import dnnl as d
from minidnn.backends.cpu.onednn.elementwise import binary
from minidnn.backends.cpu.recipe import Recipe, plain
from minidnn.program import Op


def accumulate(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for total dw -> total, which becomes total + dw."""
    return binary(dnnl, d.ADD, op.reads)


def clear(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for -> total, set to 0."""
    return [plain(lambda _, writes, ws: [partial(flat(writes[0]).fill, 0)])]


KINDS = {"gradient.accumulate": accumulate, "gradient.clear": clear}
