"""How a smaller tensor lies over a larger one: a factor or a constant that spans some of its axes."""

from __future__ import annotations

import math

from minidnn.backends.layout import contiguous, strides

DIMS = 6  # most dimensions that remain: those of four axes in the order of images, one before them and one behind
MOST = 2**31  # a dimension stays below it, so that kernels may divide in 32 bits


def spanned(x: tuple[int, ...], over: tuple[int, ...], axis: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(sizes, steps) of x's dimensions in the order of memory, outermost first, as few as will do: DIMS or fewer.

    x:     the larger tensor's shape
    over:  the smaller tensor's shape, that of x's axes from `axis` on; or one element, which is for all of x
    steps: for each dimension, the elements of the smaller tensor from one place to the next; 0 where it has only one"""
    step = [0] * len(x)
    if math.prod(over) > 1:
        step[axis : axis + len(over)] = [s if n > 1 else 0 for n, s in zip(over, strides(over), strict=True)]
    order = (0, 2, 3, 1) if len(x) == 4 else range(len(x))
    result: list[tuple[int, int]] = []
    for size, each in ((x[i], step[i]) for i in order if x[i] > 1):
        if result and result[-1][1] == each * size and result[-1][0] * size < MOST:
            result[-1] = result[-1][0] * size, each
        else:
            result.append((size, each))
    result = result or [(1, 0)]
    return tuple(n for n, _ in result), tuple(s for _, s in result)


def filled(numbers: tuple[int, ...], fill: int) -> tuple[int, ...]:
    """The numbers of `spanned`, with `fill` before them, DIMS in all."""
    return (fill,) * (DIMS - len(numbers)) + numbers


def parts(sizes: tuple[int, ...], steps: tuple[int, ...]) -> tuple[list[tuple[int, int, int]], list[tuple[int, int]]]:
    """The dimensions of `spanned` along which the smaller tensor has several elements, as (size, step in x, step in
    it), and those along which it has one, as (size, step in x)."""
    of_x = contiguous(sizes)
    every = list(zip(sizes, of_x, steps, strict=True))
    return [d for d in every if d[2]], [(n, s) for n, s, own in every if not own]
