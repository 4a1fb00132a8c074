"""What the papers call layers, in programs whose ops are PyTorch's.

A native op has a kind of Caffe's layers (`inner_product.forward`), and each layer runs once. An op of PyTorch has a
family and ATen's name (`inner_product.addmm`, `aten.add`). Its layer is the module that calls it. A module may be
called several times, and calls others between its own ops.

The papers say what to do with convolutions, joins and activations. Of PyTorch's ops, every product of matrices counts
as a convolution: in a transformer nn.Linear and attention take the time, and work on the largest maps. A native op
counts as its kind says, also in a transformer.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from minidnn.program import FORWARD, PRODUCTS, Op, Pass, Program, Tensor

JOINS = frozenset({"add", "sub", "mul", "div", "maximum", "minimum"})
SOFTMAX = frozenset({"_softmax", "softmax", "_safe_softmax", "_log_softmax", "nll_loss_forward", "nll_loss2d_forward"})
# functions of single elements; a dropout is a mask, and a product with it
ELEMENTWISE = frozenset({
    "relu", "gelu", "silu", "sigmoid", "tanh", "elu", "selu", "celu", "mish", "softplus", "leaky_relu", "prelu",
    "hardtanh", "hardswish", "hardsigmoid", "log_sigmoid_forward", "threshold", "native_dropout", "bernoulli",
    "native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm",
})  # fmt: skip


def verb(op: Op) -> str:
    """The kind behind the family: "forward_relu", or ATen's name."""
    return op.kind.partition(".")[2]


def is_product_on_maps(op: Op) -> bool:
    """Whether the op, of forward or backward, is what the papers call a convolution."""
    return op.family == "convolution" or (op.family in PRODUCTS and not verb(op).startswith(("forward", "backward")))


def joins(program: Program) -> set[Op]:
    """The ops of forward that make one map of several, each as large as the result. No map is made of another one of
    them, as the mask of a dropout is."""
    result: set[Op] = set()
    sources: dict[Tensor, tuple[Tensor, ...]] = {}  # {map: what it is made of}
    for op in program.ops[: program.forward]:
        maps = [t for t in op.reads if t in sources and t.nbytes == op.writes[0].nbytes] if op.writes else []
        apart = len(maps) > 1 and not any(t in sources[other] for t in maps for other in maps)
        if op.family == "eltwise" or (verb(op) in JOINS and apart):
            result.add(op)
        sources |= dict.fromkeys(op.writes, op.reads)
    return result


def is_concatenation(op: Op) -> bool:
    return op.family == "concat" or verb(op) == "cat"


def is_softmax(op: Op) -> bool:
    return op.family in ("softmax", "softmax_loss") or verb(op) in SOFTMAX


def is_elementwise(op: Op) -> bool:
    """Whether the op is ATen's, and works on a map element by element or channel by channel."""
    return verb(op) in ELEMENTWISE


def calls(program: Program) -> dict[Op, str]:
    """{op: its layer}, where each call of a layer in forward counts as a layer of its own: "relu", "relu#1", ...

    A call is a run of neighbouring ops. Ops of backward belong to the last call of their layer that used a tensor that
    they read. Where ops run in parts of the batch (memory/parts/), a layer's ops are no neighbours, and one call.
    """
    if program.parts:
        return {op: op.layer for op in program.ops}
    result: dict[Op, str] = {}
    number: Counter[str] = Counter()
    used: dict[str, dict[Tensor, int]] = defaultdict(dict)  # {layer: {tensor: the number of the call that used it}}
    before = None
    for op in program.ops:
        if op.during in FORWARD:
            number[op.layer] += op.layer != before
            before = op.layer
            used[op.layer] |= dict.fromkeys((t for t in op.tensors if t not in program.fixed), number[op.layer])
        elif op.during is Pass.BACKWARD and number[op.layer] > 1:
            of = used[op.layer]
            call = max((of[t] for t in op.reads if t in of), default=number[op.layer])
            of |= dict.fromkeys((t for t in op.writes), call)
            result[op] = _named(op.layer, call)
            continue
        result[op] = _named(op.layer, number[op.layer])
    return result


def _named(layer: str, call: int) -> str:
    return layer if call < 2 else f"{layer}#{call - 1}"
