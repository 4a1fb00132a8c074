"""Networks that are made rather than written: VGG, GoogLeNet and ResNet of the papers and of any depth, by name.

`find` is what a command's FILE means: a path, the name of a file in models/ (which is installed with the package),
or a generated name. The nets in models/ that repeat themselves are written from the classes below by
models/generate.py, so that each has one definition.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar

from minidnn.define import L, Top
from minidnn.net import Net

TRAINED = [{"lr_mult": 1}, {"lr_mult": 2, "decay_mult": 0}]  # Caffe's habit: biases learn faster and do not decay
MSRA = {"type": "msra"}
XAVIER = {"type": "xavier"}
TEST = {"phase": "TEST"}


def imagenet(batch: int, size: int = 224) -> tuple[Top, Top]:
    """Made-up images of ImageNet's shape: nothing to download. Another source is one line of the file."""
    return L.Data(name="data", source=f"synthetic:3x{size}x{size}:classes=1000", batch_size=batch)


def scored(scores: Top, label: Top, top5: bool = True) -> None:
    """The end of a classifier: accuracies in TEST, the loss in both phases."""
    L.Accuracy(scores, label, name="accuracy", include=TEST)
    if top5:
        L.Accuracy(scores, label, name="accuracy_top5", top_k=5, include=TEST)
    L.SoftmaxWithLoss(scores, label, name="loss")


# -- VGG -----------------------------------------------------------------------------------------------------


class VGG(Net):
    """3×3 convolutions in five groups of 64 to 512 maps, and three fully connected layers (Simonyan 2014)."""

    convs: ClassVar[Sequence[int]] = ()  # of each group

    def define(self, batch: int = 64) -> None:
        x, label = imagenet(batch)
        for i, (count, maps) in enumerate(zip(self.convs, (64, 128, 256, 512, 512), strict=True), 1):
            for j in range(1, count + 1):
                x = L.Convolution(
                    x, name=f"conv{i}_{j}", param=TRAINED, num_output=maps, pad=1, kernel_size=3, weight_filler=MSRA
                )
                x = L.ReLU(x, name=f"relu{i}_{j}", in_place=True)
            x = L.Pooling(x, name=f"pool{i}", pool="MAX", kernel_size=2, stride=2)
        for i in (6, 7):
            x = _full(x, f"fc{i}", 4096)
            x = L.ReLU(x, name=f"relu{i}", in_place=True)
            x = L.Dropout(x, name=f"drop{i}", in_place=True, dropout_ratio=0.5)
        scored(_full(x, "fc8", 1000), label)


class VGG16(VGG):
    """VGG, configuration D: 13 convolutions."""

    name = "vgg16"
    convs = (2, 2, 3, 3, 3)


class VGG19(VGG):
    """VGG, configuration E: 16 convolutions. (The vDNN paper calls it VGG-16.)"""

    name = "vgg19"
    convs = (2, 2, 4, 4, 4)


def deep_vgg(convs: int, batch: int = 32) -> Net:
    """The vDNN paper's VGG-116 ... 416: configuration E with as many more convolutions in each of its groups."""
    more, rest = divmod(convs - 16, 5)
    if rest or more < 1:
        near = 5 * max(more, 1) + 16
        raise NoSuchModel(
            f"there is no vgg{convs}: vgg19 has 16 convolutions and a deep one 5, 10, 15 ... more, such as"
            f" vgg{near}, vgg{near + 5} or vgg416 (and there are vgg16 and vgg19)"
        )
    name = f"vgg{convs}"
    made = type(name.upper(), (VGG,), {"name": name, "convs": tuple(more + n for n in VGG19.convs)})
    return made(batch=batch)


def _full(x: Top, name: str, outputs: int) -> Top:
    return L.InnerProduct(
        x, name=name, param=TRAINED, num_output=outputs, weight_filler={"type": "gaussian", "std": 0.01}
    )


# -- ResNet --------------------------------------------------------------------------------------------------


