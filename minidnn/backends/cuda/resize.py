"""Images in another size (kernels/resize.cu): bilinear between the corners, or the nearest pixel."""

from __future__ import annotations

import numpy as np

from minidnn.backends.cuda.recipe import Launch, Read, Recipe, Table, Write, int32, over, plain
from minidnn.program import Op


def recipes(op: Op) -> list[Recipe]:
    """One recipe for x -> y, or for dy -> dx."""
    a, (_, c, *x), (_, _, *y) = op.attrs, op.reads[0].shape, op.writes[0].shape
    name = op.kind.split(".")[1]
    if name == "backward":
        x, y = y, x
    whole = a.method == "NEAREST" or tuple(y) == a.size
    last = (begin + size - 1 for begin, size in zip(a.begin, a.size, strict=True))
    numbers = (*x, *y, c, *a.step, *a.over, *a.begin, *last, whole)
    geometry = Table(1, tuple((int32(n),) for n in numbers))
    items = op.writes[0].size
    return [plain(Launch("resize", name, (Read(0), Write(0), np.int64(items), geometry), over(items)))]


KINDS = {"resize.forward": recipes, "resize.backward": recipes}
