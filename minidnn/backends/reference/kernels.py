"""The table from op kind to kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minidnn.backends.reference import convolution, dense, elementwise, fused, loss, normalization, pooling, update

Kernel = Callable[[Any, Sequence[np.ndarray], Sequence[np.ndarray]], None]

KERNELS: dict[str, Kernel] = {
    "convolution.forward": convolution.forward,
    "convolution.backward_filter": convolution.backward_filter,
    "convolution.backward_bias": dense.backward_bias,
    "convolution.backward_data": convolution.backward_data,
    "inner_product.forward": dense.forward,
    "inner_product.backward_filter": dense.backward_filter,
    "inner_product.backward_bias": dense.backward_bias,
    "inner_product.backward_data": dense.backward_data,
    "convolution.forward_relu": fused.convolution_relu,
    "inner_product.forward_relu": fused.inner_product_relu,
    "relu.backward_bias": fused.relu_backward_bias,
    "pooling.backward_relu": fused.pooling_backward_relu,
    "batch_norm.forward_scale": fused.batch_norm_scale,
    "batch_norm.forward_scale_relu": fused.batch_norm_scale_relu,
    "batch_norm.inference_scale": fused.batch_norm_inference_scale,
    "batch_norm.inference_scale_relu": fused.batch_norm_inference_scale_relu,
    "batch_norm.backward_scale": fused.batch_norm_backward_scale,
    "batch_norm.backward_scale_relu": fused.batch_norm_backward_scale_relu,
    "pooling.forward": pooling.forward,
    "pooling.backward": pooling.backward,
    "relu.forward": elementwise.relu_forward,
    "relu.backward": elementwise.relu_backward,
    "dropout.forward": elementwise.dropout,
    "dropout.backward": elementwise.dropout,
    "identity.forward": elementwise.copy,
    "flatten.forward": elementwise.reshape,
    "flatten.backward": elementwise.reshape,
    "concat.forward": elementwise.concat_forward,
    "concat.backward": elementwise.concat_backward,
    "eltwise.forward": elementwise.eltwise_forward,
    "eltwise.backward": elementwise.eltwise_backward,
    "cast.forward": elementwise.cast,
    "cast.backward": elementwise.cast,
    "gradient.add": elementwise.add,
    "lrn.forward": normalization.lrn_forward,
    "lrn.backward": normalization.lrn_backward,
    "batch_norm.forward": normalization.batch_norm_forward,
    "batch_norm.statistics": normalization.batch_norm_statistics,
    "batch_norm.backward": normalization.batch_norm_backward,
    "batch_norm.inference": normalization.batch_norm_inference,
    "batch_norm.inference_backward": normalization.batch_norm_inference_backward,
    "scale.forward": normalization.scale_forward,
    "scale.backward_filter": normalization.scale_backward_filter,
    "scale.backward_bias": dense.backward_bias,
    "scale.backward_data": normalization.scale_backward_data,
    "softmax.forward": loss.softmax_forward,
    "softmax.backward": loss.softmax_backward,
    "softmax_loss.forward": loss.softmax_loss_forward,
    "softmax_loss.backward": loss.softmax_loss_backward,
    "accuracy.forward": loss.accuracy,
    "objective.forward": loss.objective,
    "gradient.accumulate": update.accumulate,
    "gradient.clear": update.clear,
    "gradient.clip": update.clip,
    "gradient.unscale": update.unscale,
    "sgd.update": update.sgd,
}
