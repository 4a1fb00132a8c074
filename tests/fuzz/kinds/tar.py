"""WebDataset's tar files: headers have a sum over their bytes, an archive ends with blocks of zeros."""

from __future__ import annotations

import io
import tarfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.kind import Kind
from tests.fuzz.kinds.pictures import encoded_image, pattern
from tests.fuzz.mutate import mutated
from tests.fuzz.pieces import TEXTS, pick
from tests.fuzz.samples import Good, check, packed, samples, unpacked

FILE = "some.tar"
BLOCK = 512
# Of a header: where a field begins, and its bytes.
FIELDS = {
    "name": (0, 100), "mode": (100, 8), "uid": (108, 8), "size": (124, 12), "mtime": (136, 12), "sum": (148, 8),
    "type": (156, 1), "link": (157, 100), "magic": (257, 8), "prefix": (345, 155),
}  # fmt: skip
SUM = slice(148, 156)
SIZES = [b"%011o\0" % n for n in (0, 1, 100, 511, 512, 513, 8**11 - 1, 2**31)]
SIZES += [b"\x80" + n.to_bytes(11, "big") for n in (1, 512, 2**40, 2**63, 2**64 - 512, 2**87)]
SIZES += [
    b"\xff" * 12,
    b"\xff" * 8 + (2**32 - 512).to_bytes(4, "big"),
    b" " * 12,
    b"-0000000001\0",
    b"1e3",
    b"9" * 12,
    b"0x10",
]
TYPES = [bytes([c]) for c in b"01234567gxLKSADVMNX\0"]
NAMES = [
    *(text.encode("utf-8", "surrogatepass") for text in TEXTS),
    b"0.png",
    b"0.cls",
    b"0001.CLS",
    b"../0001.png",
    b".cls",
]
RECORDS = [
    b"path=0009.png", b"size=4", b"size=99999999999", b"size=-1", b"size=x", b"linkpath=/etc/passwd",
    b"hdrcharset=BINARY",
    b"GNU.sparse.major=1", b"GNU.sparse.name=0009.png", b"GNU.sparse.map=0,1,5,1", b"GNU.sparse.realsize=1000000000",
    b"path=\xff\xfe", b"path=", b"=",
]  # fmt: skip


def header(name: bytes, size: int, kind: bytes = b"0") -> bytes:
    info = tarfile.TarInfo()
    raw = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
    raw[: len(name[:100])] = name[:100]
    raw[124:136], raw[156:157] = b"%011o\0" % size, kind
    return bytes(summed(raw))


def summed(raw: bytearray) -> bytearray:
    """The header with its sum."""
    raw[SUM] = b" " * 8
    raw[SUM] = b"%06o\0 " % sum(raw[:BLOCK])
    return raw


def member(name: bytes, data: bytes, kind: bytes = b"0") -> bytes:
    return header(name, len(data), kind) + data + bytes(-len(data) % BLOCK)


def record(text: bytes) -> bytes:
    """A line of an extended header, which begins with its own length."""
    size = len(text) + 2
    while len(b"%d" % size) + len(text) + 2 != size:
        size += 1
    return b"%d %s\n" % (size, text)


