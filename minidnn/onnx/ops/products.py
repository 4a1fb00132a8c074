"""Products: convolutions, and products of matrices."""

from __future__ import annotations

import numpy as np

from minidnn.onnx.node import Node, Reader, Refused
from minidnn.onnx.ops.common import even, image
from minidnn.onnx.ops.elements import scaled, total
from minidnn.onnx.weight import Weight, axes_of, constant, count


def conv(r: Reader, node: Node) -> None:
    w, bias = r.needed(node.inputs[1], "weight"), _bias(r, node)
    size = image(r.shape(node.inputs[0]))[2:]
    stride, dilation = node.get("strides", [1, 1]), node.get("dilations", [1, 1])
    pad = even(node, size, w.shape[2:], stride, dilation)
    fields = _geometry(w.shape[0], w.shape[2:], stride, pad, dilation, node.get("group", 1), bool(bias))
    top = r.layer("Convolution", [r.blob(node.inputs[0])], [w, *bias], name=node.name, convolution_param=fields)
    r.gives(node, top)


def _bias(r: Reader, node: Node) -> list[Weight]:
    """The bias of a convolution, if it has one that says something."""
    bias = r.needed(node.input(2), "bias") if node.input(2) else None
    return [] if bias is None or (not bias.trained and not bias.numbers.any()) else [bias]


def _geometry(outputs, kernel, stride, pad, dilation, group, bias) -> dict[str, object]:
    """The fields of convolution_param that differ from their defaults."""
    fields: dict[str, object] = {"num_output": int(outputs)}
    fields |= {"bias_term": False} if not bias else {}
    for what, (h, w), plain in (("kernel", kernel, None), ("stride", stride, 1), ("pad", pad, 0)):
        square = "kernel_size" if what == "kernel" else what
        if h == w:
            fields |= {square: int(h)} if h != plain else {}
        else:
            fields |= {f"{what}_h": int(h), f"{what}_w": int(w)}
    if set(dilation) != {1}:
        fields["dilation"] = [int(d) for d in dilation]
    return fields | ({"group": int(group)} if group != 1 else {})


def conv_transpose(r: Reader, node: Node) -> None:
    w, bias = r.needed(node.inputs[1], "weight"), _bias(r, node)
    shape = image(r.shape(node.inputs[0]))
    group, kernel = node.get("group", 1), w.shape[2:]
    stride, dilation = node.get("strides", [1, 1]), node.get("dilations", [1, 1])
    more = node.get("output_padding", [0, 0])
    full = [s * (n - 1) + d * (k - 1) + 1 for n, k, s, d in zip(shape[2:], kernel, stride, dilation, strict=True)]
    wanted = node.get("output_shape")
    if wanted or node.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER"):
        wanted = wanted or [n * s for n, s in zip(shape[2:], stride, strict=True)]
        total = [f + m - o for f, m, o in zip(full, more, wanted[-2:], strict=True)]
        if any(t % 2 or t < 0 for t in total):
            raise Refused(f"its output of {wanted} needs padding of {total} in all, which two equal sides cannot give")
        pad = tuple(t // 2 for t in total)
    else:
        pad = even(node, shape[2:], kernel, stride, dilation)
    if any(more):
        raise Refused(f"its output_padding is {more}; Caffe's Deconvolution has none")
    fields = _geometry(w.shape[1] * group, kernel, stride, pad, dilation, group, bool(bias))
    top = r.layer("Deconvolution", [r.blob(node.inputs[0])], [w, *bias], name=node.name, convolution_param=fields)
    r.gives(node, top)


def gemm(r: Reader, node: Node) -> None:
    """alpha A' B' + beta C: an InnerProduct if B is known, else a MatMul and a sum."""
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
    a, b = node.inputs
    first, second = r.weight(a) if not r.is_blob(a) else None, r.weight(b)
    if second is not None and len(second.shape) == 2 and len(r.shape(a)) >= 2:
        r.gives(node, _inner_product(r, r.blob(a), second.transposed((1, 0)), [], node.name))
        return
    if first is not None and len(first.shape) == 2 and len(r.shape(b)) >= 2:  # a b = (b' a')'
        x = _turned(r, r.blob(b), node.name)
        r.gives(node, [_turned(r, _inner_product(r, x, first, [], node.name)[0], node.name)])
        return
    one, other = r.blob(a), r.blob(b)
    before = r.shapes[one]
    if len(before) > 2 and len(r.shapes[other]) == 2:
        one = r.in_shape(one, (count(before[:-1]), before[-1]), f"{node.name}_rows")
        (top,) = r.layer("MatMul", [one, other], name=node.name)
        r.gives(node, [r.in_shape(top, (*before[:-1], r.shapes[other][-1]), f"{node.name}_shaped")])
        return
    if len(before) < 2 or before[:-2] != r.shapes[other][:-2]:
        raise Refused(f"a MatMul of shapes {before} and {r.shapes[other]}: the axes before the last two differ")
    r.gives(node, r.layer("MatMul", [one, other], name=node.name))


def _turned(r: Reader, x: str, name: str) -> str:
    """The blob with its last two axes exchanged."""
    order = list(axes_of(r.shapes[x]))
    return r.layer("Permute", [x], name=f"{name}_turned", permute_param={"order": order})[0]


OPS = {"Conv": conv, "ConvTranspose": conv_transpose, "Gemm": gemm, "MatMul": matmul}
