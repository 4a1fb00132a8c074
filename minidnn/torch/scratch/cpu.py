"""Scratch on a CPU by formula, where an operator cannot be measured: its tensors take too much memory, or it needs
numbers that nobody can make for it.

The formulas were fitted to measured values of PyTorch 2.13 with oneDNN 3.12, in AVX-512, on one thread and on two.
Where a choice of a library's is not known, the larger one counts. Convolutions are in `cpu_convolution.py`.

    bfloat16     a product takes copies of its second operand and of its result in the library's layout
    attention    PyTorch's flash kernel: each thread has a block of scores, of sums and of results
    LSTM         oneDNN: gates of all times, and the weights in its layout
    losses       the loss of each element, before it is summed up; its storage then holds the sum
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from minidnn.torch.scratch import table
from minidnn.torch.scratch.calls import Call, Form, Unlike
from minidnn.torch.scratch.cpu_convolution import backward, forward
from minidnn.torch.scratch.table import (
    SCALAR,
    copies,
    copy,
    dense,
    entry,
    matrix_copy,
    name,
    pointwise,
    tensor,
    threads,
    twice,
)

REST, LSTM_REST = 2 << 10, 28 << 10  # bytes that oneDNN takes beside operands, and beside gates and weights
HALF = 2  # bytes of a number in 16 bits


def scratch(call: Call) -> int | None:
    """Bytes beside the results; None where the table has no line."""
    known = entry(TABLE, call)
    return None if known is None else known + (_casts(call) if pointwise(call) else 0)


def _casts(call: Call) -> int:
    """An element-wise kernel reads one type: operands of another one are converted first."""
    wide = [form for form in call.forms if form.size]
    if not wide:
        return SCALAR
    common = max(wide, key=lambda form: (form.dtype.is_floating_point, form.dtype.itemsize)).dtype
    other = (form for form in wide if form.dtype != common and str(form.dtype) != "torch.bool")
    return SCALAR + sum(form.numel * common.itemsize for form in other)


def _elements(call: Call) -> int:
    return dense(tensor(call, "self")) + SCALAR


FACTORS = {"addmm": ("mat1", "mat2"), "baddbmm": ("batch1", "batch2")}  # arguments; others': self and mat2


def _factors(call: Call) -> tuple[Form, Form]:
    first, second = FACTORS.get(name(call), ("self", "mat2"))
    return tensor(call, first), tensor(call, second)


def _matrices(call: Call) -> int:
    first, second = _factors(call)
    result = matrix_copy(first) + matrix_copy(second)
    if str(first.dtype) != "torch.bfloat16":
        return result
    return result + dense(second) + first.size[0] * second.size[1] * HALF + REST


def _batched(call: Call) -> int:
    """Batches of products: what cannot be read in place is copied matrix by matrix."""
    factors = _factors(call)
    result = max(matrix_copy(form) // max(1, form.size[0]) for form in factors)
    return result if factors[0].dtype.itemsize != HALF else result + dense(factors[1]) + sum(call.results)


def _layer_norm_backward(call: Call) -> int:
    """Copies, and the sums over rows that each thread has."""
    width = prod(call.argument("normalized_shape"))
    return copies("grad_out", "input")(call) + threads() * width * 8


def _as_images(*names: str) -> Callable[[Call], int]:
    """Copies of these arguments, where channels are not innermost either; one order for all of them."""

    def result(call: Call) -> int:
        forms = [tensor(call, one) for one in names]
        last = forms[-1].channels_last
        return sum(0 if (form.channels_last if last else form.contiguous) else dense(form) for form in forms)

    return result


def _group_norm_backward(call: Call) -> int:
    return _as_images("grad_out", "input")(call) + 2 * call.argument("N") * call.argument("C") * 4


def _batch_norm(call: Call) -> int:
    channels = tensor(call, "input").size[1]
    return copy(tensor(call, "input")) * (not tensor(call, "input").channels_last) + threads() * channels * 8


def _batch_norm_backward(call: Call) -> int:
    """The gradient of the input, once more."""
    return dense(tensor(call, "input")) + threads() * tensor(call, "input").size[1] * 8


def _upsample(call: Call) -> int:
    """Both tensors with channels innermost, where they do not lie so."""
    form = tensor(call, "self")
    return 0 if form.channels_last else dense(form) + sum(call.results)


def _where_last(call: Call) -> int:
    """The gradient once more, where channels are innermost."""
    return dense(tensor(call, "self")) if tensor(call, "self").channels_last else 0


def _split(queries: int) -> int:
    """The rows of scores that a thread of the flash kernel has at once."""
    return 256 if queries >= 768 else 64 if queries >= 192 else 32


def _attention(call: Call) -> int:
    query, key = tensor(call, "query"), tensor(call, "key")
    rows, columns, width = _split(query.size[-2]), min(512, key.size[-2]), tensor(call, "value").size[-1]
    floats = rows * columns + 2 * rows + rows * width
    if query.dtype.itemsize != HALF:
        return threads() * floats * 4
    return threads() * (floats * 4 + rows * columns * HALF) + 2 * dense(
        key
    )  # which the library's product lays out anew


def _attention_backward(call: Call) -> int:
    query, key = tensor(call, "query"), tensor(call, "key")
    rows, columns = _split(query.size[-2]), min(512, key.size[-2])
    scores = 2 * rows * columns * 4 + rows * 4
    halves = 2 * rows * columns * HALF if query.dtype.itemsize == HALF else 0
    in_float = 3 * dense(query) * 2 if halves else 0
    return threads() * (scores + halves) + in_float + copy(_heads_inner(tensor(call, "grad_out")))


def _heads_inner(form: Form) -> Form:
    """As the kernel reads it: heads within times."""
    batch, heads, times, width = range(4)
    order = (batch, times, heads, width)
    return Form(tuple(form.size[d] for d in order), tuple(form.stride[d] for d in order), form.dtype)


def _sorted(call: Call) -> int:
    """A row of values and of indices, for each thread."""
    return threads() * 16 * max(tensor(call, "self").size, default=1)


def _lstm(call: Call) -> int:
    """Gates of all times, with some room between them; both weights in oneDNN's layout."""
    (times, batch, _), hidden = tensor(call, "input").size, call.argument("hidden_size")
    return times * batch * 4 * (4 * hidden + 16) + _weights(call) + LSTM_REST