class ResNet(Net):
    """Residual blocks in four groups (He 2015), as in its authors' Caffe files: BatchNorm, Scale and ReLU after each
    convolution, the stride of a group in its first block's first convolution, 1×1 projections where shapes change."""

    blocks: ClassVar[Sequence[int]] = ()  # of each group
    bottleneck: ClassVar[bool] = True  # 1×1, 3×3, 1×1 to four times the maps; else two 3×3

    def define(self, batch: int = 32) -> None:
        x, label = imagenet(batch)
        x = _normed(x, "conv1", "bn_conv1", "scale_conv1", 64, 7, 2, 3)
        x = L.ReLU(x, name="conv1_relu", in_place=True)
        x = L.Pooling(x, name="pool1", pool="MAX", kernel_size=3, stride=2)
        for group, (count, maps) in enumerate(zip(self.blocks, (64, 128, 256, 512), strict=True), 2):
            for i in range(count):
                name = f"{group}{_letters(i, count)}"
                stride = 2 if i == 0 and group > 2 else 1
                x = residual(x, name, maps, stride, self.bottleneck, project=i == 0 and (self.bottleneck or stride > 1))
        x = L.Pooling(x, name="pool5", pool="AVE", global_pooling=True)
        x = L.InnerProduct(x, name="fc1000", param=TRAINED, num_output=1000, weight_filler=MSRA)
        scored(x, label)


def residual(x: Top, name: str, maps: int, stride: int, bottleneck: bool, project: bool) -> Top:
    """One block: a plain function of blobs. `name` is such as 2a, and its layers res2a_branch2b, bn2a_branch2b."""
    out = 4 * maps if bottleneck else maps
    shortcut = _branch(x, f"{name}_branch1", out, 1, stride) if project else x
    shapes = ((maps, 1, stride), (maps, 3, 1), (out, 1, 1)) if bottleneck else ((maps, 3, stride), (maps, 3, 1))
    for i, (outputs, kernel, step) in enumerate(shapes):
        branch = f"{name}_branch2{'abc'[i]}"
        x = _branch(x, branch, outputs, kernel, step)
        if i < len(shapes) - 1:
            x = L.ReLU(x, name=f"res{branch}_relu", in_place=True)
    x = L.Eltwise(shortcut, x, name=f"res{name}")
    return L.ReLU(x, name=f"res{name}_relu", in_place=True)


def _branch(x: Top, name: str, outputs: int, kernel: int, stride: int) -> Top:
    return _normed(x, f"res{name}", f"bn{name}", f"scale{name}", outputs, kernel, stride, kernel // 2)


def _normed(x: Top, conv: str, bn: str, scale: str, outputs: int, kernel: int, stride: int, pad: int) -> Top:
    fields: dict[str, Any] = {"num_output": outputs, "kernel_size": kernel}
    fields |= {"pad": pad} if pad else {}
    fields |= {"stride": stride} if stride > 1 else {}
    x = L.Convolution(x, name=conv, **fields, bias_term=False, weight_filler=MSRA)
    x = L.BatchNorm(x, name=bn, in_place=True)
    return L.Scale(x, name=scale, in_place=True, bias_term=True)


def _letters(i: int, count: int) -> str:
    """a, b, c ... in a short group; a, b1, b2 ... in a long one."""
    if i == 0:
        return "a"
    return f"b{i}" if count > 6 else "abcdef"[i]


class ResNet18(ResNet):
    """ResNet, 18 layers: eight blocks of two 3×3 convolutions."""

    name = "resnet18"
    blocks = (2, 2, 2, 2)
    bottleneck = False


class ResNet50(ResNet):
    """ResNet, 50 layers: 16 bottlenecks."""

    name = "resnet50"
    blocks = (3, 4, 6, 3)


class ResNet152(ResNet):
    """ResNet, 152 layers: 50 bottlenecks."""

    name = "resnet152"
    blocks = (3, 8, 36, 3)


def resnet(depth: int, batch: int = 32) -> Net:
    """A ResNet of this many layers that have weights: the paper's below 153, SuperNeurons' family above."""
    name = f"resnet{depth}"
    blocks = residual_blocks(depth)
    made = type(name, (ResNet,), {"name": name, "blocks": blocks, "bottleneck": depth not in _BASIC})
    return made(batch=batch)


_BASIC = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}


def residual_blocks(depth: int) -> tuple[int, ...]:
    """Blocks of each group. Three layers a block and two besides; beyond 152 layers groups 2, 3 and 5 have 6, 32 and
    6 blocks, as in SuperNeurons' deepest nets, and all the rest are in the fourth. Raises NoSuchModel."""
    if depth in _BASIC:
        return _BASIC[depth]
    total, rest = divmod(depth - 2, 3)
    if rest or total < 11:
        near = 3 * max(total, 11) + 2
        raise NoSuchModel(
            f"there is no resnet{depth}: a ResNet of bottlenecks has 3 layers for each block and 2 more, such as"
            f" resnet{near} or resnet{near + 3} (and there are resnet18 and resnet34)"
        )
    if total > 50:
        return (6, 32, total - 44, 6)
    second = 8 if total == 50 else 4
    return (3, second, total - second - 6, 3)


