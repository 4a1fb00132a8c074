"""Convolution by oneDNN's direct kernels, on NHWC activations.

Weights are OHWI in the arena, but each kernel wants a blocked layout of its own. So a call first reorders the weights
into its workspace; backward-filter reorders its result out of it. There are two families of algorithms. The workspace
of `nhwc` holds only that and the library's scratchpad. `blocked` also reorders the activations: it needs more
workspace, and is faster for some shapes. Another algorithm can be added in `_recipes`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.onednn import dnnl as d
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch
from minidnn.backends.layout import strides
from minidnn.program import Op

# oneDNN tries sizes of blocks in turn, and so asking for a kernel takes time in proportion to an image's places: one to
# two seconds for this many, which are an image of 8192x8192.
PLACES = 2**26
# Not offered: how brgconv cuts the sum over channels and the filter's rows depends on the number of threads.
BY_THREADS = "brgconv"
# each pass: (the arguments that it reads, the one that it writes)
FORWARD = ((d.SRC, d.WEIGHTS), d.DST)
BACKWARD_DATA = ((d.WEIGHTS, d.DIFF_DST), d.DIFF_SRC)
BACKWARD_FILTER = ((d.SRC, d.DIFF_DST), d.DIFF_WEIGHTS)


class Geometry:
    """A convolution's shapes and constants, in oneDNN's terms. Raises NotOffered for an image of more than PLACES."""

    def __init__(self, dnnl: d.Dnnl, attrs, x, w, y) -> None:
        if max(math.prod(x[2:]), math.prod(y[2:])) > PLACES:
            raise d.NotOffered(f"oneDNN is not asked for images of more than {PLACES} places")
        self.dnnl = dnnl
        self.shapes = {"x": x, "y": y}
        o, i, kh, kw = w
        g = attrs.group
        # In memory a weight is O, H, W, I. For oneDNN, groups are an axis of their own.
        per_filter = kh * kw * i
        self.w_shape = (g, o // g, i, kh, kw) if g > 1 else (o, i, kh, kw)
        inner = (per_filter, 1, kw * i, i)
        self.w_plain = dnnl.desc(self.w_shape, (o // g * per_filter, *inner) if g > 1 else inner)
        self.bias = dnnl.desc((o,))
        dilation = d.Dims(*(step - 1 for step in attrs.dilation))  # oneDNN counts the holes
        pad = d.Dims(*attrs.pad)
        self.window = (d.Dims(*attrs.stride), dilation, pad, pad)

    def plain(self, name: str) -> d.Desc:
        return self.dnnl.desc(self.shapes[name], strides(self.shapes[name]))

    def any(self, name: str) -> d.Desc:
        return self.dnnl.any(self.shapes[name])

    def implementations(self, which, activation, bias: bool) -> Iterator[d.Primitive]:
        """oneDNN's implementations of a pass, best first. `activation`: `self.plain` for x and y as NHWC, `self.any`
        for layouts that oneDNN chooses."""
        x, y, w = activation("x"), activation("y"), self.dnnl.any(self.w_shape)
        c, attr = d.CONVOLUTION_DIRECT, self.dnnl.attr
        b = self.bias if bias else None
        forward = self.dnnl.implementations("convolution_forward", d.TRAINING, c, x, w, b, y, *self.window, attr)
        if which is FORWARD:
            yield from forward
            return
        hint = next(forward).pd
        if which is BACKWARD_DATA:
            yield from self.dnnl.implementations("convolution_backward_data", c, x, w, y, *self.window, hint, attr)
        else:
            yield from self.dnnl.implementations(
                "convolution_backward_weights", c, x, w, None, y, *self.window, hint, attr
            )


def forward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """Recipes for x w (b) -> y."""
    x, w = op.reads[:2]
    geometry = Geometry(dnnl, op.attrs, x.shape, w.shape, op.writes[0].shape)
    return _recipes(geometry, FORWARD, bias=len(op.reads) == 3)


def backward_data(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """Recipes for w dy -> dx."""
    w, dy = op.reads
    return _recipes(Geometry(dnnl, op.attrs, op.writes[0].shape, w.shape, dy.shape), BACKWARD_DATA)


def backward_filter(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """Recipes for x dy -> dw."""
    x, dy = op.reads
    return _recipes(Geometry(dnnl, op.attrs, x.shape, op.writes[0].shape, dy.shape), BACKWARD_FILTER)


def _recipes(g: Geometry, which, bias: bool = False) -> list[Recipe]:
    """The recipes of a pass, the best known first. Implementations that allocate (gemm) are never used, slow ones only
    if there is no other. Raises NotOffered if there is none."""
    plain = _on_any_threads(g.implementations(which, g.plain, bias))
    result = [("nhwc", p) for p in _best_of_each_family(plain)]
    blocked = _best_of_each_family(_on_any_threads(g.implementations(which, g.any, bias)))
    if blocked:
        # If the library chooses NHWC itself, there is nothing to reorder, and an `nhwc` recipe does the same.
        sides = [a for a in (*which[0], which[1]) if a not in (d.WEIGHTS, d.DIFF_WEIGHTS)]
        if not all(g.dnnl.equal(blocked[0].desc(a), _side(g, a)) for a in sides):
            result.append(("blocked", blocked[0]))
    if not result:
        result = [("nhwc", p) for p in plain if "gemm" not in p.name]
    if not result:
        raise d.NotOffered("oneDNN offers no convolution for this geometry")
    recipes: dict[str, Recipe] = {}
    for family, p in result:
        name = f"{family}.{_family(p)}"
        recipes.setdefault(name, _recipe(g, which, name, p, bias))
    return list(recipes.values())


def _on_any_threads(implementations: Iterator[d.Primitive]) -> list[d.Primitive]:
    """Those whose sums do not depend on the number of threads."""
    return [p for p in implementations if not _family(p).startswith(BY_THREADS)]


def _best_of_each_family(implementations: list[d.Primitive]) -> list[d.Primitive]:
    """The first of each family (brgconv, jit, ...): a lesser instruction set of the same family is never better."""
    families: dict[str, d.Primitive] = {}
    for p in implementations:
        if d.usable(p.name):
            families.setdefault(_family(p), p)
    return list(families.values())


def _family(p: d.Primitive) -> str:
    """ "jit" of "jit:avx2", also if this follows a "+", nested in another implementation's name."""
    return p.name.split("+")[-1].split(":")[0]


