"""Whether an encoded image is whole, by the marks of its format that Pillow does not look at.

Pillow takes a PNG whose data end early for one whose other rows are black, and never looks at their checksums; it takes
a TIFF without some of its strips alike, and a number that is cut for the last one of a PPM in digits. GIF, BMP, WebP
and PPM in bytes need no second look: their decoders want all pixels.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable
from typing import Any

SCANS = 100  # of a JPEG, at most: each is a pass over all pixels, and may take but a few bytes
SCANNED, SCANNED_OF_A_BYTE = 1 << 29, 1 << 10  # pixels of all scans: as many, or this times the file's bytes
LEAST_TILE = 1 << 22  # pixels that a tile of a TIFF may have even if the image is small
_MARKER = re.compile(rb"\xff[\x02-\xcf\xd8-\xfe]")  # of a JPEG; the others belong to its data
_END, _SCAN, _START = 0xD9, 0xDA, 0xD8
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of a pixel, by a PNG's type of colour
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
_AT_ONCE = 1 << 16  # bytes that are unpacked together
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _OFFSETS, _SAMPLES_OF_A_PIXEL, _ROWS, _COUNTS, _PLANAR = (
    256, 257, 258, 259, 273, 277, 278, 279, 284)  # fmt: skip
_TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS, _TILE_COUNTS = 322, 323, 324, 325
_RAW, _JPEG_INSIDE, _DEFLATE = 1, 7, (8, 32946)


def check(image: Any, data: bytes) -> None:
    """Raise ValueError unless these bytes, which Pillow has opened as `image`, hold all of it."""
    if kind := _KINDS.get(image.format):
        kind(image, data)


def _jpeg(image: Any, data: bytes) -> None:
    at, scans, pixels = 2, 0, image.size[0] * image.size[1]
    most = min(SCANS, max(SCANNED, SCANNED_OF_A_BYTE * len(data)) // pixels)
    while marker := _MARKER.search(data, at):
        at, kind = marker.end(), data[marker.end() - 1]
        if kind == _END:
            return
        if kind != _START:
            at += int.from_bytes(data[at : at + 2], "big")
        scans += kind == _SCAN
        if scans > most:
            raise ValueError(f"a JPEG of more than {most} scans")
    raise ValueError("a JPEG without its end: it is cut")


def _png(image: Any, data: bytes) -> None:
    at, kind, parts, head = 8, b"", [], b""
    while kind != b"IEND":
        length, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        content = memoryview(data)[at + 8 : at + 8 + length]
        if at + 12 + length > len(data):
            raise ValueError(f"a PNG that is cut: the part at byte {at} has {length} bytes")
        if zlib.crc32(content, zlib.crc32(kind)) != int.from_bytes(data[at + 8 + length : at + 12 + length], "big"):
            raise ValueError(f"the checksum of the PNG's part {kind.decode('latin-1')} at byte {at} is wrong")
        head = bytes(content) if kind == b"IHDR" else head
        if kind == b"IDAT":
            parts.append(content)
        if kind == b"fcTL" and not parts and bytes(content[4:12]) != head[:8]:
            raise ValueError("an animated PNG whose first image is a part of it")
        at += 12 + length
    wanted = _raw_bytes(*struct.unpack(">IIBBxxB", head))
    if (head[12] or _last_row_empty(image)) and (size := _inflated(parts, wanted)) < wanted:
        raise ValueError(f"a PNG with {size} bytes of pixels; its size needs {wanted}")


def _last_row_empty(image: Any) -> bool:
    """Whether the last row may be missing, which is the last one that a decoder writes: to inflate an image twice takes
    as long as to decode it."""
    image.load()
    width, height = image.size
    return image.crop((0, height - 1, width, height)).getbbox() is None


def _inflated(parts: Iterable[bytes | memoryview], most: int) -> int:
    """The bytes that a stream of zlib becomes, or the first number of these beyond `most`. Raises zlib.error, also if
    its checksum is wrong."""
    unpack, size = zlib.decompressobj(), 0
    for part in parts:
        rest: bytes | memoryview = part
        while size <= most and rest:
            size += len(unpack.decompress(rest, _AT_ONCE))
            rest = unpack.unconsumed_tail
    return size


def _raw_bytes(width: int, height: int, depth: int, colour: int, interlaced: int) -> int:
    """The bytes of a PNG's pixels, with one more for each row."""
    bits, result = depth * _SAMPLES[colour], 0
    for x, y, across, down in _PASSES if interlaced else ((0, 0, 1, 1),):
        columns, rows = -(-(width - x) // across), -(-(height - y) // down)
        result += rows * (1 + (columns * bits + 7) // 8) if columns > 0 and rows > 0 else 0
    return result


def _tiff(image: Any, data: bytes) -> None:
    tags = image.tag_v2
    width, height, tiled = tags.get(_WIDTH, 0), tags.get(_HEIGHT, 0), _TILE_OFFSETS in tags
    wide, high = (tags.get(_TILE_WIDTH, 0), tags.get(_TILE_HEIGHT, 0)) if tiled else (width, tags.get(_ROWS, height))
    if not 0 < wide * (high if tiled else min(high, height)) <= max(4 * width * height, LEAST_TILE):
        raise ValueError(f"a TIFF of {height}×{width} in parts of {high}×{wide}")
    planes = tags.get(_SAMPLES_OF_A_PIXEL, 1) if tags.get(_PLANAR) == 2 else 1
    wanted = -(-width // wide) * -(-height // high) * planes
    offsets = tags.get(_TILE_OFFSETS if tiled else _OFFSETS, ())
    raw = tags.get(_COMPRESSION, _RAW) == _RAW
    counts = tags.get(_TILE_COUNTS if tiled else _COUNTS) or (0,) * len(offsets) * raw
    if min(len(offsets), len(counts)) < wanted:
        raise ValueError(f"a TIFF with {min(len(offsets), len(counts))} of its {wanted} parts")
    bits = sum(tags.get(_BITS, (1,)))
    _check_parts(image, data, zip(offsets[:wanted], counts[:wanted], strict=True), (wide * bits // 8 + 1) * high)
    if raw and planes == 1 and any(counts) and sum(counts) < height * ((width * bits + 7) // 8):
        raise ValueError(f"a TIFF with {sum(counts)} bytes of pixels; its size needs more")


def _check_parts(image: Any, data: bytes, places: Iterable[tuple[int, int]], most: int) -> None:
    """Check the parts of a TIFF at these (first byte, number of bytes), which become `most` bytes at most."""
    kind = image.tag_v2.get(_COMPRESSION)
    for at, count in places:
        if kind not in (None, _RAW) and at + count > len(data):
            raise ValueError(f"a TIFF that is cut: {count} bytes at byte {at} are promised")
        if kind == _JPEG_INSIDE:
            _jpeg(image, data[at : at + count])
        if kind in _DEFLATE:
            _inflated([memoryview(data)[at : at + count]], most)


def _ppm(image: Any, data: bytes) -> None:
    if data[:2] in (b"P2", b"P3") and not data[-1:].isspace():
        raise ValueError("a PPM in digits that ends without a line break: its last number may be cut")


_KINDS = {"JPEG": _jpeg, "MPO": _jpeg, "PNG": _png, "TIFF": _tiff, "PPM": _ppm}