# -- GoogLeNet -----------------------------------------------------------------------------------------------


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


def inception(x: Top, name: str, one: int, reduce3: int, three: int, reduce5: int, five: int, pool: int) -> Top:
    """Four branches side by side, a plain function of blobs; the numbers are their maps."""
    a = _conv(x, f"{name}/1x1", one, 1)
    b = _conv(_conv(x, f"{name}/3x3_reduce", reduce3, 1), f"{name}/3x3", three, 3, pad=1)
    c = _conv(_conv(x, f"{name}/5x5_reduce", reduce5, 1), f"{name}/5x5", five, 5, pad=2)
    d = L.Pooling(x, name=f"{name}/pool", pool="MAX", kernel_size=3, stride=1, pad=1)
    d = _conv(d, f"{name}/pool_proj", pool, 1)
    return L.Concat(a, b, c, d, name=f"{name}/output")


def auxiliary(x: Top, label: Top, name: str) -> None:
    """A small classifier in the middle, whose loss counts 0.3."""
    x = L.Pooling(x, name=f"{name}/ave_pool", pool="AVE", kernel_size=5, stride=3)
    x = _conv(x, f"{name}/conv", 128, 1)
    x = L.InnerProduct(
        x, name=f"{name}/fc", param=TRAINED, num_output=1024, weight_filler=XAVIER, bias_filler={"value": 0.2}
    )
    x = L.ReLU(x, name=f"{name}/relu_fc", in_place=True)
    x = L.Dropout(x, name=f"{name}/drop_fc", in_place=True, dropout_ratio=0.7)
    x = L.InnerProduct(x, name=f"{name}/classifier", param=TRAINED, num_output=1000, weight_filler=XAVIER)
    L.SoftmaxWithLoss(x, label, name=f"{name}/loss", loss_weight=0.3)


def _conv(x: Top, name: str, outputs: int, kernel: int, stride: int = 1, pad: int = 0) -> Top:
    fields: dict[str, Any] = {"num_output": outputs, "kernel_size": kernel}
    fields |= {"pad": pad} if pad else {}
    fields |= {"stride": stride} if stride > 1 else {}
    x = L.Convolution(x, name=name, param=TRAINED, **fields, weight_filler=XAVIER, bias_filler={"value": 0.2})
    group, _, short = name.rpartition("/")
    return L.ReLU(x, name=f"{group}/relu_{short}", in_place=True)


# -- by name -------------------------------------------------------------------------------------------------

WRITTEN = (VGG16, VGG19, GoogLeNet, ResNet18, ResNet50, ResNet152)  # kept in models/ as files
GENERATED = {"vgg": deep_vgg, "resnet": resnet}


class NoSuchModel(FileNotFoundError):
    """No file and no net of that name; the message says what there is."""


def folder() -> Path:
    """Where models/*.yaml are: part of the package (in a checkout, minidnn/models leads to the models/ beside it)."""
    return Path(__file__).parent / "models"


def names() -> list[str]:
    """The files of models/, without their suffix."""
    return sorted(path.stem for path in folder().glob("*.yaml"))


def find(source: str | Path, batch: int | None = None) -> Path | Net:
    """The file that `source` means, or the net that it names. Raises NoSuchModel with what may have been meant."""
    path = Path(source)
    if path.is_file():
        return path
    word = str(source)
    if path.suffix not in (".yaml", ".yml") and path.name == word:
        if word in names():
            return folder() / f"{word}.yaml"
        made = re.fullmatch(r"([a-z]+)-?(\d{1,5})", word.lower())
        if made and made[1] in GENERATED:
            depth = int(made[2])
            return GENERATED[made[1]](depth, **({} if batch is None else {"batch": batch}))
    elif (folder() / path.name).is_file() and path.parent.name in ("", "models"):
        return folder() / path.name  # models/vgg16.yaml, from wherever one stands
    raise NoSuchModel(_missing(path))


def _missing(path: Path) -> str:
    beside = [str(path.with_name(p.name)) for p in path.parent.glob("*.yaml")] if path.parent.is_dir() else []
    known = [*names(), *(f"models/{name}.yaml" for name in names()), "vgg116", "vgg416", "resnet101", "resnet1001"]
    near = get_close_matches(str(path), [*beside, *known], 1)
    hint = f" (did you mean {near[0]}?)" if near else f"; there are {', '.join(names())}, vgg416, resnet1001"
    return f"there is no file or model {path}{hint}"
