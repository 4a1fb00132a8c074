"""Convolution and its two gradients by cuDNN: one recipe per plan. The forward pass adds the bias and applies the ReLU
in the same kernel."""

from __future__ import annotations

from minidnn.backends.cuda import slices
from minidnn.backends.cuda.cudnn import BACKWARD_DATA, BACKWARD_FILTER, FORWARD, B, Convolution, Cudnn, NoPlan, W, X, Y
from minidnn.backends.cuda.recipe import Execute, Read, Recipe, Scratch, Write
from minidnn.backends.cuda.slices import Pack
from minidnn.program import Op, Tensor


def forward(cudnn: Cudnn, op: Op) -> list[Recipe]:
    """Recipes for x w (b) -> y."""
    x, w, *b = op.reads
    pack: Pack = [(X, Read(0)), (W, Read(1)), (Y, Write(0))]
    if b:
        pack.append((B, Read(2)))
    return recipes(cudnn, op, _problem(FORWARD, op, x, w, op.writes[0], bool(b)), pack)


def backward_data(cudnn: Cudnn, op: Op) -> list[Recipe]:
    """Recipes for w dy -> dx."""
    w, dy = op.reads
    pack: Pack = [(W, Read(0)), (Y, Read(1)), (X, Write(0))]
    return recipes(cudnn, op, _problem(BACKWARD_DATA, op, op.writes[0], w, dy), pack)


def backward_filter(cudnn: Cudnn, op: Op) -> list[Recipe]:
    """Recipes for x dy -> dw."""
    x, dy = op.reads
    pack: Pack = [(X, Read(0)), (Y, Read(1)), (W, Write(0))]
    return recipes(cudnn, op, _problem(BACKWARD_FILTER, op, x, op.writes[0], dy), pack)


def _problem(which: str, op: Op, x: Tensor, w: Tensor, y: Tensor, bias: bool = False) -> Convolution:
    a, dtype, relu = op.attrs, dtype_of(op), op.kind.endswith("_relu")
    return Convolution(which, x.shape, w.shape, y.shape, a.stride, a.pad, a.dilation, bias, dtype, relu=relu)


def dtype_of(op: Op) -> str:
    """The number format of an op's tensors. Raises NoPlan if they have several."""
    dtype, *others = {t.dtype for t in op.tensors}
    if others:
        what = ", ".join(f"{t.name} {t.dtype}" for t in op.tensors)
        raise NoPlan(f"{op.name}: cuDNN computes it in one number format, and these are several: {what}")
    return dtype


def recipes(cudnn: Cudnn, op: Op, problem: Convolution, pack: Pack, prefix: str = "", axis: int = 0) -> list[Recipe]:
    """One recipe per plan of the problem, best first; `axis`: that of the batch, of which cuDNN gets slices if the
    whole has too many elements. Raises NoPlan, naming the op, if there is no plan."""
    try:
        cut = slices.slices(problem, axis)
        if len(cut) > 1:
            return list(slices.recipes(cudnn, cut, pack, axis, prefix))
        plans = cudnn.plans(problem)
    except NoPlan as error:
        raise NoPlan(f"layer {op.layer}, {op.name}: {error}") from None
    result = []
    for plan in plans:
        scratch = Scratch()
        step = Execute(plan, tuple(pack), scratch.take(plan.workspace))
        result.append(scratch.recipe(prefix + plan.name, step))
    return result


OF_CUDNN = {
    "convolution.forward": forward,
    "convolution.forward_relu": forward,
    "convolution.backward_data": backward_data,
    "convolution.backward_filter": backward_filter,
}
