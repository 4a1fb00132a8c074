"""Nets of each layer type, written as prototxt and caffemodel with random weights, have OpenCV's outputs.

OpenCV reads Caffe's files with code of its own. A type that is neither in NETS nor in WITHOUT fails: it belongs to one
of them."""

from __future__ import annotations

import numpy as np
import pytest

from minidnn.layers import LAYERS
from minidnn.nets.net import Net
from minidnn.training import caffemodel
from minidnn.training.session import Session

IMAGE = (2, 6, 9, 7)

# type -> cases; a case is the bottoms' shapes, the layer's fields, and maybe layers before it
NETS: dict[str, list[tuple[list[tuple[int, ...]], str]]] = {
    "Convolution": [
        ([IMAGE], "convolution_param { num_output: 4 kernel_size: 3 pad: 1 stride: 2 }"),
        ([IMAGE], "convolution_param { num_output: 6 kernel_h: 2 kernel_w: 3 pad_h: 1 pad_w: 2 group: 3 dilation: 2 }"),
        ([IMAGE], "convolution_param { num_output: 6 kernel_size: 3 group: 6 bias_term: false }"),
    ],
    "Deconvolution": [
        ([IMAGE], "convolution_param { num_output: 4 kernel_size: 3 pad: 1 stride: 2 }"),
        ([IMAGE], "convolution_param { num_output: 6 kernel_size: 4 stride: 2 group: 3 bias_term: false }"),
    ],
    "Pooling": [
        ([IMAGE], "pooling_param { kernel_size: 3 stride: 2 }"),
        ([IMAGE], "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }"),
        ([IMAGE], "pooling_param { pool: AVE global_pooling: true }"),
        ([IMAGE], "pooling_param { kernel_size: 2 stride: 2 round_mode: FLOOR }"),
    ],
    "InnerProduct": [([IMAGE], "inner_product_param { num_output: 5 }")],
    "LRN": [
        ([IMAGE], "lrn_param { local_size: 3 alpha: 0.3 beta: 0.6 }"),
        ([IMAGE], "lrn_param { local_size: 3 alpha: 0.3 beta: 0.6 norm_region: WITHIN_CHANNEL }"),
    ],
    "BatchNorm": [([IMAGE], "batch_norm_param { eps: 0.001 }")],
    "Scale": [([IMAGE], "scale_param { bias_term: true }"), ([IMAGE], "")],
    "ReLU": [([IMAGE], ""), ([IMAGE], "relu_param { negative_slope: 0.2 }")],
    "PReLU": [([IMAGE], "")],
    "ELU": [([IMAGE], "elu_param { alpha: 1 }")],
    "Sigmoid": [([IMAGE], "")],
    "TanH": [([IMAGE], "")],
    "AbsVal": [([IMAGE], "")],
    "BNLL": [([IMAGE], "")],
    "Power": [([IMAGE], "power_param { power: 2 scale: 0.5 shift: 0.25 }")],
    "Exp": [([IMAGE], "exp_param { base: 2 scale: 0.5 shift: 0.25 }")],
    "Swish": [([IMAGE], "")],
    "Erf": [([IMAGE], "")],
    "HardSwish": [([IMAGE], "")],
    "Mish": [([IMAGE], "")],
    "Dropout": [([IMAGE], "dropout_param { dropout_ratio: 0.4 }")],
    "Softmax": [([IMAGE], ""), ([(3, 5)], "")],
    "Flatten": [([IMAGE], ""), ([IMAGE], "flatten_param { axis: 2 }")],
    "Reshape": [([IMAGE], "reshape_param { shape { dim: 0 dim: -1 dim: 7 } }")],
    "Permute": [([IMAGE], "permute_param { order: 0 order: 2 order: 3 order: 1 }")],
    "Concat": [([IMAGE, (2, 3, 9, 7)], ""), ([IMAGE, IMAGE], "concat_param { axis: 2 }")],
    "Eltwise": [
        ([IMAGE, IMAGE], "eltwise_param { operation: SUM coeff: 0.5 coeff: -2 }"),
        ([IMAGE, IMAGE], "eltwise_param { operation: PROD }"),
        ([IMAGE, IMAGE], "eltwise_param { operation: MAX }"),
    ],
    "Crop": [([IMAGE, (2, 6, 5, 4)], "crop_param { axis: 2 offset: 2 offset: 1 }")],
    "Slice": [([IMAGE], "slice_param { axis: 1 slice_point: 2 }")],
    "MVN": [([IMAGE], "mvn_param { across_channels: true }"), ([IMAGE], "mvn_param { normalize_variance: false }")],
    "Normalize": [([IMAGE], "norm_param { across_spatial: false channel_shared: false }")],
}
# OpenCV has no layer of the same meaning, or it has no use in inference.
WITHOUT = {
    "Input", "Data", "DummyData", "HDF5Data", "ImageData", "MemoryData", "Parameter", "Split", "Silence", "Accuracy",
    "ArgMax", "Attention", "BatchReindex", "Bias", "ClassToken", "Clip", "Embed", "GELU", "GRU", "GroupNorm",
    "HardSigmoid", "Im2col", "InstanceNorm", "Interp", "LSTM", "LayerNorm", "Log", "MatMul", "Pad", "RMSNorm",
    "Reduction", "RelativePositionBias", "Roll", "RotaryEmbedding", "SPP", "StochasticDepth", "Threshold", "Tile",
    "Upsample",
    "SoftmaxWithLoss", "SigmoidCrossEntropyLoss", "EuclideanLoss", "SmoothL1Loss", "HingeLoss", "ContrastiveLoss",
    "InfogainLoss", "InnerProductWithLoss", "MultinomialLogisticLoss",
}  # fmt: skip
CASES = [(kind, *case) for kind, cases in NETS.items() for case in cases]
TOPS = {"Slice": 2}


