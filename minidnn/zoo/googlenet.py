"""GoogLeNet: inception modules of four parallel branches (Szegedy 2014)."""

from __future__ import annotations

from minidnn.nets.define import L, Top
from minidnn.nets.net import Net
from minidnn.zoo.pieces import TEST, TRAINED, XAVIER, geometry, imagenet


class GoogLeNet(Net):
    """Nine inception modules and two auxiliary losses (Szegedy 2014), as in Caffe's bvlc_googlenet."""

    name = "googlenet"

    def define(self, batch: int = 32) -> None:
        x, label = imagenet(batch)
        x = _conv(x, "conv1/7x7_s2", 64, 7, stride=2, pad=3)
        x = L.Pooling(x, name="pool1/3x3_s2", pool="MAX", kernel_size=3, stride=2)
        x = L.LRN(x, name="pool1/norm1", local_size=5, alpha=1e-4, beta=0.75)
        x = _conv(x, "conv2/3x3_reduce", 64, 1)
        x = _conv(x, "conv2/3x3", 192, 3, pad=1)
        x = L.LRN(x, name="conv2/norm2", local_size=5, alpha=1e-4, beta=0.75)
        x = L.Pooling(x, name="pool2/3x3_s2", pool="MAX", kernel_size=3, stride=2)
        x = inception(x, "inception_3a", 64, 96, 128, 16, 32, 32)
        x = inception(x, "inception_3b", 128, 128, 192, 32, 96, 64)
        x = L.Pooling(x, name="pool3/3x3_s2", pool="MAX", kernel_size=3, stride=2)
        x = inception(x, "inception_4a", 192, 96, 208, 16, 48, 64)
        auxiliary(x, label, "loss1")
        x = inception(x, "inception_4b", 160, 112, 224, 24, 64, 64)
        x = inception(x, "inception_4c", 128, 128, 256, 24, 64, 64)
        x = inception(x, "inception_4d", 112, 144, 288, 32, 64, 64)
        auxiliary(x, label, "loss2")
        x = inception(x, "inception_4e", 256, 160, 320, 32, 128, 128)
        x = L.Pooling(x, name="pool4/3x3_s2", pool="MAX", kernel_size=3, stride=2)
        x = inception(x, "inception_5a", 256, 160, 320, 32, 128, 128)
        x = inception(x, "inception_5b", 384, 192, 384, 48, 128, 128)
        x = L.Pooling(x, name="pool5/7x7_s1", pool="AVE", kernel_size=7, stride=1)
        x = L.Dropout(x, name="pool5/drop_7x7_s1", in_place=True, dropout_ratio=0.4)
        x = L.InnerProduct(x, name="loss3/classifier", param=TRAINED, num_output=1000, weight_filler=XAVIER)
        L.SoftmaxWithLoss(x, label, name="loss3/loss3", loss_weight=1)
        L.Accuracy(x, label, name="loss3/top-1", include=TEST)
        L.Accuracy(x, label, name="loss3/top-5", top_k=5, include=TEST)


class VdnnGoogLeNet(Net):
    """GoogLeNet as in the vDNN paper, which took it from convnet-benchmarks: without LRN, Dropout and auxiliary losses,
    with padded poolings and a ReLU behind the classifier."""

    name = "vdnn_googlenet"

    def define(self, batch: int = 128) -> None:
        x, label = imagenet(batch)
        x = _conv(x, "conv1/7x7_s2", 64, 7, stride=2, pad=3)
        x = _pool(x, "pool1")
        x = _conv(x, "conv2/3x3_reduce", 64, 1)
        x = _conv(x, "conv2/3x3", 192, 3, pad=1)
        x = _pool(x, "pool2")
        x = inception(x, "inception_3a", 64, 96, 128, 16, 32, 32)
        x = inception(x, "inception_3b", 128, 128, 192, 32, 96, 64)
        x = _pool(x, "pool3")
        x = inception(x, "inception_4a", 192, 96, 208, 16, 48, 64)
        x = inception(x, "inception_4b", 160, 112, 224, 24, 64, 64)
        x = inception(x, "inception_4c", 128, 128, 256, 24, 64, 64)
        x = inception(x, "inception_4d", 112, 144, 288, 32, 64, 64)
        x = inception(x, "inception_4e", 256, 160, 320, 32, 128, 128)
        x = _pool(x, "pool4")
        x = inception(x, "inception_5a", 256, 160, 320, 32, 128, 128)
        x = inception(x, "inception_5b", 384, 192, 384, 48, 128, 128)
        x = L.Pooling(x, name="pool5", pool="AVE", kernel_size=7, stride=1)
        x = L.InnerProduct(x, name="classifier", param=TRAINED, num_output=1000, weight_filler=XAVIER)
        L.SoftmaxWithLoss(L.ReLU(x, name="relu", in_place=True), label, name="loss")


def inception(x: Top, name: str, one: int, reduce3: int, three: int, reduce5: int, five: int, pool: int) -> Top:
    """An inception module of four parallel branches; the numbers are the channels of its convolutions."""
    a = _conv(x, f"{name}/1x1", one, 1)
    b = _conv(_conv(x, f"{name}/3x3_reduce", reduce3, 1), f"{name}/3x3", three, 3, pad=1)
    c = _conv(_conv(x, f"{name}/5x5_reduce", reduce5, 1), f"{name}/5x5", five, 5, pad=2)
    d = L.Pooling(x, name=f"{name}/pool", pool="MAX", kernel_size=3, stride=1, pad=1)
    d = _conv(d, f"{name}/pool_proj", pool, 1)
    return L.Concat(a, b, c, d, name=f"{name}/output")


def auxiliary(x: Top, label: Top, name: str) -> None:
    """A small classifier in the middle of the net; its loss has the weight 0.3."""
    x = L.Pooling(x, name=f"{name}/ave_pool", pool="AVE", kernel_size=5, stride=3)
    x = _conv(x, f"{name}/conv", 128, 1)
    x = L.InnerProduct(
        x, name=f"{name}/fc", param=TRAINED, num_output=1024, weight_filler=XAVIER, bias_filler={"value": 0.2}
    )
    x = L.ReLU(x, name=f"{name}/relu_fc", in_place=True)
    x = L.Dropout(x, name=f"{name}/drop_fc", in_place=True, dropout_ratio=0.7)
    x = L.InnerProduct(x, name=f"{name}/classifier", param=TRAINED, num_output=1000, weight_filler=XAVIER)
    L.SoftmaxWithLoss(x, label, name=f"{name}/loss", loss_weight=0.3)


def _pool(x: Top, name: str) -> Top:
    return L.Pooling(x, name=name, pool="MAX", kernel_size=3, stride=2, pad=1)


def _conv(x: Top, name: str, outputs: int, kernel: int, stride: int = 1, pad: int = 0) -> Top:
    shape = geometry(outputs, kernel, stride, pad)
    x = L.Convolution(x, name=name, param=TRAINED, **shape, weight_filler=XAVIER, bias_filler={"value": 0.2})
    group, _, short = name.rpartition("/")
    return L.ReLU(x, name=f"{group}/relu_{short}", in_place=True)