def archive(members: list[tuple[str, bytes]], form: int = tarfile.USTAR_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as made:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
    return file.getvalue()


@lru_cache
def goods() -> list[Good]:
    images = [pattern(5, 6, 3, seed) for seed in range(4)]
    files = [encoded_image(image, "PNG") for image in images]
    labels = [0, 3, 12, 1]

    def of(name: str, names: list[str], form: int, more: tuple[tuple[str, bytes], ...] = ()) -> Good:
        pairs = zip(names, files, labels, strict=True)
        members = [m for n, data, k in pairs for m in ((f"{n}.png", data), (f"{n}.cls", b"%d" % k))]
        data = archive([*members, *more], form)
        return Good(name, data, samples(labels, (i.transpose(2, 0, 1) for i in images)), _summed(data, files))

    plain = [f"{k:04}" for k in range(4)]
    one = [("a.png", files[0]), ("a.cls", b"1")]
    result = [
        of("plain", plain, tarfile.USTAR_FORMAT),
        of("long names", [f"{'d' * 90}/{'e' * 60}{k}" for k in range(4)], tarfile.GNU_FORMAT),
        of("names beyond ASCII", [f"\u540d\u524d/{k}" for k in range(4)], tarfile.PAX_FORMAT),
        of(
            "other members",
            [f"train/{k}" for k in range(4)],
            tarfile.USTAR_FORMAT,
            (("0.json", b"{}"), ("b/c.txt", b"x")),
        ),
        Good(
            "two blocks at the end",
            archive(one)[: 4 * BLOCK] + bytes(2 * BLOCK),
            samples([1], [images[0].transpose(2, 0, 1)]),
        ),
    ]
    wrong = {
        "a label beyond 20 digits": [one[0], ("a.cls", b"0" * 20 + b"7")],
        "blanks and more behind a label": [one[0], ("a.cls", b"1" + b" " * 30 + b"more")],
        "two labels": [*one, ("a.cls", b"2")],
        "two images": [*one, ("a.png", files[1])],
        "a label of 2^31": [one[0], ("a.cls", b"2147483648")],
    }
    result += [Good(name, archive(members), None) for name, members in wrong.items()]
    zeros = archive(one)[: 4 * BLOCK] + bytes(BLOCK) + archive([("b.png", files[1]), ("b.cls", b"2")])
    return [
        *result,
        Good("nothing at its end", archive(one)[: 4 * BLOCK], None),
        Good("an archive behind another", zeros, ()),
    ]


def _summed(data: bytes, files: list[bytes]) -> list[tuple[int, int]]:
    """Where sums are: in each header, and in each PNG."""
    with tarfile.open(fileobj=io.BytesIO(data)) as opened:
        heads = [(m.offset_data - BLOCK, m.offset_data) for m in opened]
    return [*heads, *((at := data.index(file), at + len(file)) for file in files)]


@st.composite
def files(draw: Any) -> bytes:
    number = draw(st.integers(0, len(goods()) - 1))
    data = goods()[number].data
    how = pick(draw, ["right", "bytes", "bytes", "bytes", "header", "header", "header", "blocks", "blocks", "before"])
    if how == "bytes":
        data = draw(mutated(data, [bytes(BLOCK), b"ustar\000", *SIZES]))
    elif how == "header":
        data = draw(_headers(data))
    elif how == "blocks":
        data = draw(_blocks(data))
    elif how == "before":
        data = draw(_before(data))
    return packed(number, data)


def _heads(data: bytes) -> list[int]:
    return [at for at in range(0, len(data) - BLOCK + 1, BLOCK) if data[at + 257 : at + 262] == b"ustar"] or [0]


@st.composite
def _headers(draw: Any, data: bytes) -> bytes:
    """A field of a header changed, mostly with a sum that is right."""
    raw = bytearray(data)
    at = pick(draw, _heads(data))
    name = pick(draw, ["size", "size", "type", "type", *FIELDS])
    first, width = FIELDS[name]
    values = {"size": SIZES, "type": TYPES, "name": NAMES, "link": NAMES, "prefix": NAMES}.get(name, SIZES)
    value = pick(draw, values)[:width]
    raw[at + first : at + first + width] = value.ljust(width, b"\0")
    if name != "sum" and pick(draw, [True] * 4 + [False]):
        raw[at : at + BLOCK] = summed(raw[at : at + BLOCK])
    return bytes(raw)


@st.composite
def _blocks(draw: Any, data: bytes) -> bytes:
    """Blocks gone, doubled, exchanged, or of zeros."""
    blocks = [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]
    used = max(1, len(data.rstrip(b"\0")) // BLOCK + 1)
    first, second = draw(st.integers(0, used - 1)), draw(st.integers(0, used - 1))
    how = pick(draw, ["gone", "double", "exchange", "zero", "zeros", "cut", "short"])
    if how == "gone":
        del blocks[first : first + pick(draw, [1, 2])]
    elif how == "double":
        blocks.insert(second, blocks[first])
    elif how == "exchange":
        blocks[first], blocks[second] = blocks[second], blocks[first]
    elif how == "cut":
        del blocks[first:]
    elif how == "short":
        blocks[first] = blocks[first][: draw(st.integers(0, BLOCK - 1))]
    else:
        blocks[first:first] = [bytes(BLOCK)] * (1 if how == "zero" else 2)
    return b"".join(blocks)


@st.composite
def _before(draw: Any, data: bytes) -> bytes:
    """A member of a special kind before another: an extended header, a long name, a link, a sparse file."""
    at = pick(draw, _heads(data))
    how = pick(draw, ["x", "x", "g", "L", "K", "S", "many", "deep"])
    if how in ("x", "g"):
        text = b"".join(record(pick(draw, RECORDS)) for _ in range(pick(draw, [1, 1, 2])))
        text = pick(draw, [text] * 4 + [text[:-1], b"5" + text, b"999999999 path=a\n", b"0 path=a\n", b"\n"])
        more = member(b"PaxHeader", text, how.encode())
    elif how in ("L", "K"):
        more = member(b"././@LongLink", pick(draw, [*NAMES, b"a" * 5000, b"0000.png\0\0"]), how.encode())
    elif how == "S":
        raw = bytearray(header(b"0009.png", 10, b"S"))
        raw[386 : 386 + 24] = b"%011o\0%011o\0" % (pick(draw, [0, 512, 2**32]), 10)
        raw[482], raw[483:495] = pick(draw, [0, 1]), b"%011o\0" % pick(draw, [10, 2**32])
        more = bytes(summed(raw)) + bytes(BLOCK)
    elif how == "many":
        more = member(b"0009.png", b"", pick(draw, TYPES)) * pick(draw, [1, 2, 500])
    else:
        more = member(b"x", b"", b"L") * 3000
    return data[:at] + more + data[at:]


def check_file(case: bytes, folder: Path) -> bool:
    number, data = unpacked(case)
    (folder / FILE).write_bytes(data)
    return check(goods(), number, data, f"tar:{FILE}")


KIND = Kind("tar", files(), check_file, 80)
