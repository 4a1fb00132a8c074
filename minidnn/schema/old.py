"""Caffe's layers of before 2015 (`layers { type: CONVOLUTION }`, "V1"), as their files have them."""

from __future__ import annotations

from typing import Any, Literal

from minidnn.schema import elements, images, moves, sources
from minidnn.schema.common import NetStateRule
from minidnn.schema.message import Message, Repeated, field

# In the order of their numbers, from 0; with the type that each has become.
TYPES = {
    "NONE": "", "ACCURACY": "Accuracy", "BNLL": "BNLL", "CONCAT": "Concat", "CONVOLUTION": "Convolution",
    "DATA": "Data", "DROPOUT": "Dropout", "EUCLIDEAN_LOSS": "EuclideanLoss", "FLATTEN": "Flatten",
    "HDF5_DATA": "HDF5Data", "HDF5_OUTPUT": "HDF5Output", "IM2COL": "Im2col", "IMAGE_DATA": "ImageData",
    "INFOGAIN_LOSS": "InfogainLoss", "INNER_PRODUCT": "InnerProduct", "LRN": "LRN",
    "MULTINOMIAL_LOGISTIC_LOSS": "MultinomialLogisticLoss", "POOLING": "Pooling", "RELU": "ReLU",
    "SIGMOID": "Sigmoid", "SOFTMAX": "Softmax", "SOFTMAX_LOSS": "SoftmaxWithLoss", "SPLIT": "Split", "TANH": "TanH",
    "WINDOW_DATA": "WindowData", "ELTWISE": "Eltwise", "POWER": "Power",
    "SIGMOID_CROSS_ENTROPY_LOSS": "SigmoidCrossEntropyLoss", "HINGE_LOSS": "HingeLoss", "MEMORY_DATA": "MemoryData",
    "ARGMAX": "ArgMax", "THRESHOLD": "Threshold", "DUMMY_DATA": "DummyData", "SLICE": "Slice", "MVN": "MVN",
    "ABSVAL": "AbsVal", "SILENCE": "Silence", "CONTRASTIVE_LOSS": "ContrastiveLoss", "EXP": "Exp",
    "DECONVOLUTION": "Deconvolution",
}  # fmt: skip
OldType: Any = Literal[tuple(TYPES)]  # type: ignore[valid-type]


class V1LayerParameter(Message):
    """A layer of an old file; schema/upgrade.py turns it into a LayerParameter."""

    name: str = field(4, "")
    type: OldType = field(5, "NONE")
    bottom: Repeated[str] = field(2, ())
    top: Repeated[str] = field(3, ())
    include: Repeated[NetStateRule] = field(32, ())
    exclude: Repeated[NetStateRule] = field(33, ())
    param: Repeated[str] = field(1001, ())  # the names of shared parameters
    blob_share_mode: Repeated[Literal["STRICT", "PERMISSIVE"]] = field(1002, ())
    blobs_lr: Repeated[float] = field(7, ())
    weight_decay: Repeated[float] = field(8, ())
    loss_weight: Repeated[float] = field(35, ())
    accuracy_param: elements.AccuracyParameter | None = field(27, None)
    argmax_param: elements.ArgMaxParameter | None = field(23, None)
    concat_param: moves.ConcatParameter | None = field(9, None)
    contrastive_loss_param: elements.ContrastiveLossParameter | None = field(40, None)
    convolution_param: images.ConvolutionParameter | None = field(10, None)
    data_param: sources.DataParameter | None = field(11, None)
    dropout_param: elements.DropoutParameter | None = field(12, None)
    dummy_data_param: sources.DummyDataParameter | None = field(26, None)
    eltwise_param: elements.EltwiseParameter | None = field(24, None)
    exp_param: elements.ExpParameter | None = field(41, None)
    hdf5_data_param: sources.HDF5DataParameter | None = field(13, None)
    hinge_loss_param: elements.HingeLossParameter | None = field(29, None)
    image_data_param: sources.ImageDataParameter | None = field(15, None)
    infogain_loss_param: elements.InfogainLossParameter | None = field(16, None)
    inner_product_param: elements.InnerProductParameter | None = field(17, None)
    lrn_param: images.LRNParameter | None = field(18, None)
    memory_data_param: sources.MemoryDataParameter | None = field(22, None)
    mvn_param: images.MVNParameter | None = field(34, None)
    pooling_param: images.PoolingParameter | None = field(19, None)
    power_param: elements.PowerParameter | None = field(21, None)
    relu_param: elements.ReLUParameter | None = field(30, None)
    sigmoid_param: elements.SigmoidParameter | None = field(38, None)
    softmax_param: elements.SoftmaxParameter | None = field(39, None)
    slice_param: moves.SliceParameter | None = field(31, None)
    tanh_param: elements.TanHParameter | None = field(37, None)
    threshold_param: elements.ThresholdParameter | None = field(25, None)
    transform_param: sources.TransformationParameter | None = field(36, None)
    loss_param: elements.LossParameter | None = field(42, None)
