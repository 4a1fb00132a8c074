"""GroupNorm and InstanceNorm (kernels/group_norm.cu)."""

from __future__ import annotations

import math

import numpy as np

from minidnn.backends.cuda.recipe import MOST_BLOCKS, Argument, Launch, Read, Recipe, Write, int32, plain
from minidnn.backends.cuda.rows import Shared, divided, shared
from minidnn.backends.rows import Rows, groups
from minidnn.program import Op


def _of_groups(op: Op) -> tuple[tuple[Argument, ...], Shared]:
    """The parameters GROUPS and ROWS of the kernels, and how rows are divided.

    A group of neighbours in memory, or of several channels, is a row by itself; threads share it. Where each channel of
    images is a group, neighbouring threads have neighbouring rows."""
    shape = op.reads[0].shape
    n, count, width, places, run = groups(shape, op.attrs.groups)
    apart = run == width == 1
    g = divided(Rows(n, places, count) if apart else Rows(n * count, width * places * run, 1))
    numbers = np.int64(math.prod(shape[1:])), int32(count), int32(width), int32(run)
    return (*numbers, *g.arguments), g


def forward(op: Op) -> list[Recipe]:
    """One recipe for x (gamma beta) -> y inverse mean."""
    numbers, g = _of_groups(op)
    ends: list[Argument] = [*(Read(i) for i in range(len(op.reads))), *(Write(i) for i in range(3))]
    kernel = "forward_scaled" if len(op.reads) > 1 else "forward"
    return [plain(Launch("group_norm", kernel, (*ends, np.float32(op.attrs.eps), *numbers), g.grid(MOST_BLOCKS)))]


def backward(op: Op) -> list[Recipe]:
    """One recipe for x dy inverse mean (gamma) -> products sums (dx)."""
    shape = op.reads[0].shape
    given, sums = [Read(i) for i in range(4)], [Write(0), Write(1)]
    rows, width = shared(shape, 2, len(shape)), int32(shape[1] // op.attrs.groups)
    arguments: tuple[Argument, ...] = (*given, *sums, width, *rows.arguments)
    launches = [Launch("group_norm", "channel_sums", arguments, rows.grid(MOST_BLOCKS))]
    if len(op.writes) > 2:
        numbers, g = _of_groups(op)
        gamma = [Read(4)] if len(op.reads) > 4 else []
        kernel = "backward_scaled" if gamma else "backward"
        arguments = (*given, *gamma, *sums, Write(2), *numbers)
        launches.append(Launch("group_norm", kernel, arguments, g.grid(MOST_BLOCKS)))
    return [plain(*launches)]


KINDS = {"group_norm.forward": forward, "group_norm.backward": backward}
