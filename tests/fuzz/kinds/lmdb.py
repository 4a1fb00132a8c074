"""Caffe's LMDB databases: pages that point to others, without a checksum, mapped into memory."""

from __future__ import annotations

import struct
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lmdb
import numpy as np
from hypothesis import strategies as st

from minidnn.schema.wire import sized, varint
from tests.fuzz.kind import Kind
from tests.fuzz.kinds.pictures import encoded_image, pattern
from tests.fuzz.mutate import Field, mutated, renumbered
from tests.fuzz.pieces import pick
from tests.fuzz.samples import Good, check, packed, samples, unpacked

FILE = "some.lmdb/data.mdb"
PAGE = 4096
HEAD = 16  # bytes of a page's header
BRANCH, LEAF, OVERFLOW, META = 1, 2, 4, 8  # flags of a page
BIG = 1  # the flag of a node whose value has pages of its own
PIECES = [bytes(8), b"\xff" * 8, struct.pack("<Q", 2), struct.pack("<I", 0xBEEFC0DE), bytes(PAGE)]


def numbers(**fields: int) -> bytes:
    """A Datum's numbers: channels, height, width, label."""
    codes = {"channels": 1, "height": 2, "width": 3, "label": 5}
    return b"".join(varint(codes[name] << 3) + varint(value) for name, value in fields.items())


def datum(pixels: np.ndarray, label: int) -> bytes:
    c, h, w = pixels.shape
    return numbers(channels=c, height=h, width=w) + sized(4, pixels.tobytes()) + numbers(label=label)


def picture(data: bytes, label: int) -> bytes:
    return sized(4, data) + numbers(label=label) + varint(7 << 3) + b"\1"


def database(*transactions: list[tuple[bytes, bytes]]) -> bytes:
    """The file after these records were written, those of each list at once."""
    with TemporaryDirectory() as folder:
        with lmdb.open(folder, map_size=1 << 20, sync=False, lock=False) as environment:
            for records in transactions:
                with environment.begin(write=True) as transaction:
                    for key, value in records:
                        transaction.put(key, value)
        return Path(folder, "data.mdb").read_bytes()


