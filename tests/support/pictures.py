"""Images made at test time: folders of JPEGs like digits, and files that are no images."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SIDE = 24


def digit(label: int, number: int, side: int = SIDE) -> Image.Image:
    """A digit, in a colour and at a place of its own, on a noisy ground: a function of the label and the number."""
    rng = np.random.Generator(np.random.Philox(key=[label, number]))
    ground = Image.fromarray(rng.integers(0, 60, (side, side, 3), dtype=np.uint8))
    draw = ImageDraw.Draw(ground)
    place = rng.integers(0, 3, 2)
    draw.text(tuple(int(p) for p in place), str(label), fill=(250, 230, 200), font_size=side - 4)
    return ground


def jpeg(image: Image.Image, kind: str = "JPEG") -> bytes:
    """The encoded bytes of an image."""
    file = io.BytesIO()
    image.save(file, kind, quality=92)
    return file.getvalue()


def folder(path: Path, train: int = 6, val: int = 2, classes: int = 3) -> Path:
    """A folder of JPEGs: so many of each class in train and in val."""
    first = 0
    for split, count in (("train", train), ("val", val)):
        for label in range(classes):
            place = path / split / f"digit_{label}"
            place.mkdir(parents=True)
            for number in range(first, first + count):
                (place / f"{number:04d}.jpg").write_bytes(jpeg(digit(label, number)))
        first += count
    return path
