"""Encoded images in folders and lists: of the ten formats, whole, and small enough."""

from __future__ import annotations

import io
import struct
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from hypothesis import strategies as st
from PIL import Image

from tests.fuzz.kind import Kind
from tests.fuzz.mutate import Field, mutated
from tests.fuzz.pieces import TEXTS, damaged, encoded, pick
from tests.fuzz.samples import EVERYTHING, Good, Sample, check, packed, sample, unpacked

LIST = "list.txt"
PNG = b"\x89PNG\r\n\x1a\n"
POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(x) print\nshowpage\n%%EOF\n"
# Pillow's options for each file that is made: its suffix says how it is named in the folder.
ENCODERS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("png", "PNG", "RGB", {}), ("png", "PNG", "L", {}), ("png", "PNG", "P", {}), ("png", "PNG", "LA", {}),
    ("png", "PNG", "1", {}),
    ("jpg", "JPEG", "RGB", {"quality": 90}), ("jpeg", "JPEG", "L", {}), ("jpg", "JPEG", "RGB", {"progressive": True}),
    ("jpg", "JPEG", "CMYK", {}), ("bmp", "BMP", "RGB", {}), ("bmp", "BMP", "P", {}), ("bmp", "BMP", "1", {}),
    ("gif", "GIF", "P", {}), ("gif", "GIF", "P", {"interlace": 0}), ("tif", "TIFF", "RGB", {}),
    ("tiff", "TIFF", "RGB", {"compression": "tiff_lzw"}), ("tif", "TIFF", "RGB", {"compression": "tiff_adobe_deflate"}),
    ("tif", "TIFF", "L", {"compression": "packbits"}), ("tif", "TIFF", "1", {"compression": "group4"}),
    ("tif", "TIFF", "RGB", {"compression": "jpeg"}), ("webp", "WEBP", "RGB", {"lossless": True}),
    ("webp", "WEBP", "RGB", {"quality": 80}),
    ("ppm", "PPM", "RGB", {}), ("pgm", "PPM", "L", {}), ("pbm", "PPM", "1", {}),
]  # fmt: skip
# What Pillow also opens, by its content; none of these is read, whatever its name.
OTHERS = {"ICO": "RGB", "TGA": "RGB", "PCX": "RGB", "SGI": "RGB", "DDS": "RGB", "JPEG2000": "RGB",
          "SPIDER": "F", "MSP": "1", "XBM": "1", "QOI": "RGB", "EPS": "RGB", "PDF": "RGB"}  # fmt: skip
PIECES = [PNG, b"\xff\xd8\xff\xe0", b"\xff\xd9", b"\xff\xda", b"\xff\xc0", b"\xff\xc2", b"II*\0", b"MM\0*", b"GIF89a",
          b"\x3b", b"\x2c",
          b"RIFF", b"VP8X", b"ANMF", b"P6\n", b"P3\n", b"P7\n", b"BM", b"# ", b"IDAT", b"\0\0\0\0IEND\xaeB`\x82",
          POSTSCRIPT]  # fmt: skip


