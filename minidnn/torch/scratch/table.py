"""What both tables share: which operators take nothing beside their results, and sizes of operands."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

from minidnn.torch.experimental import schema_of
from minidnn.torch.scratch.calls import Call, Form, Unlike

Table = Mapping[str, Callable[[Call], int]]  # an operator's name, such as "mm" -> bytes of a call of it
SCALAR = 16  # bytes of a Python number that a kernel for the CPU gets as a tensor

# Neither element-wise nor views, and each writes its results alone.
_NAMES = """
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _embedding_bag _fft_r2c _foreach_add
    _foreach_addcdiv _foreach_addcmul _foreach_div _foreach_lerp _foreach_mul _foreach_norm _foreach_sqrt
    _log_softmax _prelu_kernel _prelu_kernel_backward _softmax _to_copy _unsafe_view _weight_norm_interface
    _weight_norm_interface_backward adaptive_max_pool2d addmv alias all amax amin any arange argmax argmin
    as_strided avg_pool1d avg_pool2d avg_pool2d_backward avg_pool3d bernoulli binary_cross_entropy
    binary_cross_entropy_backward bucketize cat clone col2im constant_pad_nd copy cumprod cumsum detach
    diagonal_backward div dot elu_backward embedding embedding_renorm empty empty_like empty_strided exponential
    eye fill flip full full_like gather gelu_backward glu glu_backward grid_sampler_2d hardsigmoid_backward
    hardswish hardswish_backward hardtanh_backward index index_add index_fill index_put index_select
    leaky_relu_backward linalg_vector_norm linspace logcumsumexp masked_fill masked_scatter max
    max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d_with_indices mean min mish_backward
    mse_loss_backward multinomial mv native_group_norm native_layer_norm new_empty new_empty_strided new_full
    new_ones new_zeros nll_loss2d_backward nll_loss2d_forward nll_loss_backward nll_loss_forward nonzero norm
    normal one_hot ones ones_like pixel_shuffle pixel_unshuffle prod rand rand_like randint randint_like randn
    randn_like randperm reflection_pad1d reflection_pad2d reflection_pad2d_backward repeat resize roll
    scalar_tensor scatter scatter_add scatter_reduce select_backward select_scatter sigmoid_backward silu_backward
    slice_backward slice_scatter smooth_l1_loss_backward soft_margin_loss softplus_backward split_with_sizes stack
    std sum tanh_backward threshold_backward tril triu unfold_backward uniform upsample_bilinear2d_backward
    upsample_nearest2d_backward var var_mean zero zeros zeros_like
"""
NOTHING = frozenset(_NAMES.split())
# These compute a value for each element of their argument `self` in the storage of their result, which then becomes one
# number.
REDUCING = frozenset({"mse_loss", "smooth_l1_loss", "binary_cross_entropy", "soft_margin_loss"})
LARGER = REDUCING | {"col2im"}  # the result lies in a storage that was made for as many numbers as `self` has


def name(call: Call) -> str:
    """The operator's own name: "add" for aten.add.Tensor and aten.add_.Tensor; others' begin with their namespace."""
    result = call.name.removeprefix("aten.")
    return result[:-1] if result.endswith("_") else result


def entry(table: Table, call: Call) -> int | None:
    """What the table has for the call; 0 for what takes nothing beside its results; None: nobody knows."""
    known = name(call)
    if schema_of(call.target) is None:
        return None
    if known in table:
        with contextlib.suppress(Unlike):
            return table[known](call)
        return None
    return 0 if known in NOTHING or pointwise(call) or _is_view(call) else None


def results(call: Call, workspace: Callable[[Call], int]) -> tuple[int, ...]:
    """The bytes of each result's storage, which PyTorch's shapes without numbers do not always tell.

    workspace: what an LSTM's forward operator keeps for backward"""
    known, made = name(call), call.results
    if known in LARGER and len(made) == 1:
        return (max(made[0], dense(tensor(call, "self"))),)
    if known == "mkldnn_rnn_layer" and len(made) == 4:
        return (*made[:3], max(made[3], workspace(call)))
    if known == "mkldnn_rnn_layer_backward" and len(made) == 7:
        return (*made[:4], max(made[3:5]), *made[5:])  # the gradients of both biases, told as one
    return made


def pointwise(call: Call) -> bool:
    """Whether PyTorch says that the operator is element-wise."""
    import torch

    return torch.Tag.pointwise in getattr(call.target, "tags", ())


def _is_view(call: Call) -> bool:
    returns = schema_of(call.target).returns
    return all(r.alias_info is not None and not r.alias_info.is_write for r in returns) and bool(returns)


def tensor(call: Call, argument: str) -> Form:
    """A tensor among the call's arguments. Raises Unlike."""
    result = call.argument(argument)
    if not isinstance(result, Form):
        raise Unlike(f"{call.key}: {argument} is no tensor")
    return result


def numbers(call: Call, argument: str, count: int) -> Sequence[int]:
    """A list of so many numbers among the call's arguments, one for each dimension. Raises Unlike."""
    result = call.argument(argument)
    if isinstance(result, list | tuple) and len(result) in (1, count):
        return [*result] * (count // len(result))
    raise Unlike(f"{call.key}: {argument} are no {count} numbers")


def dense(form: Form) -> int:
    """The bytes of its elements without gaps."""
    return form.numel * form.dtype.itemsize


def copy(form: Form) -> int:
    """The bytes of its copy, where an operator reads only what is contiguous."""
    return 0 if form.contiguous else dense(form)


def matrix_copy(form: Form) -> int:
    """The bytes of the copy of a matrix, or of many, where a product reads rows or columns without gaps alone."""
    if len(form.size) < 2:
        return 0
    (rows, columns), (down, along) = form.size[-2:], form.stride[-2:]
    plain = (along == 1 and down >= max(1, columns)) or (down == 1 and along >= max(1, rows))
    return 0 if plain or min(rows, columns) == 0 else dense(form)


def copies(*names: str) -> Callable[[Call], int]:
    """A formula: contiguous copies of these arguments."""
    return lambda call: sum(copy(tensor(call, one)) for one in names)


def twice(*names: str) -> Callable[[Call], int]:
    """A formula: these arguments once more."""
    return lambda call: sum(dense(tensor(call, one)) for one in names)


def threads() -> int:
    import torch

    return int(torch.get_num_threads())
