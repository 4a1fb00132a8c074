"""Networks as Python classes and functions, by name: nets of the papers, and families of any depth, one family a file.

`find` resolves a command's FILE: a path, the name of a file in models/ (which is installed with the package), or the
name of a net that is made here. The script models/generate.py writes some of these classes to files in models/, so that
each net has one definition.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from minidnn.errors import near
from minidnn.nets.net import Net
from minidnn.zoo import files
from minidnn.zoo.alexnet import CaffeAlexNet, CaffeNet, SuperNeuronsAlexNet
from minidnn.zoo.bert import BertBase, BertLarge
from minidnn.zoo.cifar10 import Cifar10Full, Cifar10Quick
from minidnn.zoo.convnext import ConvNeXtBase, ConvNeXtLarge, ConvNeXtSmall, ConvNeXtTiny
from minidnn.zoo.densenet import DenseNet121
from minidnn.zoo.diffusion import DDPM
from minidnn.zoo.googlenet import GoogLeNet, VdnnGoogLeNet
from minidnn.zoo.gpt import GPT2, GPT2XL, GPT2Large, GPT2Medium
from minidnn.zoo.inception import InceptionV3, InceptionV4
from minidnn.zoo.llama import Llama, Llama8B
from minidnn.zoo.mnist import Autoencoder, Siamese
from minidnn.zoo.mobilenet import MobileNetV1, MobileNetV2
from minidnn.zoo.pieces import NoSuchModel
from minidnn.zoo.resnet import ResNet18, ResNet50, ResNet152, residual_blocks, resnet, superneurons_resnet
from minidnn.zoo.segmentation import FCN32s, UNet
from minidnn.zoo.squeezenet import SqueezeNet
from minidnn.zoo.swin import SwinBase, SwinSmall, SwinTiny
from minidnn.zoo.vgg import VGG16, VGG19, deep_vgg
from minidnn.zoo.vit import ViTBase, ViTLarge, ViTS, ViTSmall
from minidnn.zoo.wide_resnet import wide_resnet

__all__ = [
    "DEPTHS",
    "FAMILIES",
    "MADE",
    "WRITTEN",
    "NoSuchModel",
    "family",
    "files",
    "find",
    "folder",
    "load",
    "names",
    "net_names",
    "residual_blocks",
]  # fmt: skip

SUFFIXES = (".yaml", ".prototxt", ".caffemodel", files.ONNX, files.PYTHON)  # of files that an error may suggest
WRITTEN = (VGG16, VGG19, GoogLeNet, ResNet18, ResNet50, ResNet152, Cifar10Quick)  # nets with a file in models/
_MADE = (
    SuperNeuronsAlexNet, VdnnGoogLeNet, CaffeAlexNet, CaffeNet, DenseNet121, InceptionV3, InceptionV4, Cifar10Full,
    SqueezeNet, MobileNetV1, MobileNetV2, FCN32s, UNet, Siamese, Autoencoder, ViTSmall,
    ViTS, ViTBase, ViTLarge, ConvNeXtTiny, ConvNeXtSmall, ConvNeXtBase, ConvNeXtLarge, SwinTiny,
    SwinSmall, SwinBase, DDPM,
    BertBase, BertLarge, GPT2, GPT2Medium, GPT2Large, GPT2XL, Llama, Llama8B,
)  # fmt: skip
MADE = {str(kind.name): kind for kind in _MADE}  # nets without a file, by name
# families with numbers in their names: pattern of the name -> (function of these numbers, names of some of its nets)
FAMILIES: dict[str, tuple[Callable[..., Net], tuple[str, ...]]] = {
    r"vgg-?(\d{1,5})": (deep_vgg, ("vgg116", "vgg416")),
    r"resnet-?(\d{1,5})": (resnet, ("resnet34", "resnet56", "resnet101", "resnet1001", "resnet1517")),
    r"superneurons_resnet(\d{1,5})": (superneurons_resnet, ("superneurons_resnet1922",)),
    r"wrn[_-](\d{1,5})[_-](\d{1,5})": (wide_resnet, ("wrn_28_10", "wrn_8_256")),
}
# families of any depth: (function of a depth, least depth, step from one depth to the next)
DEPTHS: dict[str, tuple[Callable[..., Net], int, int]] = {
    "resnet": (resnet, 113, 3),  # above the depths of He's nets for CIFAR
    "superneurons_resnet": (superneurons_resnet, 137, 3),
    "vgg": (deep_vgg, 21, 5),
}


def folder() -> Path:
    """The folder of models/*.yaml, a part of the package. In a checkout, minidnn/models is a link to models/."""
    return Path(__file__).parents[1] / "models"


def names() -> list[str]:
    """The names of the files in models/ without their suffix, sorted."""
    return sorted(path.stem for path in folder().glob("*.yaml"))


def net_names() -> list[str]:
    """Names of nets: those with a file, those made without a file, and some of each family."""
    files = [name for name in names() if not name.endswith("_solver")]
    return [*files, *MADE, *(name for _, some in FAMILIES.values() for name in some)]


def find(source: str | Path, batch: int | None = None) -> Path | Net:
    """The file that `source` means, also FILE.py:CLASS, or the net made by that name, with this batch size if any.

    Raises NoSuchModel, which suggests a similar name, if there is neither."""
    path = Path(source)
    if files.there(path):
        return path
    word = str(source)
    if path.suffix not in (".yaml", ".yml") and path.name == word:
        if word in names():
            return folder() / f"{word}.yaml"
        given = {} if batch is None else {"batch": batch}
        if word in MADE:
            return MADE[word](**given)
        for text, (make, _) in FAMILIES.items():
            if numbers := re.fullmatch(text, word.lower()):
                return make(*map(int, numbers.groups()), **given)
    elif (folder() / path.name).is_file() and path.parent.name in ("", "models"):
        return folder() / path.name  # models/vgg16.yaml works in any working folder
    raise NoSuchModel(_missing(path))


def load(source: str | Path, batch: int | None = None) -> Net:
    """Read a net from a file of any form (files.py), or make it by its name: a file in models/ ("digits_lenet") or a
    built-in net ("resnet1001").

    `batch` replaces the net's batch sizes. Raises NoSuchModel, which suggests a similar name, and InvalidFile, which
    lists every error of a file.
    """
    result = find(source, batch)
    if isinstance(result, Net):
        return result if batch is None else result.with_batch(batch)
    return files.read(result, batch)


def family(word: str) -> str:
    """The name of the family in DEPTHS that a net's name belongs to; the depth may be absent. Raises NoSuchModel."""
    name = re.sub(r"-?\d*$", "", word.lower())
    if name not in DEPTHS:
        hint, there = near(name, DEPTHS), ", ".join(DEPTHS)
        raise NoSuchModel(f"{word} is not a family of nets with a free depth{hint}; there are {there}")
    return name


def _missing(path: Path) -> str:
    """The error message for a path that is no file and no name, with a suggestion."""
    if not path.name:  # "", ".", "/"
        return f"{path}: not a file; name a model file, or one of {', '.join(net_names())}"
    if (file := files.parts(path)[0]).is_symlink() or file.exists():  # a folder, a pipe, a link to what is not there
        kind = "a folder" if file.is_dir() else "not a regular file" if file.exists() else "a link to no file"
        return f"{file}: {kind}; name a model file, or one of {', '.join(net_names())}"
    there = path.parent.iterdir() if path.parent.is_dir() else ()
    beside = [str(path.with_name(p.name)) for p in there if p.suffix in SUFFIXES and p.is_file()]
    shipped = [name for stem in names() for name in (stem, f"models/{stem}.yaml")]
    hint = near(str(path), [*beside, *shipped, *net_names()]) or f"; there are {', '.join(net_names())}"
    return f"there is no file or model {path}{hint}"