@lru_cache
def goods() -> list[Good]:
    def of(name: str, count: int, shape: tuple[int, int, int], parts: int = 1) -> Good:
        arrays = [np.random.default_rng(k).integers(0, 9, shape, np.uint8) for k in range(count)]
        labels = [k % 7 for k in range(count)]
        records = [(b"%08d_a.jpg" % k, datum(a, n)) for k, (a, n) in enumerate(zip(arrays, labels, strict=True))]
        split = [
            records[k::parts] if parts > 2 else records[k * count // parts : (k + 1) * count // parts]
            for k in range(parts)
        ]
        return Good(name, database(*split), samples(labels, arrays))

    images = [pattern(4, 5, 3, seed) for seed in range(3)]
    files = [encoded_image(image, "PNG") for image in images]
    data = database([(b"%08d" % k, picture(file, k + 1)) for k, file in enumerate(files)])
    covered = [((at := data.index(file)), at + len(file)) for file in files]
    encoded = Good("encoded", data, samples((1, 2, 3), (i.transpose(2, 0, 1) for i in images)), covered)
    ordinary = (b"00000000", datum(np.zeros((1, 2, 2), np.uint8), 1))
    wrong = {
        "nothing": [[]], "an array and a picture": [[ordinary, (b"1", picture(files[0], 1))]],
        "a negative label": [[(b"0", datum(np.zeros((1, 2, 2), np.uint8), 2**64 - 1))]],
        "other shapes": [[ordinary, (b"1", datum(np.zeros((1, 2, 3), np.uint8), 1))]],
        "no Datum": [[(b"0", b"\xff" * 9)]],
        "a label of 2^31": [[(b"0", datum(np.zeros((1, 2, 2), np.uint8), 2**31))]],
        "a label of 2^32": [[(b"0", datum(np.zeros((1, 2, 2), np.uint8), 2**32))]],
    }  # fmt: skip
    return [
        of("one page", 5, (1, 4, 4)), of("a branch", 60, (3, 6, 6)), of("pages of their own", 3, (1, 60, 50)),
        of("two transactions", 8, (1, 5, 4), 2), of("many transactions", 20, (3, 8, 9), 5), encoded,
        *(Good(name, database(*parts), None) for name, parts in wrong.items()),
    ]  # fmt: skip


@lru_cache
def fields(index: int) -> tuple[list[Field], list[Field]]:
    """(the numbers of the two meta pages, those of all other pages) of a good file."""
    data = goods()[index].data
    metas, others = [], []
    for page in range(len(data) // PAGE):
        at = page * PAGE
        head = [Field(at, 8), Field(at + 10, 2), Field(at + 12, 2), Field(at + 14, 2)]
        if page < 2:
            whole = [(16, 4), (20, 4), (24, 8), (32, 8), *((64 + 8 * k, 8) for k in range(-1, 12))]
            trees = [(start + more, width) for start in (40, 88) for more, width in ((0, 4), (4, 2), (6, 2))]
            metas += [*head, *(Field(at + first, width) for first, width in (*whole, *trees))]
            continue
        others += head
        flags, lower = struct.unpack_from("<HH", data, at + 10)
        if flags & (BRANCH | LEAF) and lower <= PAGE:
            for pointer in range(HEAD, lower, 2):
                node = at + struct.unpack_from("<H", data, at + pointer)[0]
                others += [Field(at + pointer, 2), *(Field(node + 2 * k, 2) for k in range(4))]
                others += [Field(node + 8 + struct.unpack_from("<H", data, node + 6)[0], 8)]
    return metas, [one for one in others if one.at + one.width <= len(data)]


@st.composite
def files(draw: Any) -> bytes:
    index = draw(st.integers(0, len(goods()) - 1))
    data = goods()[index].data
    metas, others = fields(index)
    how = pick(
        draw, ["right", "changed", "changed", "changed", "meta", "pages", "pages", "exchange", "exchange", "records"]
    )
    if how == "changed":
        data = draw(mutated(data, PIECES, others or metas))
    elif how == "meta":
        data = draw(renumbered(data, metas))
    elif how == "pages":
        data = draw(renumbered(data, others or metas))
    elif how == "exchange":
        data = draw(_exchanged(data))
    elif how == "records":
        data = draw(_records(data))
    return packed(index, data)


@st.composite
def _exchanged(draw: Any, data: bytes) -> bytes:
    """Whole pages gone, doubled, exchanged, of zeros, or cut."""
    pages = [data[at : at + PAGE] for at in range(0, len(data), PAGE)]
    first, second = draw(st.integers(0, len(pages) - 1)), draw(st.integers(0, len(pages) - 1))
    how = pick(draw, ["gone", "over", "over", "exchange", "zero", "cut", "more"])
    if how == "gone":
        del pages[first]
    elif how == "over":
        pages[second] = pages[first] if draw(st.booleans()) else pages[second][:8] + pages[first][8:]
    elif how == "exchange":
        pages[first], pages[second] = pages[second], pages[first]
    elif how == "zero":
        pages[first] = bytes(PAGE)
    elif how == "cut":
        del pages[first:]
    else:
        pages += [bytes(PAGE)] * pick(draw, [1, 1, 16])
    return b"".join(pages)


@st.composite
def _records(draw: Any, data: bytes) -> bytes:
    """Bits changed on one page behind its header, where nodes and values are."""
    raw = bytearray(data)
    page = draw(st.integers(2, max(2, len(data) // PAGE - 1)))
    used = [at for at in range(page * PAGE, min(len(raw), (page + 1) * PAGE)) if raw[at]] or [0]
    for _ in range(pick(draw, [1, 2, 5])):
        raw[pick(draw, used)] = draw(st.integers(0, 255))
    return bytes(raw)


def check_file(case: bytes, folder: Path) -> bool:
    index, data = unpacked(case)
    (folder / FILE).parent.mkdir()
    (folder / FILE).write_bytes(data)
    return check(goods(), index, data, "some.lmdb")


KIND = Kind("lmdb", files(), check_file, 80)
