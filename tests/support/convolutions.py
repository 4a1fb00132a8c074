"""Examples of convolutions for the cpu backend's own algorithms."""

from __future__ import annotations

from tests.support.op_examples import Example, Maker, attrs


def example(m: Maker, which: str, n: int, c: int, h: int, w: int, o: int, pad: tuple[int, int], bias=False) -> Example:
    a = attrs(kernel=(3, 3), stride=(1, 1), pad=pad, dilation=(1, 1), group=1)
    y = (n, o, h + 2 * pad[0] - 2, w + 2 * pad[1] - 2)
    x, weights, dy = m.normal(n, c, h, w), m.normal(o, c, 3, 3), m.normal(*y)
    reads, writes = {
        "forward": ([x, weights, *([m.normal(o)] if bias else [])], [y]),
        "backward_data": ([weights, dy], [x.shape]),
        "backward_filter": ([x, dy], [weights.shape]),
    }[which]
    return m.example(f"convolution.{which}", reads, writes, a, note=f"pad {pad}")
