"""LRN of any size. Backward uses only x and dy: it computes s again.

Across channels there is one recipe. If the number of channels is a multiple of four, and windows have up to nine, it is
`rows`: one pass in registers. Else forward is `direct`, which reads each window from memory. Backward is `tiles`, one
pass in shared memory, or `direct`, with a tensor of workspace, if the window is too large for that.
Within a channel there are two recipes. `direct` reads all n x n places of a window. `separable` reads n places, then n
sums, and needs another tensor of workspace.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minidnn.backends.cuda.columns import mapping
from minidnn.backends.cuda.recipe import Launch, Read, Recipe, Scratch, Space, Write, int32, over, plain
from minidnn.backends.layout import strides
from minidnn.program import Op

TILE = 1024  # as in kernels/lrn.cu
MOST_SHARED = 48 << 10  # bytes of shared memory that a block may have on every GPU by default
DIRECT = 5  # up to this side, n x n reads from the cache are faster than `separable`, whose sums go through memory


@dataclass(frozen=True)
class _Axis:
    stride: int
    length: int
    half: int

    @property
    def arguments(self) -> tuple[np.generic, ...]:
        return np.int64(self.stride), int32(self.length), int32(min(self.half, self.length - 1))


NONE = _Axis(1, 1, 0)


class _Window:
    """An op's window, as one or two axes, and its numbers."""

    def __init__(self, op: Op) -> None:
        a, shape = op.attrs, op.reads[0].shape
        self.across = a.region == "ACROSS_CHANNELS"
        self.shape, self.n, self.half, at = shape, op.reads[0].size, a.size // 2, strides(shape)
        axes = [_Axis(at[k], shape[k], self.half) for k in ((1,) if self.across else (3, 2))]
        self.axes = (*axes, NONE)[:2]
        self.alpha = a.alpha / (a.size if self.across else a.size**2)
        self.numbers = (
            np.int64(self.n),
            np.float32(a.k if self.across else 1.0),
            np.float32(self.alpha),
            np.float32(a.beta),
        )
        self.factor = np.float32(2 * self.alpha * a.beta)

    @property
    def both(self) -> tuple[np.generic, ...]:
        return (*self.axes[0].arguments, *self.axes[1].arguments)

    @property
    def in_rows(self) -> bool:
        """Whether `rows` can do it: channels come in fours, and a window reaches no farther than the next four."""
        return self.across and self.half <= 4 and self.shape[1] % 4 == 0

    def rows(self, kernel: str, *tensors: Read | Write) -> Recipe:
        g = mapping(self.shape)
        arguments = *tensors, *self.numbers[1:], *g.arguments
        return plain(Launch("lrn", f"{kernel}_{self.half}", arguments, g.grid), name="rows")

    def launch(self, kernel: str, *arguments) -> Launch:
        return Launch("lrn", kernel, arguments, over(self.n))


def forward(op: Op) -> list[Recipe]:
    """Recipes for x -> y."""
    w, x, y = _Window(op), Read(0), Write(0)
    if w.in_rows:
        return [w.rows("forward_rows", x, y)]
    direct = plain(w.launch("forward", x, y, *w.numbers, *w.both), name="direct")
    if w.across:
        return [direct]
    scratch = Scratch()
    t = scratch.take(w.n * 4)
    separable = scratch.recipe(
        "separable",
        _along(w, "squares", x, t),
        w.launch("forward_of_sums", x, t, y, *w.numbers, *w.axes[1].arguments),
    )
    return [direct, separable] if op.attrs.size <= DIRECT else [separable, direct]


def backward(op: Op) -> list[Recipe]:
    """Recipes for x (y) dy -> dx."""
    w, x, dy, dx = _Window(op), Read(0), Read(len(op.reads) - 1), Write(0)
    if w.in_rows:
        return [w.rows("backward_rows", x, dy, dx)]
    if w.across:
        half = int(w.axes[0].arguments[2])
        shared = (3 * TILE + 8 * half) * 4
        if shared <= MOST_SHARED:
            arguments = x, dy, dx, *w.numbers, int32(w.axes[0].length), int32(half)
            return [plain(Launch("lrn", "backward_across", arguments, over(w.n, TILE), shared=shared), name="tiles")]
        return [_direct(w, x, dy, dx)]
    recipes = [_direct(w, x, dy, dx), _separable(w, x, dy, dx)]
    return recipes if op.attrs.size <= DIRECT else recipes[::-1]


def _direct(w: _Window, x: Read, dy: Read, dx: Write) -> Recipe:
    scratch = Scratch()
    u = scratch.take(w.n * 4)
    return scratch.recipe(
        "direct",
        w.launch("backward_terms", x, dy, dx, u, *w.numbers, *w.both),
        w.launch("backward_rest", x, u, dx, np.int64(w.n), w.factor, *w.both),
    )


def _separable(w: _Window, x: Read, dy: Read, dx: Write) -> Recipe:
    scratch = Scratch()
    t, u = scratch.take(w.n * 4), scratch.take(w.n * 4)
    rows = w.axes[1].arguments
    return scratch.recipe(
        "separable",
        _along(w, "squares", x, t),
        w.launch("backward_terms_of_sums", x, t, dy, dx, u, *w.numbers, *rows),
        _along(w, "sums", u, t),
        w.launch("backward_rest", x, t, dx, np.int64(w.n), w.factor, *rows, *NONE.arguments),
    )


def _along(w: _Window, kernel: str, source: Read | Space, target: Space) -> Launch:
    """The launch for sums along the first axis."""
    return w.launch(kernel, source, target, np.int64(w.n), *w.axes[0].arguments)


KINDS = {"lrn.forward": forward, "lrn.backward": backward}
