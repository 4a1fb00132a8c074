"""Sums, means and maxima along axes, and products that Einsum writes."""

from __future__ import annotations

import math

from minidnn.onnx.node import Node, Reader, Refused
from minidnn.onnx.ops.common import axis_of
from minidnn.onnx.ops.moves import reshaped, turned

REDUCED = {  # operator -> what a Reduction does
    "ReduceSum": "SUM", "ReduceMean": "MEAN", "ReduceL1": "ASUM", "ReduceSumSquare": "SUMSQ", "ReduceL2": "SUMSQ",
    "ReduceLogSum": "SUM",
}  # fmt: skip


def reduction(r: Reader, node: Node) -> None:
    """A Reduction of the last axes, or a Pooling of whole images."""
    x = r.blob(node.inputs[0])
    shape = r.shapes[x]
    axes = node.get("axes")
    if axes is None and node.input(1):
        axes = r.constant(node.input(1), "axes").reshape(-1).tolist()
    keep, nothing = bool(node.get("keepdims", 1)), bool(node.get("noop_with_empty_axes", 0))
    axes = sorted(axis_of(int(a), shape) for a in axes) if axes else [] if nothing else list(range(len(shape)))
    wanted = [1 if i in axes else n for i, n in enumerate(shape) if keep or i not in axes]
    largest, name = node.type in ("ReduceMax", "ReduceMin"), node.name
    if node.type == "ReduceMin":
        (x,) = r.layer("Power", [x], name=f"{name}_negative", power_param={"scale": -1.0})
    if not axes:
        top = x if node.type not in ("ReduceL1", "ReduceL2") else r.layer("AbsVal", [x], name=name)[0]
        if node.type in ("ReduceSumSquare", "ReduceLogSum"):
            raise Refused("it has no axes; give them, or leave it out")
    elif axes == [2, 3] and len(shape) == 4 and (largest or node.type == "ReduceMean"):
        message = {"global_pooling": True} | ({} if largest else {"pool": "AVE"})
        (top,) = r.layer("Pooling", [x], name=name, pooling_param=message)
    else:
        top = _of_rows(r, x, axes, node)
    if axes and node.type == "ReduceL2":
        (top,) = r.layer("Power", [top], name=f"{name}_root", power_param={"power": 0.5})
    if axes and node.type == "ReduceLogSum":
        (top,) = r.layer("Log", [top], name=f"{name}_log")
    if node.type == "ReduceMin":
        (top,) = r.layer("Power", [top], name=f"{name}_smallest", power_param={"scale": -1.0})
    if wanted:
        flat = len(wanted) == 2 and wanted == [r.shapes[top][0], math.prod(r.shapes[top][1:])]
        top = reshaped(r, top, wanted, f"{name}_flat" if flat else f"{name}_shaped")
    r.gives(node, [top])


def _of_rows(r: Reader, x: str, axes: list[int], node: Node) -> str:
    """The sum, mean or maximum of each row; a row has these axes."""
    shape = r.shapes[x]
    others = [i for i in range(len(shape)) if i not in axes]
    x = turned(r, x, [*others, *axes], f"{node.name}_permuted")
    if node.type not in ("ReduceMax", "ReduceMin"):
        message = {"operation": REDUCED[node.type], "axis": len(others)}
        return r.layer("Reduction", [x], name=node.name, reduction_param=message)[0]
    rows = math.prod(shape[i] for i in others)
    x = reshaped(r, x, [rows, 1, 1, math.prod(shape) // rows], f"{node.name}_rows")
    return r.layer("Pooling", [x], name=node.name, pooling_param={"global_pooling": True})[0]


def einsum(r: Reader, node: Node) -> None:
    """A product of two values, summed over some axes: a MatMul between Permutes and Reshapes."""
    equation = str(node.get("equation", "")).replace(" ", "")
    left, arrow, out = equation.partition("->")
    terms = left.split(",")
    plain = arrow and len(terms) == 2 == len(node.inputs) and all(t.isalpha() for t in (*terms, out or "a"))
    if not plain or any(len(set(t)) < len(t) for t in (*terms, out)):
        raise Refused(f"its equation is {equation!r}; minidnn reads those of two values, as in 'bij,bjk->bik'")
    a, b = (r.blob(name) for name in node.inputs)
    for term, blob in zip(terms, (a, b), strict=True):
        if len(term) != len(r.shapes[blob]):
            raise Refused(f"its term {term!r} does not name the axes of shape {r.shapes[blob]}")
    size = dict(zip(terms[0], r.shapes[a], strict=True)) | dict(zip(terms[1], r.shapes[b], strict=True))
    batch, summed = ("".join(c for c in terms[0] if c in terms[1] and (c in out) == kept) for kept in (True, False))
    rows, columns = ("".join(c for c in t if c not in other) for t, other in (terms, terms[::-1]))
    if set(rows + columns + batch) != set(out):
        raise Refused(f"its equation {equation!r} sums an axis of one value only, or repeats one")
    count = [math.prod(size[c] for c in letters) for letters in (batch, rows, summed, columns)]
    a = _as_matrices(r, a, terms[0], batch + rows + summed, [count[0], count[1], count[2]], f"{node.name}_a")
    b = _as_matrices(r, b, terms[1], batch + summed + columns, [count[0], count[2], count[3]], f"{node.name}_b")
    (y,) = r.layer("MatMul", [a, b], name=node.name)
    made = batch + rows + columns
    y = reshaped(r, y, [size[c] for c in made] or [1], f"{node.name}_axes")
    y = turned(r, y, [made.index(c) for c in out], f"{node.name}_turned") if out else y
    r.gives(node, [y])


def _as_matrices(r: Reader, x: str, term: str, order: str, shape: list[int], name: str) -> str:
    x = turned(r, x, [term.index(c) for c in order], f"{name}_turned")
    return reshaped(r, x, shape, f"{name}_matrices")


OPS = {**dict.fromkeys((*REDUCED, "ReduceMax", "ReduceMin"), reduction), "Einsum": einsum}