def test_every_layer_type_is_compared_or_has_a_reason_not_to_be():
    assert {kind for kind in LAYERS if kind not in NETS and kind not in WITHOUT and kind == LAYERS[kind].type} == set()


def net_of(kind: str, shapes: list[tuple[int, ...]], fields: str) -> Net:
    names = [f"in{i}" for i in range(len(shapes))]
    text = ""
    for name, shape in zip(names, shapes, strict=True):
        dims = " ".join(f"dim: {n}" for n in shape)
        text += f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {dims} }} }} }}\n'
    bottoms = " ".join(f'bottom: "{name}"' for name in names)
    tops = " ".join(f'top: "out{i or ""}"' for i in range(TOPS.get(kind, 1)))
    text += f'layer {{ name: "it" type: "{kind}" {bottoms} {tops} {fields} }}\n'
    return Net.from_text(text, source="net.prototxt")


@pytest.mark.peer("cv2")
@pytest.mark.parametrize(("kind", "shapes", "fields"), CASES, ids=[f"{kind}-{fields}" for kind, _, fields in CASES])
def test_outputs_are_opencv_s(kind, shapes, fields, tmp_path):
    from cv2 import dnn

    if kind not in LAYERS:
        pytest.skip(f"there is no layer {kind}")
    random = np.random.default_rng(sum(map(ord, kind + fields)))
    net = net_of(kind, shapes, fields)
    given = {f"in{i}": random.uniform(-2, 2, shape).astype(np.float32) for i, shape in enumerate(shapes)}
    with Session(net, device="reference", keep=["out"]) as session:
        for blobs in session.params.values():
            for name in blobs:  # positive, since some are variances
                blobs[name] = random.uniform(0.2, 1, blobs[name].shape)
        weights = {layer: [blobs.rows(name) for name in blobs] for layer, blobs in session.params.items()}
        ours = session.forward(given)["out"]
    text, model = tmp_path / "net.prototxt", tmp_path / "net.caffemodel"
    text.write_text(net.to_prototxt().replace("round_mode: FLOOR", "ceil_mode: false"))  # OpenCV has forks' name alone
    model.write_bytes(b"".join(caffemodel.pieces(net.parameter, weights)))
    theirs = dnn.readNetFromCaffe(str(text), str(model))
    for name, array in given.items():
        theirs.setInput(array, name)
    found = theirs.forward(theirs.getLayerNames()[-1])  # of several outputs, the first
    assert found.shape == ours.shape
    assert abs(found - ours).max() <= 1e-4 * abs(ours).max()