def _side(g: Geometry, argument: int) -> d.Desc:
    """The layout of the caller's tensor for an argument."""
    if argument in (d.WEIGHTS, d.DIFF_WEIGHTS):
        return g.w_plain
    return g.plain("x" if argument in (d.SRC, d.DIFF_SRC) else "y")


def _recipe(g: Geometry, which, name: str, p: d.Primitive, bias: bool) -> Recipe:
    """The recipe that reorders operands into the kernel's layouts, runs the kernel, and reorders the result back.
    Tensors whose layout is the kernel's are not reordered."""
    reads, result = which
    scratch = Scratch()
    pad = scratch.take(p.scratchpad)
    moved = {}  # argument -> (piece in the kernel's layout, its descriptor, the reorder, the reorder's scratchpad)
    for argument in (*reads, result):
        ours, theirs = _side(g, argument), p.desc(argument)
        if not g.dnnl.equal(ours, theirs):
            ends = (theirs, ours) if argument == result else (ours, theirs)
            reorder = g.dnnl.reorder(*ends)
            moved[argument] = (scratch.take(theirs.nbytes), theirs, reorder, scratch.take(reorder.scratchpad))

    def bind(arrays, outputs, workspace):
        given = dict(zip(reads, arrays, strict=False))  # a bias, if any, comes last and is bound below
        given[result] = outputs[0]
        before: list[Call] = []
        after: list[Call] = []
        arguments = {}
        for argument, array in given.items():
            ours = (_side(g, argument), address(array))
            if argument not in moved:
                arguments[argument] = ours
                continue
            piece, desc, reorder, reorder_pad = moved[argument]
            theirs = arguments[argument] = (desc, piece.address(workspace))
            ends = {d.SRC: theirs, d.DST: ours} if argument == result else {d.SRC: ours, d.DST: theirs}
            (after if argument == result else before).append(reorder.bind(ends, reorder_pad.address(workspace)))
        if bias:
            arguments[d.BIAS] = (g.bias, address(arrays[2]))
        return [*before, p.bind(arguments, pad.address(workspace)), *after]

    return scratch.recipe(name, bind)


KINDS = {
    "convolution.forward": forward,
    "convolution.backward_data": backward_data,
    "convolution.backward_filter": backward_filter,
}
