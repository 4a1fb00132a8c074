"""Fields and types of Caffe and its forks that minidnn lacks, with the reason that the error gives. None is ignored
silently."""

from __future__ import annotations

# Fields of Caffe and its forks that minidnn refuses, and the reason that the error gives: message -> field -> reason.
_LARC = (
    'NVCaffe\'s LARC, which minidnn does not do; the nearest is type: "LARS" with '
    "trust_coefficient: (1 - momentum) * larc_eta; or leave it out"
)
_NOT_DONE = "Caffe's, but minidnn does not do it"
NOT_DONE: dict[str, dict[str, str]] = {
    "NetParameter": {"debug_info": _NOT_DONE},
    "LayerParameter": dict.fromkeys(("phase", "blobs"), _NOT_DONE),
    "FillerParameter": {},
    "BatchNormParameter": dict.fromkeys(
        ("scale_bias", "scale_filler", "bias_filler"),
        "a fork's field, read in a .prototxt; the affine part is a Scale layer",
    ),
    "DropoutParameter": {
        "scale_train": "Fast R-CNN's: false scales in TEST, not in TRAIN, which minidnn does not do; leave out true"
    },
    "SolverParameter": {
        "snapshot_diff": "snapshots hold no gradients; leave it out",
        "layer_wise_reduce": "for Caffe on several GPUs, and minidnn uses one; leave it out",
        "weights": "name the file where the run begins: --weights FILE, or Solver(weights=...)",
        **dict.fromkeys(("larc", "larc_policy", "larc_eta", "larc_turbo"), _LARC),
        "solver_data_type": "NVCaffe's; write `minidnn: {format: float16}`, or leave it out",
    },
}  # fmt: skip

V0 = "Caffe's oldest format (V0), a layer within layers; let Caffe's upgrade_net_proto_text rewrite the file once"

_SSD = "SSD's, for detection, which minidnn does not do"
_RECURRENT = "of recurrent layers minidnn has LSTM and GRU"
_SOURCE = "write a Data layer with one of its sources (docs/training.md), such as npz:PATH"
# Layer types of Caffe and its forks that minidnn refuses: type -> reason.
TYPES_NOT_DONE: dict[str, str] = {
    "Python": "what it computes is in a Python file, not in this one; write a layer of your own (CONTRIBUTING.md)",
    **dict.fromkeys(("PriorBox", "MultiBoxLoss", "DetectionOutput", "DetectionEvaluate", "AnnotatedData"), _SSD),
    **dict.fromkeys(("ROIPooling", "PSROIPooling", "ROIAlign", "Proposal"), "for detection, which minidnn does not do"),
    **dict.fromkeys(("RNN", "LSTMUnit", "Recurrent"), _RECURRENT),
    **dict.fromkeys(("WindowData", "DenseImageData"), _SOURCE),
    "HDF5Output": "minidnn writes no HDF5; name the blob as an output, or `keep` it in Python",
    "Filter": "the shape of its tops depends on values, and a plan needs shapes before the first step",
    "Axpy": "SENet's, read in a .prototxt; write Flatten and Scale for the product, and Eltwise for the sum",
    "BN": "SegNet's; write BatchNorm and, after it, Scale with a bias_term",
    "ShuffleChannel": "ShuffleNet's, read in a .prototxt; write Reshape, Permute, Reshape",
    **dict.fromkeys(
        ("ConvolutionDepthwise", "DepthwiseConvolution"), "a fork's, read in a .prototxt; write Convolution with group"
    ),
    "ReLU6": "a fork's, read in a .prototxt; write Clip with min: 0 and max: 6",
    "ImageLabelmapData": "HED's, images with maps of labels; write a Data layer for each (docs/training.md)",
}
