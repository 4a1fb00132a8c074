"""Networks that are made rather than written: those of the papers and of any depth, by name, one family a file.

`find` is what a command's FILE means: a path, the name of a file in models/ (which is installed with the package),
or a generated name. The nets in models/ that repeat themselves are written from the classes here by
models/generate.py, so that each has one definition.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from minidnn.errors import near
from minidnn.nets.net import Net
from minidnn.zoo.alexnet import CaffeNet, SuperNeuronsAlexNet
from minidnn.zoo.cifar10 import Cifar10Quick
from minidnn.zoo.densenet import DenseNet121
from minidnn.zoo.googlenet import GoogLeNet
from minidnn.zoo.inception import InceptionV3, InceptionV4
from minidnn.zoo.pieces import NoSuchModel
from minidnn.zoo.resnet import ResNet18, ResNet50, ResNet152, residual_blocks, resnet, superneurons_resnet
from minidnn.zoo.vgg import VGG16, VGG19, deep_vgg
from minidnn.zoo.wide_resnet import wide_resnet

__all__ = [
    "DEPTHS", "FAMILIES", "MADE", "WRITTEN", "NoSuchModel", "family", "find", "folder", "known", "load", "names",
    "residual_blocks",
]  # fmt: skip

WRITTEN = (VGG16, VGG19, GoogLeNet, ResNet18, ResNet50, ResNet152, Cifar10Quick)  # kept in models/ as files
MADE = {  # by name, without a file
    str(kind.name): kind for kind in (SuperNeuronsAlexNet, CaffeNet, DenseNet121, InceptionV3, InceptionV4)
}
# by numbers in the name: how it is said, what makes it of them, and some of its nets
FAMILIES: dict[str, tuple[Callable[..., Net], tuple[str, ...]]] = {
    r"vgg-?(\d{1,5})": (deep_vgg, ("vgg116", "vgg416")),
    r"resnet-?(\d{1,5})": (resnet, ("resnet34", "resnet56", "resnet101", "resnet1001", "resnet1517")),
    r"superneurons_resnet(\d{1,5})": (superneurons_resnet, ("superneurons_resnet1922",)),
    r"wrn[_-](\d{1,5})[_-](\d{1,5})": (wide_resnet, ("wrn_28_10", "wrn_8_256")),
}
# whose depth is free: what makes one of a depth, the least depth, and from one to the next
DEPTHS: dict[str, tuple[Callable[..., Net], int, int]] = {
    "resnet": (resnet, 113, 3),  # above He's for CIFAR
    "superneurons_resnet": (superneurons_resnet, 137, 3),
    "vgg": (deep_vgg, 21, 5),
}


def folder() -> Path:
    """Where models/*.yaml are: part of the package (in a checkout, minidnn/models leads to the models/ beside it)."""
    return Path(__file__).parents[1] / "models"


def names() -> list[str]:
    """The files of models/, without their suffix."""
    return sorted(path.stem for path in folder().glob("*.yaml"))


def known() -> list[str]:
    """The nets that have a name: files (solvers apart), made ones, and some of each family."""
    files = [name for name in names() if not name.endswith("_solver")]
    return [*files, *MADE, *(name for _, some in FAMILIES.values() for name in some)]


def find(source: str | Path, batch: int | None = None) -> Path | Net:
    """The file that `source` means, or the net that it names. Raises NoSuchModel with what may have been meant."""
    path = Path(source)
    if path.is_file():
        return path
    word = str(source)
    if path.suffix not in (".yaml", ".yml") and path.name == word:
        if word in names():
            return folder() / f"{word}.yaml"
        given = {} if batch is None else {"batch": batch}
        if word in MADE:
            return MADE[word](**given)
        for said, (make, _) in FAMILIES.items():
            if numbers := re.fullmatch(said, word.lower()):
                return make(*map(int, numbers.groups()), **given)
    elif (folder() / path.name).is_file() and path.parent.name in ("", "models"):
        return folder() / path.name  # models/vgg16.yaml, from wherever one stands
    raise NoSuchModel(_missing(path))


def load(source: str | Path, batch: int | None = None) -> Net:
    """The net of a YAML file, of a file's name in models/ ("digits_lenet"), or of a generated net's ("resnet1001").

    `batch` replaces the batch sizes that are written there. Raises NoSuchModel with what may have been meant, and
    InvalidFile with every error of a file.
    """
    found = find(source, batch)
    if isinstance(found, Net):
        return found if batch is None else found.with_batch(batch)
    return Net.from_yaml(found, batch)


def family(word: str) -> str:
    """The family in DEPTHS that a name means, with a depth or without. Raises NoSuchModel."""
    name = re.sub(r"-?\d*$", "", word.lower())
    if name not in DEPTHS:
        hint, there = near(name, DEPTHS), ", ".join(DEPTHS)
        raise NoSuchModel(f"{word} is no family of nets whose depth is free{hint}; there are {there}")
    return name


def _missing(path: Path) -> str:
    beside = [str(path.with_name(p.name)) for p in path.parent.glob("*.yaml")] if path.parent.is_dir() else []
    files = [name for stem in names() for name in (stem, f"models/{stem}.yaml")]
    hint = near(str(path), [*beside, *files, *known()]) or f"; there are {', '.join(known())}"
    return f"there is no file or model {path}{hint}"
