"""What other frameworks call our layer types and fields: the hints that go with unknown ones know PyTorch's names,
Keras', and ONNX's."""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches

from minidnn.errors import near
from minidnn.schema.refused import TYPES_NOT_DONE

_AFFINE = ", then 'Scale' with bias_term true for gamma and beta"

# our type -> what it is called elsewhere, as `_bare` writes it
_CALLED = {
    "Accuracy": "accuracyscore categoricalaccuracy sparsecategoricalaccuracy",
    "Attention": "multiheadattention scaleddotproductattention",
    "BatchNorm": "batchnorm batchnormalization syncbatchnorm",
    "Clip": "clamp hardtanh",
    "Concat": "cat concatenate",
    "Convolution": "conv convnd depthwiseconv separableconv",
    "Data": "dataset dataloader imagefolder",
    "Deconvolution": "convtranspose convolutiontranspose transposedconv",
    "Dropout": "spatialdropout",
    "Eltwise": "add sum multiply mul maximum",
    "Embed": "embedding",
    "EuclideanLoss": "mse mseloss meansquarederror l2loss",
    "GroupNorm": "groupnormalization",
    "HingeLoss": "hinge multimarginloss categoricalhinge",
    "InnerProduct": "linear dense fc fullyconnected gemm lineartransform",
    "Input": "inputlayer inputs placeholder",
    "InstanceNorm": "instancenormalization",
    "LRN": "localresponsenorm localresponsenormalization",
    "LSTM": "lstmcell lstmlayer",
    "LayerNorm": "layernormalization",
    "MatMul": "bmm dot batchmatmul",
    "Pad": "zeropad zeropadding constantpad padding",
    "Permute": "transpose",
    "ReLU": "leakyrelu rectifiedlinear",
    "Reduction": "mean reducemean reducesum",
    "Reshape": "view unflatten",
    "Sigmoid": "logistic",
    "SigmoidCrossEntropyLoss": "bce bceloss bcewithlogitsloss binarycrossentropy",
    "SmoothL1Loss": "huber huberloss",
    "SoftmaxWithLoss": "softmaxloss softmaxcrossentropy crossentropy crossentropyloss categoricalcrossentropy "
    "sparsecategoricalcrossentropy softmaxwithcrossentropy",
    "Slice": "chunk",
    "StochasticDepth": "droppath",
    "Swish": "silu",
    "Upsample": "upsampling resizenearestneighbor",
}  # fmt: skip
_POOLS = {
    f"{before}{way}pool{ending}": f" with pool {method}{', and global_pooling true' if before else ''}"
    for way, method in (("max", "MAX"), ("avg", "AVE"), ("average", "AVE"))
    for before in ("", "global", "adaptive")
    for ending in ("", "ing")
}
# what a name asks for besides the type
_BESIDES = {
    **dict.fromkeys(("batchnorm", "batchnormalization", "syncbatchnorm"), _AFFINE), **_POOLS,
    "depthwiseconv": " with group, the number of channels", "leakyrelu": " with negative_slope 0.01",
    "add": " with operation SUM", "sum": " with operation SUM", "multiply": " with operation PROD",
    "mul": " with operation PROD", "maximum": " with operation MAX",
}  # fmt: skip
_TYPES = {name: kind for kind, names in _CALLED.items() for name in names.split()} | dict.fromkeys(_POOLS, "Pooling")

# a field elsewhere -> ours; the first that the message has
_FIELDS = {
    "lr": ("base_lr",), "learning_rate": ("base_lr",), "rate": ("base_lr", "dropout_ratio"), "p": ("dropout_ratio",),
    "beta1": ("momentum",), "beta_1": ("momentum",), "beta2": ("momentum2",), "beta_2": ("momentum2",),
    "eps": ("delta", "eps"), "epsilon": ("eps", "delta"), "optimizer": ("type",), "scheduler": ("lr_policy",),
    "steps": ("max_iter",), "iterations": ("max_iter",), "seed": ("random_seed",), "clip_norm": ("clip_gradients",),
    "out_channels": ("num_output",), "out_features": ("num_output",), "filters": ("num_output",),
    "units": ("num_output",), "num_embeddings": ("input_dim",), "embedding_dim": ("num_output",),
    "padding": ("pad",), "strides": ("stride",), "pool_size": ("kernel_size",), "dilation_rate": ("dilation",),
    "groups": ("group", "num_groups"), "bias": ("bias_term",), "use_bias": ("bias_term",),
    "kernel_initializer": ("weight_filler",), "bias_initializer": ("bias_filler",), "dim": ("axis",),
    "slope": ("negative_slope",),
    "inplace": ("in_place",), "num_classes": ("num_output",),
}  # fmt: skip


def _bare(name: str) -> str:
    """The name in lower case, without its dimensions (Conv2d) and what separates its words."""
    return re.sub(r"(?<=[a-z])[123]d|[_\W]", "", name.lower())


def no_type(name: str, types: Collection[str]) -> str:
    """A sentence: there is no layer type of this name, why not if that is known, or the one that is meant."""
    if name in TYPES_NOT_DONE:
        return f"minidnn has no layer {name}: {TYPES_NOT_DONE[name]}"
    known = {**_TYPES, **{_bare(kind): kind for kind in types}}
    close = get_close_matches(_bare(name), known, 1)
    kind = known[close[0]] if close else None
    meant = f" (did you mean {kind!r}{_BESIDES.get(close[0], '')}?)" if kind in types and kind != name else ""
    return f"there is no layer type {name!r}{meant}"


def near_field(name: str, fields: Collection[str]) -> str:
    """The same for a field of a message."""
    ours = next((field for field in _FIELDS.get(name.lower(), ()) if field in fields), None)
    return f" (did you mean {ours!r}?)" if ours else near(name, fields)