def pattern(height: int, width: int, channels: int, seed: int) -> np.ndarray:
    """Pixels (height, width, channels) that no other seed has."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)


def encoded_image(pixels: np.ndarray, form: str, mode: str = "RGB", **options: Any) -> bytes:
    file = io.BytesIO()
    image = Image.fromarray(pixels).convert(mode)
    image.save(file, form, **options)
    return file.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc32(kind + data))


def zeros(count: int) -> bytes:
    """A zlib stream of so many zeros, of which none is ever in memory at once."""
    pack, part = zlib.compressobj(9), bytes(1 << 20)
    body = b"".join(pack.compress(part[: min(1 << 20, count - at)]) for at in range(0, count, 1 << 20))
    return body + pack.flush()


def png(width: int, height: int, rows: int | None = None, depth: int = 1, before: bytes = b"") -> bytes:
    """A PNG in grey without a light pixel, of which only so many rows are there."""
    body = zeros((1 + (width * depth + 7) // 8) * (height if rows is None else rows))
    head = struct.pack(">IIBBBBB", width, height, depth, 0, 0, 0, 0)
    return PNG + chunk(b"IHDR", head) + before + chunk(b"IDAT", body) + chunk(b"IEND", b"")


@lru_cache
def bombs() -> list[tuple[str, bytes]]:
    """(suffix, bytes) of pictures that promise much: most are small, or give little."""
    jpeg = bytearray(encoded_image(pattern(8, 8, 3, 1), "JPEG"))
    at = jpeg.index(b"\xff\xc0")
    jpeg[at + 5 : at + 9] = b"\xff\xff\xff\xff"
    gif = (
        b"GIF89a"
        + struct.pack("<HHBBB", 65535, 65535, 0x80, 0, 0)
        + bytes(6)
        + b"\x2c"
        + struct.pack("<HHHHB", 0, 0, 65535, 65535, 0)
    )
    frames = b"\x2c" + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\0"
    small = encoded_image(pattern(8, 8, 3, 1), "BMP")
    bmp = [
        small[:18] + struct.pack("<ii", *size) + small[26:]
        for size in ((2**31 - 1, 1), (11000, -11000), (-8, 8), (60000, 60000))
    ]
    tag = lambda number, kind, value: struct.pack("<HHII", number, kind, 1, value)  # noqa: E731
    tags = [
        tag(256, 4, 11000),
        tag(257, 4, 11000),
        tag(258, 3, 1),
        tag(259, 3, 1),
        tag(262, 3, 1),
        tag(273, 4, 8),
        tag(278, 4, 11000),
        tag(279, 4, 2**31),
    ]
    tiff = b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + b"".join(tags) + struct.pack("<I", 8)
    webp = b"VP8X" + struct.pack("<I", 10) + b"\x02\0\0\0" + b"\xff\xff\xff" * 2
    text = zeros(64 << 20)
    return [
        ("png", png(11000, 11000)), ("png", png(11500, 11500, 10)), ("png", png(60000, 60000, 10)),
        ("png", png(2**31 - 1, 1, 0)),
        ("png", png(1, 2**31 - 1, 10)), ("png", png(11000, 11000, 1, 16)), ("png", png(8, 8, 3, 8)),
        ("png", png(8, 8, before=chunk(b"zTXt", b"k\0\0" + text))),
        ("png", png(8, 8, before=chunk(b"iCCP", b"k\0\0" + text))),
        ("png", png(8, 8, before=chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0)))), ("png", png(8, 8) * 2),
        ("jpg", bytes(jpeg)), ("jpg", _scans(2000)), ("gif", gif + b"\x02\x01\x44\0\x3b"),
        ("gif", gif[:13] + bytes(6) + frames * 3000 + b"\x3b"),
        *(("bmp", one) for one in bmp), ("tif", tiff), ("tif", tiff + bytes(100_000)),
        ("webp", b"RIFF" + struct.pack("<I", 4 + len(webp)) + b"WEBP" + webp),
        *(("ppm", b"P%d\n%s\n255\n" % (kind, size) + b"1 " * 500) for kind in (1, 3, 4,
        6) for size in (b"99999 99999", b"9" * 30 + b" 1", b"-8 8", b"0 0")),
        ("ppm", b"P6\n" + b"# no end\n" * 5000), ("ppm", b"P6 8 8 65535\n" + bytes(384)),
        ("ppm", b"P3 8 8 0\n" + b"0 " * 192), ("png", POSTSCRIPT),
    ]  # fmt: skip


def _scans(count: int) -> bytes:
    """A progressive JPEG of 8000 x 8000 whose one scan comes again and again."""
    data = bytearray(encoded_image(np.zeros((8, 8), np.uint8), "JPEG", "L", progressive=True))
    head = data.index(b"\xff\xc2")
    data[head + 5 : head + 9] = struct.pack(">HH", 8000, 8000)
    last = data.rindex(b"\xff\xda")
    return bytes(data[:last] + data[last:-2] * count + b"\xff\xd9")


@lru_cache
def beside() -> tuple[bytes, Sample]:
    """The picture that lies beside each: a good one of the class 1."""
    pixels = pattern(3, 4, 3, 99)
    return encoded_image(pixels, "PNG"), sample(1, pixels.transpose(2, 0, 1))


@lru_cache
def goods() -> list[Good]:
    """`more` is the suffix of the file's name."""
    result = []
    for number, (suffix, form, mode, options) in enumerate(ENCODERS):
        pixels = pattern(5, 7, 3, number) if form != "GIF" else pattern(5, 7, 1, number)[:, :, [0, 0, 0]]
        data = encoded_image(pixels, form, mode, **options)
        with Image.open(io.BytesIO(data)) as image:
            first = sample(0, np.asarray(image.convert("RGB")).transpose(2, 0, 1))
        covered = EVERYTHING if form == "PNG" else ()
        result.append(Good(f"{form} {mode} {options}", data, [first, beside()[1]], covered, more=suffix))
    deep = io.BytesIO()
    Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8)).save(deep, "PNG")
    result += [Good("16 bits", deep.getvalue(), None, more="png"), Good("PostScript", POSTSCRIPT, None, more="jpg")]
    torn = {"8 rows, 3 there": png(8, 8, 3, 8), "rows of 11000, 10 there": png(11000, 11000, 10)}
    result += [Good(name, data, None, more="png") for name, data in torn.items()]
    for form, mode in OTHERS.items():
        if form in Image.SAVE or (Image.init() and form in Image.SAVE):
            result.append(Good(form, encoded_image(pattern(16, 16, 3, 7), form, mode), None, more="png"))
    return result


