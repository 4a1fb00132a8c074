"""Layer types by name. Add your own from any file: `LAYERS["Mine"] = Mine`."""

from __future__ import annotations

from minidnn.layers.accuracy import Accuracy
from minidnn.layers.argmax import ArgMax
from minidnn.layers.attention import Attention
from minidnn.layers.base import Layer, Parameter, ShapeError, Site
from minidnn.layers.batch_norm import BatchNorm
from minidnn.layers.batch_reindex import BatchReindex
from minidnn.layers.bias import Bias
from minidnn.layers.class_token import ClassToken
from minidnn.layers.concat import Concat
from minidnn.layers.contrastive import ContrastiveLoss
from minidnn.layers.convolution import Convolution
from minidnn.layers.crop import Crop
from minidnn.layers.deconvolution import Deconvolution
from minidnn.layers.distance import (
    EuclideanLoss,
    HingeLoss,
    MultinomialLogisticLoss,
    SigmoidCrossEntropyLoss,
    SmoothL1Loss,
)
from minidnn.layers.dropout import Dropout
from minidnn.layers.eltwise import Eltwise
from minidnn.layers.embed import Embed
from minidnn.layers.facts import FACTS, Facts
from minidnn.layers.flatten import Flatten
from minidnn.layers.group_norm import GroupNorm, InstanceNorm
from minidnn.layers.im2col import Im2col
from minidnn.layers.infogain import InfogainLoss
from minidnn.layers.inner_product import InnerProduct
from minidnn.layers.linear_loss import InnerProductWithLoss
from minidnn.layers.lrn import LRN
from minidnn.layers.matmul import MatMul
from minidnn.layers.pad import Pad
from minidnn.layers.parameter import ParameterLayer
from minidnn.layers.permute import Permute
from minidnn.layers.pooling import Pooling
from minidnn.layers.prelu import PReLU
from minidnn.layers.recurrent import GRU, LSTM
from minidnn.layers.reduction import Reduction
from minidnn.layers.relative_position_bias import RelativePositionBias
from minidnn.layers.relu import ReLU
from minidnn.layers.reshape import Reshape
from minidnn.layers.resize import Interp, Upsample
from minidnn.layers.roll import Roll
from minidnn.layers.rotary import RotaryEmbedding
from minidnn.layers.row_norm import MVN, LayerNorm, Normalize, RMSNorm
from minidnn.layers.scale import Scale
from minidnn.layers.slice import Slice
from minidnn.layers.softmax import Softmax, SoftmaxWithLoss
from minidnn.layers.source import Data, DummyData, HDF5Data, ImageData, Input, MemoryData
from minidnn.layers.split import Silence, Split
from minidnn.layers.spp import SPP
from minidnn.layers.stochastic_depth import StochasticDepth
from minidnn.layers.tile import Tile
from minidnn.layers.unary import (
    BNLL,
    ELU,
    GELU,
    AbsVal,
    Clip,
    Erf,
    Exp,
    HardSigmoid,
    HardSwish,
    Log,
    Mish,
    Power,
    Sigmoid,
    Swish,
    TanH,
    Threshold,
)

__all__ = ["FACTS", "LAYERS", "Facts", "Layer", "Parameter", "ShapeError", "Site"]

LAYERS: dict[str, type[Layer]] = {
    layer.type: layer
    for layer in (
        Input, Data, Convolution, Pooling, InnerProduct, ReLU, LRN, BatchNorm, Scale, Dropout,
        StochasticDepth, Concat, Eltwise, Flatten, Softmax, SoftmaxWithLoss, Accuracy,
        MatMul, Attention, RelativePositionBias, RotaryEmbedding, LSTM, GRU,
        LayerNorm, GroupNorm, InstanceNorm, RMSNorm, MVN, Normalize, Embed, ClassToken, Reduction, ArgMax,
        Slice, Crop, Pad, Reshape, Permute, Tile, Roll, Split, Silence, Im2col, BatchReindex,
        ImageData, HDF5Data, MemoryData, DummyData, ParameterLayer,
        Sigmoid, TanH, ELU, PReLU, AbsVal, Power, Exp, Log, BNLL, Clip, Threshold, Swish, Mish, GELU,
        Erf, HardSigmoid, HardSwish,
        Deconvolution, Bias, SPP, Interp, Upsample,
        SigmoidCrossEntropyLoss, EuclideanLoss, SmoothL1Loss, HingeLoss, ContrastiveLoss, InfogainLoss,
        MultinomialLogisticLoss, InnerProductWithLoss,
    )
}  # fmt: skip
