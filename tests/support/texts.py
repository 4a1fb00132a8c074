"""The texts of net files."""

from __future__ import annotations

NET = """\
name: small
layer:
- {name: data, type: Data, top: [data, label], data_param: {source: "synthetic:3x12x12:classes=5", batch_size: 4}}
- {name: conv1, type: Convolution, bottom: data, top: conv1, convolution_param: {num_output: 8, kernel_size: 3, pad: 1, weight_filler: {type: xavier}}}
- {name: relu1, type: ReLU, bottom: conv1, top: conv1}
- {name: conv2, type: Convolution, bottom: conv1, top: conv2, convolution_param: {num_output: 8, kernel_size: 3, pad: 1, weight_filler: {type: xavier}}}
- {name: relu2, type: ReLU, bottom: conv2, top: conv2}
- {name: conv3, type: Convolution, bottom: conv2, top: conv3, convolution_param: {num_output: 8, kernel_size: 3, pad: 1, weight_filler: {type: xavier}}}
- {name: relu3, type: ReLU, bottom: conv3, top: conv3}
- {name: pool, type: Pooling, bottom: conv3, top: pool, pooling_param: {pool: MAX, kernel_size: 2, stride: 2}}
- {name: ip, type: InnerProduct, bottom: pool, top: ip, inner_product_param: {num_output: 5, weight_filler: {type: xavier}}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
"""  # noqa: E501
