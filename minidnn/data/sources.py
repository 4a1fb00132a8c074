"""The sources of samples, and the meaning of `data_param: {source: ...}`:

    folder:PATH                                 images in a folder for each class, in train/ and val/ or not
    list:FILE                                   Caffe's text with the path and the label of an image on each line
    lmdb:PATH, or any PATH that ends in lmdb    Caffe's database of images (Datum)
    tar:PATH, or any PATH that ends in .tar     WebDataset: images and labels (.cls) of one name in tar files
    hdf5:PATH, or any PATH that ends in .h5     datasets data (or x, images) and label (or y, labels)
    npz:PATH, or any PATH that ends in .npz     arrays x (or images) and y (or labels)
    cifar10:FOLDER, cifar100:FOLDER             the files as they are distributed, binary or for Python
    mnist:FOLDER                                the four IDX files, plain or gzipped
    digits                                      8×8 digits, which come with minidnn
    tokens:FILE:length=1024                     windows of token ids, uint16 or uint32; the labels are the next tokens
    text:FILE:length=256                        the same of the bytes of a text
    synthetic:3x224x224:classes=1000:count=5000 made-up images that a net can learn, no file
    synthetic_tokens:1024:classes=50257         made-up tokens

A folder may go without a word: it is a database if it has data.mdb, else a folder of images. The phase chooses the
split, train or test, unless the text names one: `digits:train`, `mnist:FOLDER:test`. To add a source of your own, write
a subclass of Source and enter it in the table: `SOURCES["mine"] = Mine`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from minidnn.data.cifar import Cifar10, Cifar100
from minidnn.data.database import Database, refuse_leveldb
from minidnn.data.dataset import DataError, Source
from minidnn.data.digits import Digits
from minidnn.data.encoded import Pictures
from minidnn.data.folder import Folder
from minidnn.data.hdf5 import Hdf5, Hdf5Column
from minidnn.data.image_list import ImageList
from minidnn.data.mnist import Mnist
from minidnn.data.npz import Npz
from minidnn.data.synthetic import Patterns
from minidnn.data.tokens import MadeUpTokens, Text, Tokens
from minidnn.data.webdataset import WebDataset
from minidnn.errors import near
from minidnn.schema.sources import ColumnParameter, ImageDataParameter

SOURCES: dict[str, type[Source]] = {
    "folder": Folder, "list": ImageList, "lmdb": Database, "tar": WebDataset, "hdf5": Hdf5, "npz": Npz,
    "cifar10": Cifar10, "cifar100": Cifar100, "mnist": Mnist, "digits": Digits, "synthetic": Patterns,
    "tokens": Tokens, "text": Text, "synthetic_tokens": MadeUpTokens,
}  # fmt: skip
SPLITS = {"TRAIN": "train", "TEST": "test"}


def parse(text: str, phase: str = "TRAIN") -> Source:
    """The Source that a text describes. Raises DataError, which lists the known forms, if the text has none of them."""
    word, _, rest = text.partition(":")
    split, kind = SPLITS[phase], SOURCES.get(word)
    if kind is None:
        kind, rest = next((k for k in SOURCES.values() if k.suffix and text.endswith(k.suffix)), None), text
        kind = kind or _of_folder(text)
    if kind is not None and kind.splits:
        head, _, last = rest.rpartition(":")
        if last in SPLITS.values():
            rest, split = head, last
    try:
        result = kind.parse(rest, split) if kind is not None else None
    except DataError as error:
        raise DataError(f"source {text!r}: {error}") from None
    if result is None:
        *forms, last = (k.form for k in SOURCES.values())
        raise DataError(f"source {text!r} is not known{near(word, SOURCES)}; expected {', '.join(forms)} or {last}")
    return result


def source_of(param: Any, transform_param: Any, phase: str) -> Source:
    """The Source of a layer's message: of Data, of ImageData, or of a top of HDF5Data. Raises DataError as `parse`.

    Caffe's ImageData turns images as their EXIF says, since OpenCV does where it is asked for colours or for grey. So
    are those of a database, if they are forced to either; and else none, unless the file says `exif`. Where nothing
    crops or resizes the images of either, they have the size of the first one, as in Caffe."""
    if isinstance(param, ColumnParameter):
        return Hdf5Column(SPLITS[phase], param.source, param.dataset, param.tops)
    exif, alike = transform_param.exif, not (transform_param.crop_size or transform_param.resize)
    if isinstance(param, ImageDataParameter):  # its own field says the colours
        upright = exif is not False
        return ImageList(SPLITS[phase], param.source, root=param.root_folder, color=param.is_color, upright=upright,
                         alike=alike)  # fmt: skip
    result, forced = parse(param.source, phase), param.force_encoded_color
    if transform_param.force_gray:
        result = result.decoded(False)
    elif forced or transform_param.force_color:
        result = result.decoded(True)
    if not isinstance(result, Pictures):
        return result
    cast_by_opencv = isinstance(result, Database) and result.color is not None
    alike = alike and isinstance(result, Database)
    return replace(result, upright=cast_by_opencv if exif is None else exif, alike=alike)


def _of_folder(path: str) -> type[Source] | None:
    """The source for a folder's path without a prefix; None if there is no such folder."""
    refuse_leveldb(path)
    if not os.path.isdir(path):
        return None
    return Database if os.path.isfile(os.path.join(path, "data.mdb")) else Folder
