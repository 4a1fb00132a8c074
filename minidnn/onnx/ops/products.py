"""Products: convolutions, and products of matrices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minidnn.layers.base import Shape
from minidnn.onnx.node import Node, Reader, Refused
from minidnn.onnx.ops.common import Line, lines
from minidnn.onnx.ops.elements import scaled, total
from minidnn.onnx.ops.moves import expanded, padded, reshaped, turned
from minidnn.onnx.ops.windows import lifted, lowered, square
from minidnn.onnx.weight import Weight, constant, count


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


def _ends(r: Reader, node: Node) -> tuple[str, Weight, list[Weight], Shape]:
    """(the image, its filters, its bias, the shape of the input): rows (N, C, W) become images of one row."""
    w, bias = r.needed(node.inputs[1], "weight"), _bias(r, node)
    given = r.shape(node.inputs[0])
    x, _ = lifted(r, r.blob(node.inputs[0]), node.name)
    if len(w.shape) != len(given):
        raise Refused(f"its weight has shape {w.shape}, for an input of shape {given}")
    if node.get("kernel_shape") not in (None, list(w.shape[2:])):
        raise Refused(f"its kernel_shape is {node.get('kernel_shape')}, and its weight has shape {w.shape}")
    return x, w.reshaped((*w.shape[:2], 1, w.shape[2])) if len(w.shape) == 3 else w, bias, given


def _bias(r: Reader, node: Node) -> list[Weight]:
    """The bias of a convolution, if it has one that says something."""
    bias = r.needed(node.input(2), "bias") if node.input(2) else None
    return [] if bias is None or (not bias.trained and not bias.numbers.any()) else [bias]


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
    c, alpha, beta = node.input(2), float(node.get("alpha", 1.0)), float(node.get("beta", 1.0))
    weight, addend = r.weight(b), r.weight(c) if c else None
    if weight is not None and not node.get("transA", 0) and not (weight.trained and alpha != 1):
        w = weight if node.get("transB", 0) else weight.transposed((1, 0))
        w = w if alpha == 1 else constant(alpha * w.numbers)
        bias = _per_output(addend, w.shape[0], beta)
        top = _inner_product(r, r.blob(a), w, [bias] if bias else [], node.name)
        c = "" if bias else c
    else:
        message: dict[str, object] = {
            "transpose_a": bool(node.get("transA", 0)),
            "transpose_b": bool(node.get("transB", 0)),
        }
        message |= {"scale": alpha} if alpha != 1 else {}
        top = r.layer("MatMul", [r.blob(a), r.blob(b)], name=node.name, matmul_param=message)
    if c:
        other = r.blob(c) if beta == 1 else scaled(r, r.blob(c), beta, node.name)
        top = total(r, top[0], other, node.name)
    r.gives(node, top)


def _per_output(c: Weight | None, outputs: int, beta: float) -> Weight | None:
    """C as the bias of an InnerProduct; None if it is none."""
    if c is None or (c.trained and beta != 1):
        return None
    if not c.trained and (c.size == 1 or c.shape in ((outputs,), (1, outputs))):
        return constant(np.broadcast_to(beta * c.numbers.reshape(-1), (outputs,)), c.name if beta == 1 else "")
    return c.reshaped((outputs,)) if c.shape in ((outputs,), (1, outputs)) else None


def _inner_product(r: Reader, x: str, w: Weight, bias: list[Weight], name: str) -> list[str]:
    """x w' + bias. A parameter that other layers read, too, lies as it does in the file."""
    fields: dict[str, object] = {"num_output": int(w.shape[0])}
    fields |= {"bias_term": False} if not bias else {}
    axis = len(r.shapes[x]) - 1
    fields |= {"axis": axis} if axis != 1 else {}
    if w.turns and w.trained and w.name in r.shared:
        w = w.transposed((1, 0))
        fields["transpose"] = True
    return r.layer("InnerProduct", [x], [w, *bias], name=name, inner_product_param=fields)


def matmul(r: Reader, node: Node) -> None:
    """An InnerProduct by a constant matrix; else a MatMul, whose inputs are expanded to one shape of batches."""
    a, b = node.inputs
    weight, first = r.weight(b), None if r.is_blob(a) else r.weight(a)
    if weight is not None and len(weight.shape) == 2 and len(r.shape(a)) >= 2:
        r.gives(node, _inner_product(r, r.blob(a), weight.transposed((1, 0)), [], node.name))
        return
    if first is not None and len(first.shape) == 2 and len(r.shape(b)) >= 2:  # A x = (x' A')'
        x, order = r.blob(b), [*range(len(r.shape(b)))]
        order[-2:] = order[:-3:-1]
        x = turned(r, x, order, f"{node.name}_turned")
        (y,) = _inner_product(r, x, first, [], f"{node.name}_product")
        r.gives(node, [turned(r, y, order, node.name)])
        return
    one, other = r.blob(a), r.blob(b)
    if len(r.shapes[other]) == 2 and len(r.shapes[one]) > 2:  # one matrix for all batches
        lead = r.shapes[one][:-1]
        one = reshaped(r, one, [count(lead), r.shapes[one][-1]], f"{node.name}_rows")
        (y,) = r.layer("MatMul", [one, other], name=node.name)
        r.gives(node, [reshaped(r, y, [*lead, r.shapes[y][-1]], f"{node.name}_shaped")])
        return
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
