"""Scratch on a GPU by formula, where there is none to measure on. No GPU has confirmed it.

It follows PyTorch's sources where they say what an operator takes. Where a library decides, it is an assumption:

    cuBLAS        PyTorch gives it one workspace for each stream, of a default size: 8 MiB and 128 KiB, or 32 MiB on
                  Hopper and later. It stays, and so counts as `lasting`, not with each product
    products      a matrix without a dense dimension is copied
    cuDNN         its choice is unknown. It is assumed to lay out operands and result anew, as its kernels for tensor
                  cores do; the gradient of weights is summed up in 32 bits
    attention     backward sums the queries' gradient in 32 bits, and has a number for each row of scores, in blocks of
                  128 rows and of 32 numbers of a row; keys' and values' gradients for each of the queries' heads
    embedding     backward sorts the indices, and sums equal ones up in parts of 10
    sort, topk    values and indices, once more
    softmax, layer_norm     contiguous copies of what is not
    LSTM          cuDNN's workspace and what it keeps for backward: gates and cells of all times, each
    element-wise  nothing: kernels convert types as they read
"""

from __future__ import annotations

from math import prod

from minidnn.torch.scratch import table
from minidnn.torch.scratch.calls import Call
from minidnn.torch.scratch.cpu_convolution import Convolution
from minidnn.torch.scratch.table import copies, copy, dense, entry, matrix_copy, tensor, twice

CAPABILITY = (8, 0)  # of the GPU, where nobody says it
HOPPER = (9, 0)
KIB = 1 << 10
WORKSPACE, WORKSPACE_HOPPER = (2 * 4096 + 8 * 16) * KIB, 8 * 4096 * KIB
PART = 10  # equal indices that one sum of an embedding's gradient takes
INDEX, FLOAT = 8, 4  # bytes
CELLS = 6  # numbers of a hidden unit: 4 gates, the cell, the output
ROWS, WIDTH = 128, 32  # of a block of an attention's scores
SUMS = 64  # blocks of rows whose sums of a layer norm's weights are added up


def lasting(capability: tuple[int, int]) -> int:
    """Bytes that cuBLAS's workspace takes from the first product on."""
    return WORKSPACE_HOPPER if capability >= HOPPER else WORKSPACE


def scratch(call: Call, capability: tuple[int, int]) -> int | None:
    """Bytes beside the results; None where the table has no line."""
    return entry(TABLE, call)


def results(call: Call) -> tuple[int, ...]:
    """The bytes of each result's storage."""
    return table.results(call, _lstm)


def _lstm(call: Call) -> int:
    form = tensor(call, "input")
    return form.size[0] * form.size[1] * CELLS * call.argument("hidden_size") * form.dtype.itemsize


def _matrices(call: Call) -> int:
    return sum(map(matrix_copy, call.forms))


def _convolution(call: Call) -> int:
    c = Convolution(call)
    return dense(c.x) + dense(c.w) + sum(call.results)


def _convolution_backward(call: Call) -> int:
    c = Convolution(call)
    weights = c.w.numel * FLOAT if c.item < FLOAT else 0
    return dense(c.x) * 2 + dense(tensor(call, "grad_output")) + dense(c.w) * 2 + weights


def _layer_norm_backward(call: Call) -> int:
    width = prod(call.argument("normalized_shape"))
    return copies("grad_out", "input")(call) + 2 * SUMS * width * FLOAT


def _group_norm_backward(call: Call) -> int:
    return copies("grad_out", "input")(call) + 5 * call.argument("N") * call.argument("C") * FLOAT


def _attention_backward(call: Call) -> int:
    query, key = tensor(call, "query"), tensor(call, "key")
    *heads, rows, width = query.size
    blocks = prod(heads) * -(-rows // ROWS) * ROWS
    expanded = key.numel // max(1, key.size[1]) * query.size[1] if key.size[1] != query.size[1] else 0
    return blocks * (-(-width // WIDTH) * WIDTH + 1) * FLOAT + 2 * expanded * key.dtype.itemsize


def _embedding_backward(call: Call) -> int:
    gradient, indices = tensor(call, "grad_output"), tensor(call, "indices").numel
    parts = -(-indices // PART) + min(indices, call.argument("num_weights"))
    return copy(gradient) + 4 * indices * INDEX + parts * gradient.size[-1] * FLOAT


def _index_put(call: Call) -> int:
    """Where it adds up, indices are sorted, as in an embedding's backward."""
    indices = (form.numel for form in call.argument("indices") if form is not None)
    return 4 * max(indices, default=0) * INDEX if call.argument("accumulate") else 0


def _sorted(call: Call) -> int:
    form = tensor(call, "self")
    return 2 * (dense(form) + form.numel * INDEX)


_BACKWARDS = (
    "_scaled_dot_product_flash_attention_backward",
    "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_cudnn_attention_backward",
    "_scaled_dot_product_flash_attention_for_cpu_backward",  # of a module that was traced for a CPU
)
_FORWARDS = tuple(one.removesuffix("_backward") for one in _BACKWARDS)
TABLE = {
    **{one: _matrices for one in ("mm", "addmm", "bmm", "baddbmm", "addmv", "mv")},
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    **{one: copies("self") for one in ("_softmax", "_log_softmax")},
    **{f"{one}_backward_data": copies("grad_output", "output") for one in ("_softmax", "_log_softmax")},
    **{one: copies("input") for one in ("native_layer_norm", "native_group_norm", "native_batch_norm")},
    "_fused_rms_norm": copies("input"),
    "native_layer_norm_backward": _layer_norm_backward,
    "native_group_norm_backward": _group_norm_backward,
    "native_batch_norm_backward": copies("grad_out", "input"),
    **{one: _attention_backward for one in _BACKWARDS},
    **{one: lambda call: 0 for one in _FORWARDS},
    "embedding_dense_backward": _embedding_backward,
    "index_put": _index_put,
    "_fft_r2c": twice("self"),
    **{one: _lstm for one in ("mkldnn_rnn_layer", "mkldnn_rnn_layer_backward")},  # of a module traced for a CPU
    **{one: _sorted for one in ("sort", "topk", "kthvalue", "median")},
    **{one: twice("self") for one in ("mse_loss", "smooth_l1_loss", "huber_loss", "logsumexp")},
    "binary_cross_entropy_with_logits": twice("self", "self"),
    **{one: lambda call: 0 for one in ("upsample_nearest2d", "upsample_bilinear2d", "native_dropout")},
}
