"""Inner product by cuDNN, as a convolution of 1 x 1, without reordering.

A 4-D bottom and its weights both have channels innermost; all others are in C order. Either way the rows of x (N, all
axes before those of a row) and of w (O) have their K values in the same order. cuDNN is asked for this product in two
ways, because it has different kernels for each. One is N images of one pixel (`images`), the other one image of N
pixels in a line (`line`).
"""

from __future__ import annotations

from functools import partial

from minidnn.backends.cuda.convolution import Pack, dtype_of, recipes
from minidnn.backends.cuda.cudnn import (
    BACKWARD_DATA,
    BACKWARD_FILTER,
    FORWARD,
    LITTLE,
    B,
    Convolution,
    Cudnn,
    NoPlan,
    W,
    X,
    Y,
)
from minidnn.backends.cuda.recipe import Read, Recipe, Write
from minidnn.program import Op, Tensor


def forward(cudnn: Cudnn, op: Op) -> list[Recipe]:
    """Recipes for x w (b) -> y (n, o) = x (n, k) w' (o, k) (+ b (o))."""
    x, w, *b = op.reads
    pack: Pack = [(X, Read(0)), (W, Read(1)), (Y, Write(0))]
    if b:
        pack.append((B, Read(2)))
    return _recipes(cudnn, op, FORWARD, x, w, pack, bool(b))


def backward_data(cudnn: Cudnn, op: Op) -> list[Recipe]:
    """Recipes for w dy -> dx (n, k) = dy (n, o) w (o, k)."""
    (w, _), (dx,) = op.reads, op.writes
    return _recipes(cudnn, op, BACKWARD_DATA, dx, w, [(W, Read(0)), (Y, Read(1)), (X, Write(0))])


def backward_filter(cudnn: Cudnn, op: Op) -> list[Recipe]:
    """Recipes for x dy -> dw (o, k) = dy' (o, n) x (n, k)."""
    (x, _), (dw,) = op.reads, op.writes
    return _recipes(cudnn, op, BACKWARD_FILTER, x, dw, [(X, Read(0)), (Y, Read(1)), (W, Write(0))])


def _recipes(cudnn: Cudnn, op: Op, which: str, x: Tensor, w: Tensor, pack: Pack, bias: bool = False) -> list[Recipe]:
    """The recipes of both ways. The way whose best plan needs less workspace comes first: cuDNN has a kernel for these
    bytes as they are, while for the other way it reorders them.

    Raises NoPlan if cuDNN has no plan for either, or if the elements of x's and w's rows are in different orders."""
    if (len(x.shape) == 4) != (len(w.shape) == 4):  # no layer makes such an op
        raise NoPlan(
            f"layer {op.layer}, {op.name}: {x.name} {list(x.shape)} and {w.name} {list(w.shape)} lie in different "
            "orders, and no kernel reorders them: give the weights the axes of the bottom, or flatten it before"
        )
    o, k = w.shape[0], w.size // w.shape[0]
    n = x.size // k
    asked = partial(Convolution, which, bias=bias, dtype=dtype_of(op), relu=op.kind.endswith("_relu"))
    ways = {  # a problem -> its name, and the axis of the rows
        asked((1, k, 1, n), (o, k, 1, 1), (1, o, 1, n)): ("line", 3),
        asked((n, k, 1, 1), (o, k, 1, 1), (n, o, 1, 1)): ("images", 0),  # the same if n is 1
    }
    result: list[list[Recipe]] = []
    refused: NoPlan | None = None
    for problem, (name, axis) in ways.items():
        try:
            result.append(recipes(cudnn, op, problem, pack, f"{name}.", axis))
        except NoPlan as error:
            refused = error
    if not result and refused:
        raise refused
    result.sort(key=lambda each: max(each[0].algorithm.workspace, LITTLE))
    return [recipe for each in result for recipe in each]


OF_CUDNN = {
    "inner_product.forward": forward,
    "inner_product.forward_relu": forward,
    "inner_product.backward_data": backward_data,
    "inner_product.backward_filter": backward_filter,
}
