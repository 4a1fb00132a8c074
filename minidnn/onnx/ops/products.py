"""Products: convolutions, and products of matrices."""

from __future__ import annotations

import numpy as np

from minidnn.onnx.node import Node, Reader, Refused
from minidnn.onnx.ops.common import even, image


def conv(r: Reader, node: Node) -> None:
    w = r.constant(node.inputs[1], "weight")
    bias = [r.constant(node.input(2), "bias")] if node.input(2) else []
    size = image(r.shape(node.inputs[0]))[2:]
    stride, dilation = node.get("strides", [1, 1]), node.get("dilations", [1, 1])
    pad = even(node, size, w.shape[2:], stride, dilation)
    fields = _geometry(w.shape[0], w.shape[2:], stride, pad, dilation, node.get("group", 1), bool(bias))
    top = r.layer("Convolution", [r.blob(node.inputs[0])], [w, *bias], name=node.name, convolution_param=fields)
    r.gives(node, top)


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
    w = r.constant(node.inputs[1], "weight")
    bias = [r.constant(node.input(2), "bias")] if node.input(2) else []
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
    a, b = node.inputs
    weight = r.known(b)
    if weight is not None and weight.ndim == 2 and len(r.shape(a)) >= 2:
        r.gives(node, _inner_product(r, r.blob(a), weight.T, [], node.name))
        return
    one, other = r.blob(a), r.blob(b)
    if len(r.shapes[one]) < 2 or r.shapes[one][:-2] != r.shapes[other][:-2]:
        raise Refused(f"a MatMul of shapes {r.shapes[one]} and {r.shapes[other]}: the axes before the last two differ")
    r.gives(node, r.layer("MatMul", [one, other], name=node.name))


OPS = {"Conv": conv, "ConvTranspose": conv_transpose, "Gemm": gemm, "MatMul": matmul}
