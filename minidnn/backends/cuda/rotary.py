"""RotaryEmbedding (kernels/rotary.cu)."""

from __future__ import annotations

import math

import numpy as np

from minidnn.backends.cuda.recipe import Launch, Read, Recipe, Write, int32, over, plain
from minidnn.program import Op


def rotary(op: Op) -> list[Recipe]:
    """One recipe for x (places) -> y, or for dy -> dx. Without places, x is in their stead, and is not read as such."""
    a, samples = op.attrs, op.reads[0].shape[0]
    sizes = np.int64(samples), *(int32(n) for n in (a.tokens, a.width, a.heads, a.depth, a.interleaved))
    sign = np.float32(1 if op.kind == "rotary.forward" else -1)
    told = len(op.reads) > 1
    places = Read(int(told)), int32(told), np.int64(a.first)
    items = a.tokens * max(a.heads * a.depth // 2, a.width - a.heads * a.depth)
    arguments = Read(0), Write(0), *places, *sizes, np.float64(math.log2(a.base)), sign
    return [plain(Launch("rotary", "rotary", arguments, over(items)))]


KINDS = {"rotary.forward": rotary, "rotary.backward": rotary}
