"""The family of each op of PyTorch: what it computes, by which policies and costs tell what is dear and what is cheap.

The families of minidnn's own layers have their names here, too, so that policies of papers find what they know. An op
that no family has is one of single elements, a copy, or a sum: it is bound by memory.
"""

from __future__ import annotations

# family -> names of ops, without their namespace and overload. Their `_backward` belongs to it, too.
FAMILIES: dict[str, tuple[str, ...]] = {
    # products (program.PRODUCTS)
    "convolution": (
        "convolution", "_convolution", "convolution_overrideable", "cudnn_convolution", "cudnn_convolution_transpose",
        "mkldnn_convolution", "miopen_convolution", "_slow_conv2d_forward", "thnn_conv2d", "conv_depthwise3d",
        "_conv_depthwise2d", "slow_conv3d_forward", "slow_conv_transpose2d", "mps_convolution",
    ),
    "inner_product": (
        "mm", "addmm", "_addmm_activation", "mv", "addmv", "dot", "vdot", "linear", "mkldnn_linear", "_scaled_mm",
        "_int_mm", "_grouped_mm", "addr",
    ),
    "matmul": ("bmm", "baddbmm", "addbmm", "matmul", "_trilinear", "_cdist_forward", "_cdist"),
    "attention": (
        "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_fused_attention_overrideable", "_scaled_dot_product_attention_math_for_mps",
        "_flash_attention_forward", "_flash_attention", "_efficient_attention_forward", "_efficient_attention",
        "_cudnn_attention_forward", "_cudnn_attention",
    ),
    "recurrent": (
        "mkldnn_rnn_layer", "_cudnn_rnn", "miopen_rnn", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell",
    ),
    # sums over a batch, a row or a group, then elements
    "batch_norm": (
        "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional", "cudnn_batch_norm",
        "_batch_norm_with_update", "miopen_batch_norm", "batch_norm", "batch_norm_elemt", "batch_norm_stats",
    ),
    "layer_norm": ("native_layer_norm", "_fused_rms_norm"),
    "group_norm": ("native_group_norm",),
    "softmax": ("_softmax", "_log_softmax", "_masked_softmax", "_safe_softmax"),
    "loss": ("nll_loss", "nll_loss_forward", "nll_loss2d", "nll_loss2d_forward", "mse_loss", "l1_loss", "huber_loss",
             "smooth_l1_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "_ctc_loss"),
    "pooling": (
        "max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool1d", "avg_pool2d", "avg_pool3d",
        "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d",
    ),
    # single elements
    "relu": ("relu", "threshold", "leaky_relu", "hardtanh", "elu", "rrelu_with_noise", "_prelu_kernel"),
    "gelu": ("gelu", "silu", "mish", "hardswish", "glu", "hardsigmoid", "log_sigmoid", "log_sigmoid_forward",
             "softplus"),
    "dropout": ("native_dropout", "bernoulli", "_fused_dropout", "alpha_dropout", "feature_dropout"),
    # moves
    "embed": ("embedding", "embedding_dense", "_embedding_bag"),
    "concat": ("cat", "stack"),
    "resize": ("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_bilinear2d",
               "upsample_bicubic2d", "upsample_linear1d", "upsample_trilinear3d", "grid_sampler_2d",
               "grid_sampler_3d"),
}  # fmt: skip
OTHER = "aten"
_FAMILY = {op: family for family, ops in FAMILIES.items() for op in ops}


def family(op: str) -> str:
    """The family of an op: "convolution" of "convolution_backward", and of "relu" as of "relu_"."""
    name = op.rstrip("_")
    for end in ("", "_backward", "_backward_data"):
        if name.endswith(end) and (known := _FAMILY.get(name.removesuffix(end) if end else name)):
            return known
    return OTHER


def kind(op: str) -> str:
    """The kind of an op (program.Op): its family, a dot, its name."""
    return f"{family(op)}.{op}"