def _weights(call: Call) -> int:
    """Bytes of the weights of input and state: the second and third argument, whose names differ."""
    forms = call.args[1:3]
    if len(forms) < 2 or not all(isinstance(form, Form) for form in forms):
        raise Unlike(f"{call.key}: its weights are no tensors")
    return sum(map(dense, forms))


def _lstm_backward(call: Call) -> int:
    return _lstm(call) + _weights(call) + 4 * REST


def results(call: Call) -> tuple[int, ...]:
    """The bytes of each result's storage."""
    return table.results(call, _workspace)


def _workspace(call: Call) -> int:
    """What an LSTM's forward operator keeps for backward: gates, states and their gradients, of all times."""
    (times, batch, width), hidden = tensor(call, "input").size, call.argument("hidden_size")
    return (times + 1) * batch * 4 * (9 * hidden + 6 * max(width, hidden) + 64)


TABLE = {
    "convolution": forward,
    "convolution_backward": backward,
    "mm": _matrices,
    "addmm": _matrices,
    "bmm": _batched,
    "baddbmm": _batched,
    "_softmax": copies("self"),
    "_log_softmax": copies("self"),
    "_softmax_backward_data": copies("grad_output", "output"),
    "_log_softmax_backward_data": copies("grad_output", "output"),
    "native_layer_norm": copies("input"),
    "native_layer_norm_backward": _layer_norm_backward,
    "_fused_rms_norm": twice("input", "input"),
    "native_group_norm_backward": _group_norm_backward,
    "native_batch_norm": _batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
    "upsample_nearest2d": _upsample,
    "upsample_bilinear2d": _upsample,
    "upsample_bicubic2d": lambda call: 4 * REST,
    "upsample_nearest2d_backward": copies("grad_output"),
    "upsample_bilinear2d_backward": copies("grad_output"),
    "avg_pool2d_backward": _where_last,
    "_adaptive_avg_pool2d_backward": _where_last,
    "max_pool2d_with_indices_backward": _as_images("grad_output", "indices", "self"),
    "_cdist_forward": lambda call: sum(
        dense(form) + 2 * prod(form.size[:-1]) * form.dtype.itemsize for form in call.forms
    ),
    "embedding_dense_backward": copies("grad_output"),
    "mse_loss": _elements,
    "smooth_l1_loss": _elements,
    "huber_loss": _elements,
    "binary_cross_entropy_with_logits": lambda call: 2 * _elements(call),
    "logsumexp": lambda call: dense(tensor(call, "self")) + sum(call.results),
    "kthvalue": twice("self", "self", "self"),
    "median": _elements,
    "sort": _sorted,
    "topk": _sorted,
    "mean": lambda call: SCALAR,
    "sum": lambda call: SCALAR,
    "native_dropout": twice("input"),
    "im2col": twice("self"),
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "mkldnn_rnn_layer": _lstm,
    "mkldnn_rnn_layer_backward": _lstm_backward,
}
