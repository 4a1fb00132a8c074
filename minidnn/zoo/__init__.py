"""Networks that are made rather than written: those of the papers and of any depth, by name, one family a file.

`find` is what a command's FILE means: a path, the name of a file in models/ (which is installed with the package),
or a generated name. The nets in models/ that repeat themselves are written from the classes here by
models/generate.py, so that each has one definition.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path

from minidnn.net import Net
from minidnn.zoo.alexnet import SuperNeuronsAlexNet
from minidnn.zoo.googlenet import GoogLeNet
from minidnn.zoo.pieces import NoSuchModel
from minidnn.zoo.resnet import ResNet18, ResNet50, ResNet152, residual_blocks, resnet
from minidnn.zoo.vgg import VGG16, VGG19, deep_vgg

__all__ = ["GENERATED", "MADE", "WRITTEN", "NoSuchModel", "find", "folder", "names", "residual_blocks"]

WRITTEN = (VGG16, VGG19, GoogLeNet, ResNet18, ResNet50, ResNet152)  # kept in models/ as files
MADE = {kind.name: kind for kind in (SuperNeuronsAlexNet,)}  # by name, without a file
GENERATED = {"vgg": deep_vgg, "resnet": resnet}  # by name and depth


def folder() -> Path:
    """Where models/*.yaml are: part of the package (in a checkout, minidnn/models leads to the models/ beside it)."""
    return Path(__file__).parents[1] / "models"


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
        given = {} if batch is None else {"batch": batch}
        if word in MADE:
            return MADE[word](**given)
        made = re.fullmatch(r"([a-z]+)-?(\d{1,5})", word.lower())
        if made and made[1] in GENERATED:
            return GENERATED[made[1]](int(made[2]), **given)
    elif (folder() / path.name).is_file() and path.parent.name in ("", "models"):
        return folder() / path.name  # models/vgg16.yaml, from wherever one stands
    raise NoSuchModel(_missing(path))


def _missing(path: Path) -> str:
    beside = [str(path.with_name(p.name)) for p in path.parent.glob("*.yaml")] if path.parent.is_dir() else []
    files = (*names(), *(f"models/{name}.yaml" for name in names()))
    known = [*files, *MADE, "vgg116", "vgg416", "resnet101", "resnet1001"]
    near = get_close_matches(str(path), [*beside, *known], 1)
    hint = f" (did you mean {near[0]}?)" if near else f"; there are {', '.join(names())}, vgg416, resnet1001"
    return f"there is no file or model {path}{hint}"
