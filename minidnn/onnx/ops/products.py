"""Products: convolutions, and products of matrices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minidnn.layers.base import Shape
from minidnn.onnx.node import Node, Reader, Refused
from minidnn.onnx.ops.common import Line, lines
from minidnn.onnx.ops.moves import expanded, padded, reshaped, turned
from minidnn.onnx.ops.windows import lifted, lowered, square


def conv(r: Reader, node: Node) -> None:
    """A Convolution. If it pads one side more than the other, the rest is a Pad before it."""
    x, w, bias, given = _ends(r, node)
    axes = lines(node, given[2:], w.shape[6 - len(given) :])
    both = [min(a.before, a.after) for a in axes]
    before, after = ([getattr(a, side) - p for a, p in zip(axes, both, strict=True)] for side in ("before", "after"))
    x = padded(r, x, 6 - len(given), before, after, f"{node.name}_padded")
    fields = _geometry(w.shape[0], axes, both, int(node.get("group", 1)), bool(bias))
    (top,) = r.layer("Convolution", [x], [w, *bias], name=node.name, convolution_param=fields)
    r.gives(node, [lowered(r, top, len(given), node.name)])


def _ends(r: Reader, node: Node) -> tuple[str, np.ndarray, list[np.ndarray], Shape]:
    """(the image, its filters, its bias, the shape of the input): rows (N, C, W) become images of one row."""
    w = r.constant(node.inputs[1], "weight")
    bias = [r.constant(node.input(2), "bias")] if node.input(2) else []
    given = r.shape(node.inputs[0])
    x, _ = lifted(r, r.blob(node.inputs[0]), node.name)
    if w.ndim != len(given):
        raise Refused(f"its weight has shape {w.shape}, for an input of shape {given}")
    if node.get("kernel_shape") not in (None, list(w.shape[2:])):
        raise Refused(f"its kernel_shape is {node.get('kernel_shape')}, and its weight has shape {w.shape}")
    return x, w.reshape(*w.shape[:2], 1, w.shape[2]) if w.ndim == 3 else w, bias, given


def _geometry(outputs: int, axes: Sequence[Line], pad: Sequence[int], group: int, bias: bool) -> dict[str, object]:
    """The fields of convolution_param that differ from their defaults."""
    rows = [1] * (2 - len(axes))
    fields: dict[str, object] = {"num_output": int(outputs)}
    fields |= {"bias_term": False} if not bias else {}
    fields |= square("kernel", [*rows, *(a.kernel for a in axes)], None)
    fields |= square("stride", [*rows, *(a.stride for a in axes)], 1)
    fields |= square("pad", [*(0 for _ in rows), *pad], 0)
    dilation = [*rows, *(a.dilation for a in axes)]
    fields |= {"dilation": dilation} if set(dilation) != {1} else {}
    return fields | ({"group": group} if group != 1 else {})


def conv_transpose(r: Reader, node: Node) -> None:
    """A Deconvolution, of which more may be cut off at one side. Where it has to be longer than a Deconvolution is, the
    bias follows as a layer of its own."""
    x, w, bias, given = _ends(r, node)
    group, count = int(node.get("group", 1)), len(given) - 2
    axes = lines(node, given[2:], w.shape[4 - count :])
    more = node.get("output_padding") or [0] * count
    full = [a.stride * (a.n - 1) + a.dilation * (a.kernel - 1) + 1 for a in axes]
    before, after = [a.before for a in axes], [a.after - m for a, m in zip(axes, more, strict=True)]
    wanted, way = node.get("output_shape"), node.get("auto_pad", "NOTSET")
    if wanted or way in ("SAME_UPPER", "SAME_LOWER"):
        wanted = (wanted or [a.n * a.stride for a in axes])[-count:]
        total = [f - o for f, o in zip(full, wanted, strict=True)]
        whole = [max(t + m, 0) for t, m in zip(total, more, strict=True)]
        before = [t // 2 if way == "SAME_UPPER" else -(-t // 2) for t in whole]
        after = [t - b for t, b in zip(total, before, strict=True)]
    both = [max(min(b, a), 0) for b, a in zip(before, after, strict=True)]
    longer = min(*before, *after) < 0
    fields = _geometry(w.shape[1] * group, axes, both, group, bool(bias) and not longer)
    params = [w, *([] if longer else bias)]
    (top,) = r.layer("Deconvolution", [x], params, name=node.name, convolution_param=fields)
    before, after = ([p - side for side, p in zip(sides, both, strict=True)] for sides in (before, after))
    top = padded(r, top, 4 - count, before, after, f"{node.name}_fitted")
    if longer and bias:
        (top,) = r.layer("Bias", [top], bias, name=f"{node.name}_bias")
    r.gives(node, [lowered(r, top, len(given), node.name)])


def gemm(r: Reader, node: Node) -> None:
    """alpha A' B' + beta C: an InnerProduct if B is known, else a MatMul and a sum."""
    node.get("broadcast")  # of C, which may always be broadcast since version 7
    a, b = node.inputs[:2]
    c, alpha, beta = node.input(2), node.get("alpha", 1.0), node.get("beta", 1.0)
    weight = r.known(b)
    addend = None if not c else r.known(c)
    if weight is not None and not node.get("transA", 0) and (not c or (addend is not None and _per_output(addend))):
        w = alpha * (weight if node.get("transB", 0) else weight.T)
        bias = [] if addend is None else [np.broadcast_to(beta * addend.reshape(-1), (w.shape[0],))]
        r.gives(node, _inner_product(r, r.blob(a), w, bias, node.name))
        return
    message: dict[str, object] = {
        "transpose_a": bool(node.get("transA", 0)),
        "transpose_b": bool(node.get("transB", 0)),
    }
    message |= {"scale": float(alpha)} if alpha != 1 else {}
    top = r.layer("MatMul", [r.blob(a), r.blob(b)], name=node.name, matmul_param=message)
    if c:
        from minidnn.onnx.ops.elements import scaled, total

        other = r.blob(c) if beta == 1 else scaled(r, r.blob(c), float(beta), node.name)
        top = total(r, top[0], other, node.name)
    r.gives(node, top)


def _per_output(c: np.ndarray) -> bool:
    return c.size == 1 or c.ndim == 1 or (c.ndim == 2 and c.shape[0] == 1)


def _inner_product(r: Reader, x: str, w: np.ndarray, bias: list[np.ndarray], name: str) -> list[str]:
    fields: dict[str, object] = {"num_output": int(w.shape[0])}
    fields |= {"bias_term": False} if not bias else {}
    axis = len(r.shapes[x]) - 1
    fields |= {"axis": axis} if axis != 1 else {}
    return r.layer("InnerProduct", [x], [w, *bias], name=name, inner_product_param=fields)


def matmul(r: Reader, node: Node) -> None:
    """An InnerProduct by a constant matrix; else a MatMul, whose inputs are expanded to one shape of batches."""
    a, b = node.inputs
    weight, first = r.known(b), None if r.is_blob(a) else r.known(a)
    if weight is not None and weight.ndim == 2 and len(r.shape(a)) >= 2:
        r.gives(node, _inner_product(r, r.blob(a), weight.T, [], node.name))
        return
    if first is not None and first.ndim == 2 and len(r.shape(b)) >= 2:  # A x = (x' A')'
        x, order = r.blob(b), [*range(len(r.shape(b)))]
        order[-2:] = order[:-3:-1]
        x = turned(r, x, order, f"{node.name}_turned")
        (y,) = _inner_product(r, x, first, [], f"{node.name}_product")
        r.gives(node, [turned(r, y, order, node.name)])
        return
    one, other = r.blob(a), r.blob(b)
    vectors = len(r.shapes[one]) == 1, len(r.shapes[other]) == 1
    one = reshaped(r, one, [1, *r.shapes[one]], f"{node.name}_row") if vectors[0] else one
    other = reshaped(r, other, [*r.shapes[other], 1], f"{node.name}_column") if vectors[1] else other
    try:
        lead = np.broadcast_shapes(r.shapes[one][:-2], r.shapes[other][:-2])
    except ValueError:
        raise Refused(f"a MatMul of shapes {r.shapes[one]} and {r.shapes[other]}: their batches differ") from None
    one, other = (expanded(r, x, (*lead, *r.shapes[x][-2:]), node.name) for x in (one, other))
    (y,) = r.layer("MatMul", [one, other], name=node.name)
    shape = r.shapes[y]
    kept = [*shape[:-2], *(() if vectors[0] else shape[-2:-1]), *(() if vectors[1] else shape[-1:])]
    r.gives(node, [reshaped(r, y, kept, f"{node.name}_shaped")])


OPS = {"Conv": conv, "ConvTranspose": conv_transpose, "Gemm": gemm, "MatMul": matmul}
