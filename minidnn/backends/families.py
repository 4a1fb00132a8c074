"""The families of ops: kinds that belong together, so that their kernels lie in files of one name.

A backend has a family's kernels in the file of that name, with a table from kind to kernel. This holds for
`reference/`, for `cuda/`, and for each folder of `cpu/`; files in C and CUDA have the same names. So on any backend the
kernel of `batch_norm.forward` is in a file called `normalization`. Files of other names hold parts that families use.

A fused kind (programs/fusion/) belongs to the family of its first part. But every bias gradient, fused or not,
belongs to `bias`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from minidnn.optimizers import RULES
from minidnn.program import MULTI_TENSOR

FAMILIES: dict[str, tuple[str, ...]] = {
    # a batch of samples as they are, made into the input that layers read
    "samples": ("input.transform",),
    # products of filters with the windows of images
    "convolution": (
        "convolution.forward",
        "convolution.forward_relu",
        "convolution.backward_data",
        "convolution.backward_filter",
    ),
    # products of matrices
    "inner_product": (
        "inner_product.forward",
        "inner_product.forward_relu",
        "inner_product.backward_data",
        "inner_product.backward_filter",
    ),
    # products of pairs of matrices, many at a time
    "matmul": ("matmul.forward",),
    # softmax(q k') v, without a matrix of tokens x tokens
    "attention": ("attention.forward", "attention.forward_kept", "attention.backward"),
    # pairs of numbers turned by angles that grow with the token's place
    "rotary": ("rotary.forward", "rotary.backward"),
    # LSTM and GRU, step by step: what does not depend on the step before are products of other families
    "recurrent": ("recurrent.forward", "recurrent.backward", "recurrent.previous"),
    # bias gradients: sums over all axes but the channels
    "bias": (
        "convolution.backward_bias",
        "inner_product.backward_bias",
        "scale.backward_bias",
        "relu.backward_bias",
        "relu.backward_bias_slice",
    ),
    # the maximum or the mean of each window
    "pooling": ("pooling.forward", "pooling.backward", "pooling.backward_relu"),
    # a function of each element: ReLU, the functions of layers/unary.py, and PReLU, which has learnt slopes
    "activation": (
        "relu.forward",
        "relu.backward",
        "unary.forward",
        "unary.backward",
        "prelu.forward",
        "prelu.backward_data",
        "prelu.backward_filter",
    ),
    # BatchNorm and Scale: shift and scale each channel
    "normalization": (
        "batch_norm.forward",
        "batch_norm.moments",
        "batch_norm.merge_moments",
        "batch_norm.merge_sums",
        "batch_norm.normalize",
        "batch_norm.normalize_scale",
        "batch_norm.normalize_scale_relu",
        "batch_norm.normalize_scale_add_relu",
        "batch_norm.backward",
        "batch_norm.backward_scale",
        "batch_norm.backward_scale_relu",
        "batch_norm.backward_sums",
        "batch_norm.backward_sums_scale",
        "batch_norm.backward_sums_scale_relu",
        "batch_norm.backward_data",
        "batch_norm.backward_data_scale",
        "batch_norm.backward_data_scale_relu",
        "batch_norm.statistics",
        "batch_norm.keep",
        "batch_norm.statistics_multi_tensor",
        "batch_norm.inference",
        "batch_norm.inference_scale",
        "batch_norm.inference_scale_relu",
        "batch_norm.inference_scale_add_relu",
        "batch_norm.inference_backward",
        "scale.forward",
        "scale.backward_data",
        "scale.backward_filter",
    ),
    # GroupNorm, InstanceNorm: shift and scale each group of channels of a sample by its own mean and deviation
    "group_norm": ("group_norm.forward", "group_norm.backward"),
    # LayerNorm, RMSNorm, MVN, Normalize: shift and scale each row by its own mean and size
    "row_norm": ("row_norm.forward", "row_norm.backward_data", "row_norm.backward_filter"),
    # a few numbers for each row: its sum, its largest elements
    "summary": ("reduction.forward", "reduction.backward", "argmax.forward"),
    # a factor or a constant that spans some axes, and sums over the others
    "broadcast": ("broadcast.multiply", "broadcast.add", "broadcast.sum", "broadcast.sum_products"),
    # images in another size
    "resize": ("resize.forward", "resize.backward"),
    # local response normalization: divides each element by a function of the squares around it
    "lrn": ("lrn.forward", "lrn.backward"),
    # elements set to 0 at random, or factors that are 0 at random
    "dropout": ("dropout.forward", "dropout.backward", "dropout.factors"),
    # sums, products and maxima of tensors of one shape, and copies of them
    "elementwise": (
        "eltwise.forward",
        "eltwise.forward_relu",
        "eltwise.backward",
        "gradient.add",
        "gradient.fill",
        "gradient.add_slice",
        "gradient.sum",
        "gradient.sum_relu",
        "identity.forward",
        "cast.forward",
        "cast.forward_multi_tensor",
        "cast.backward",
    ),
    # tensors joined along an axis and taken apart, or given another shape: Concat, Slice, Flatten, Reshape
    "join": ("concat.forward", "concat.backward", "flatten.forward", "flatten.backward"),
    # boxes, axes in another order, tiles, elements moved in a circle
    "move": (
        "crop.forward",
        "crop.backward",
        "permute.forward",
        "permute.backward",
        "tile.forward",
        "tile.backward",
        "roll.forward",
    ),
    # windows as columns, rows by their numbers, or by how far two places are apart
    "gather": (
        "im2col.forward",
        "im2col.backward",
        "batch_reindex.forward",
        "batch_reindex.backward",
        "relative_bias.forward",
        "relative_bias.backward",
    ),
    # scores against labels, and the weighted sum of all losses
    "loss": (
        "softmax.forward",
        "softmax.backward",
        "softmax_loss.forward",
        "softmax_loss.backward",
        "accuracy.forward",
        "accuracy.by_class",
        "objective.forward",
        "objective.sum",
    ),
    # the softmax loss of an inner product, some rows of scores at a time
    "linear_loss": ("linear_loss.forward",),
    # how far numbers are from targets or labels, element by element, and vectors from each other
    "distance": (
        "pointwise_loss.forward",
        "pointwise_loss.backward",
        "contrastive_loss.forward",
        "contrastive_loss.backward",
    ),
    # optimizers other than SGD
    "rules": (*(f"{rule}.update{each}" for rule in RULES for each in ("", MULTI_TENSOR)), "lamb.moments"),
    # gradients of weights over micro-batches and ranks
    "sums": ("gradient.accumulate", "gradient.total", "gradient.merge"),
    # sums of squares by blocks, and what norms serve: clipping, the loss's scale, the ratios of LARS and LAMB
    "norms": ("gradient.squares", "gradient.clip", "gradient.unscale", "lars.ratio", "lamb.ratio"),
    # gradients of weights, applied by the optimizer
    "update": ("sgd.update", "sgd.update_multi_tensor"),
}


def joined(package: str, table: str) -> dict[str, Any]:
    """{kind: its kernel, or what makes its recipes}: the tables of that name in the files that the package has for
    families. All of these files are imported; some lack that table, and have another one."""
    files = [name for family in FAMILIES if find_spec(name := f"{package}.{family}")]
    tables = [vars(import_module(name)).get(table, {}) for name in files]
    return {kind: make for each in tables for kind, make in each.items()}
