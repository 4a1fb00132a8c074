"""A contact sheet: pictures in rows with words below them, as PNG or as a page."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minidnn.data.decoding import pillow
from minidnn.errors import InvalidInput
from minidnn.files.replace import replacing, unwritable
from minidnn.report.markup import escape
from minidnn.report.page import page
from minidnn.spoken import option
from minidnn.visible import visible

SUFFIXES = (".png", ".html")
SIDE = 112  # pixels of a picture's longer side
GAP, WORDS = 10, 18  # pixels between pictures, and of the words below one
STYLE = """
.sheet { display: flex; flex-wrap: wrap; gap: 14px; margin-top: 16px; }
figure { margin: 0; width: 112px; } figure img { display: block; width: 112px; image-rendering: pixelated; }
figcaption { font-size: 13px; color: var(--dim); overflow-wrap: anywhere; }
"""


Shot = tuple[np.ndarray, str]  # (a picture, uint8 (H, W, 3) or (H, W); the words below it)


def check(path: str) -> None:
    """Raise InvalidInput if no sheet can be written there."""
    if why := unwritable(Path(path), *SUFFIXES):
        raise InvalidInput(f"{option('sheet', path)}: {why}")


def save(shots: Sequence[Shot], title: str, path: str) -> None:
    """Write the sheet. Raises OSError."""
    content = drawn(shots) if path.endswith(".png") else paged(shots, title).encode()
    with replacing(Path(path), "wb") as file:
        file.write(content)


def paged(shots: Sequence[Shot], title: str) -> str:
    """The sheet as a page that loads nothing else."""
    figures = []
    for pixels, caption in shots:
        data, words = base64.b64encode(_png(_thumb(pixels))).decode(), escape(caption)
        image = f'<img src="data:image/png;base64,{data}" alt="{words}">'
        figures.append(f"<figure>{image}<figcaption>{words}</figcaption></figure>")
    return page(title, f'<div class="sheet">{"".join(figures)}</div>', f"{len(shots)} samples", STYLE)


def drawn(shots: Sequence[Shot]) -> bytes:
    """The sheet as a PNG file."""
    from PIL import ImageDraw

    columns = math.ceil(math.sqrt(len(shots)))
    wide, high = SIDE + GAP, SIDE + WORDS + GAP
    sheet = pillow().new("RGB", (columns * wide + GAP, math.ceil(len(shots) / columns) * high + GAP), "white")
    draw = ImageDraw.Draw(sheet)
    for k, (pixels, caption) in enumerate(shots):
        x, y = GAP + k % columns * wide, GAP + k // columns * high
        sheet.paste(_thumb(pixels), (x, y))
        draw.text((x, y + SIDE + 2), _cut(visible(caption), draw), fill="black", font_size=12)
    return _png(sheet)


def _thumb(pixels: np.ndarray) -> Any:
    """The picture with a longer side of SIDE pixels; small ones stay sharp."""
    image = pillow().fromarray(np.ascontiguousarray(pixels))
    size = tuple(max(1, round(n * SIDE / max(image.size))) for n in image.size)
    how = pillow().Resampling.NEAREST if max(image.size) < SIDE else pillow().Resampling.BILINEAR
    return image.resize(size, how)


def _cut(text: str, draw: Any) -> str:
    """As much of a text as stands below a picture."""
    if draw.textlength(text, font_size=12) <= SIDE:
        return text
    while draw.textlength(text + "…", font_size=12) > SIDE:
        text = text[:-1]
    return text + "…"


def _png(image: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
