"""Fields and types of Caffe and its forks that minidnn lacks, with the reason that the error gives. None is ignored
silently."""

from __future__ import annotations

# Fields of Caffe and its forks that minidnn refuses, and the reason that the error gives: message -> field -> reason.
_NOT_DONE = "Caffe's, but minidnn does not do it"
NOT_DONE: dict[str, dict[str, str]] = {
    "NetParameter": {"debug_info": _NOT_DONE},
    "LayerParameter": dict.fromkeys(("phase", "blobs"), _NOT_DONE),
    "FillerParameter": {},
    "DataParameter": dict.fromkeys(("shuffle", "cache"), "a fork's field, not Caffe's"),
    "BatchNormParameter": dict.fromkeys(
        ("scale_bias", "scale_filler", "bias_filler", "engine"),
        "a fork's field, not Caffe's; the affine part is a Scale layer",
    ),
    "SolverParameter": {
        "snapshot_diff": "snapshots hold no gradients; leave it out",
        "layer_wise_reduce": "for Caffe on several GPUs, and minidnn uses one; leave it out",
        "weights": "name the file where the run begins: --weights FILE, or Solver(weights=...)",
        "device_id": "write the GPU's number as `minidnn: {device: cuda:1}`",
    },
}  # fmt: skip

V0 = "Caffe's oldest format (V0), a layer within layers; let Caffe's upgrade_net_proto_text rewrite the file once"

_SSD = "SSD's, for detection, which minidnn does not do"
_RECURRENT = "minidnn has no recurrent layers"
_SOURCE = "write a Data layer with one of its sources (docs/training.md), such as npz:PATH"
# Layer types of Caffe and its forks that minidnn refuses: type -> reason.
TYPES_NOT_DONE: dict[str, str] = {
    "Python": "what it computes is in a Python file, not in this one; write a layer of your own (CONTRIBUTING.md)",
    **dict.fromkeys(("PriorBox", "MultiBoxLoss", "DetectionOutput", "DetectionEvaluate", "AnnotatedData"), _SSD),
    **dict.fromkeys(("ROIPooling", "PSROIPooling", "ROIAlign", "Proposal"), "for detection, which minidnn does not do"),
    **dict.fromkeys(("LSTM", "RNN", "LSTMUnit", "Recurrent"), _RECURRENT),
    **dict.fromkeys(("WindowData", "DenseImageData"), _SOURCE),
    "HDF5Output": "minidnn writes no HDF5; name the blob as an output, or `keep` it in Python",
    "Filter": "the shape of its tops depends on values, and a plan needs shapes before the first step",
    "Axpy": "SENet's; write the product as a Scale or a Tile with an Eltwise PROD, and the sum as an Eltwise",
    "BN": "SegNet's; write BatchNorm and, after it, Scale with a bias_term",
    "ShuffleChannel": "ShuffleNet's; write Reshape, Permute, Reshape",
    **dict.fromkeys(("ConvolutionDepthwise", "DepthwiseConvolution"), "a fork's; write Convolution with group"),
    "ReLU6": "a fork's; write Clip with min: 0 and max: 6",
}