LINES = [b"a/0.png 0", b"b/ok.png 1", b"b/ok.png 2147483647", b"b/ok.png 2147483648", b"b/ok.png -1", b"b/ok.png 1.5",
          b"b/ok.png",
         b"1", b" 1", b"b/ok.png  1", b"b/ok.png\t1", b"b/ok.png \xd9\xa1", b"/dev/zero 1", b"/etc/passwd 1", b"b 1",
         b"../b/ok.png 1",
         b"b/ok.png\0 1", b"", b"\xef\xbb\xbfb/ok.png 1", b"b/ok.png 1\r", b"\xff\xfe 1",
         b"b/ok.png " + b"9" * 5000]  # fmt: skip


@st.composite
def lists(draw: Any) -> bytes:
    lines = [*LINES, *(encoded(text) + b" 1" for text in TEXTS)]
    right = pick(draw, [True, False])
    text = b"\n".join(pick(draw, lines[:2] if right else lines) for _ in range(draw(st.integers(0, 5)))) + b"\n"
    return draw(damaged(text, lines)) if draw(st.booleans()) else text


@st.composite
def files(draw: Any) -> bytes:
    """The number of a good picture; or 254 with a list, or 253 with a suffix and a picture that promises much."""
    how = pick(draw, ["right", "changed", "changed", "changed", "changed", "changed", "mixed", "chunk", "list", "bomb"])
    if how == "list":
        return packed(254, draw(lists()))
    if how == "bomb":
        suffix, data = pick(draw, bombs())
        if pick(draw, [False, False, True]) and len(data) < 5000:
            data = draw(mutated(data, PIECES))
        return packed(253, suffix.encode() + b"\0" + data)
    number = draw(st.integers(0, len(goods()) - 1))
    data = goods()[number].data
    if how == "changed":
        data = draw(mutated(data, PIECES, _fields(data)))
    elif how == "mixed":
        other = pick(draw, goods()).data
        data = data[: draw(st.integers(0, len(data)))] + other[draw(st.integers(0, len(other))) :]
    elif how == "chunk" and data.startswith(PNG):
        data = draw(_chunks(data))
    return packed(number, data)


def _fields(data: bytes) -> list[Field]:
    """The numbers of a picture's head."""
    order: Any = "big" if data[:2] in (b"\x89P", b"\xff\xd8", b"MM") else "little"
    return [Field(at, width, order) for at in range(0, min(len(data) - 4, 200)) for width in (1, 2, 4)]


@st.composite
def _chunks(draw: Any, data: bytes) -> bytes:
    """A chunk of a PNG gone, doubled, moved, renamed, or with other bytes, and sums that are right."""
    parts, at = [], len(PNG)
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        parts.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += 12 + size
    index = draw(st.integers(0, len(parts) - 1))
    kind, body = parts[index]
    how = pick(draw, ["gone", "double", "move", "name", "body", "body", "unpacked", "parts"])
    if how == "gone":
        del parts[index]
    elif how in ("double", "move"):
        parts.insert(draw(st.integers(0, len(parts))), parts[index] if how == "double" else parts.pop(index))
    elif how == "name":
        parts[index] = (
            pick(draw, [b"IDAT", b"PLTE", b"tRNS", b"fdAT", b"fcTL", b"acTL", b"eXIf", b"iCCP", b"zzzz", b"\0\0\0\0"]),
            body,
        )
    elif how == "body":
        parts[index] = kind, draw(damaged(body))
    elif how == "unpacked":
        parts = [(k, zlib.compress(draw(damaged(zlib.decompress(b)))) if k == b"IDAT" else b) for k, b in parts]
    else:
        half = draw(st.integers(0, len(body)))
        parts[index : index + 1] = [(kind, body[:half]), (kind, body[half:])]
    return PNG + b"".join(chunk(k, b) for k, b in parts)


def check_file(case: bytes, folder: Path) -> bool:
    number, data = unpacked(case)
    suffix = "png"
    if number == 253:
        head, _, data = data.partition(b"\0")
        suffix = head.decode("ascii", "ignore") if head.isalpha() else "png"
    elif number < len(goods()):
        suffix = goods()[number].more
    for name in ("a", "b"):
        (folder / name).mkdir()
    (folder / "b" / "ok.png").write_bytes(beside()[0])
    (folder / "a" / f"0.{suffix}").write_bytes(data if number != 254 else beside()[0])
    listed = number == 254 or crc32(data) % 3 == 0
    if listed:
        (folder / LIST).write_bytes(data if number == 254 else b"a/0.%s 0\nb/ok.png 1\n" % suffix.encode())
    return check(goods(), number, data, f"list:{LIST}" if listed else "folder:.")


KIND = Kind("pictures", files(), check_file, 120)
