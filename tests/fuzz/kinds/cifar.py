"""CIFAR's files, pickled and binary: pickles hold a few opcodes, binary files rows of one length."""

from __future__ import annotations

import pickle
import pickletools
import struct
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.fuzz.kind import Kind
from tests.fuzz.mutate import mutated
from tests.fuzz.pieces import pick
from tests.fuzz.samples import Good, check, packed, samples, unpacked

VALUES = 3072
LABELS = [3, 0, 9]
MARKER = "has-run"  # a file that a pickle makes which runs code
RECONSTRUCT = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n"
SIZES = {"I": [0, 1, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1], "Q": [0, 1, 2**31, 2**36, 2**63 - 1, 2**63, 2**64 - 1]}


def images() -> np.ndarray:
    """Images that pack well, of which no two are the same."""
    return (np.arange(VALUES) // 96 + np.arange(len(LABELS))[:, None] * 40).astype(np.uint8)


# ---- pickles by hand, as Python 2 wrote them


def text(value: bytes) -> bytes:
    short = len(value) < 256
    return (b"U" + bytes([len(value)]) if short else b"T" + struct.pack("<I", len(value))) + value


def number(value: int) -> bytes:
    return b"K" + bytes([value]) if 0 <= value < 256 else b"J" + struct.pack("<i", value)


def array(
    shape: tuple[int, ...],
    data: bytes,
    kind: bytes = b"u1",
    fortran: bytes = b"\x89",
    rest: bytes = b"(K\3U\1|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb",
) -> bytes:
    """NumPy's array: its reconstruction, its type and its state."""
    made = RECONSTRUCT + b"(K\0tU\1btR"
    sizes = b"(" + b"".join(map(number, shape)) + b"t"
    return made + b"(K\1" + sizes + b"cnumpy\ndtype\n(" + text(kind) + b"K\0K\1tR" + rest + fortran + data + b"tb"


def mapping(**items: bytes) -> bytes:
    return b"\x80\x02}(" + b"".join(text(key.encode()) + value for key, value in items.items()) + b"u."


def listed(values: list[int]) -> bytes:
    return b"](" + b"".join(map(number, values)) + b"e"


def hand(labels: str = "labels", data: bytes | None = None, numbers: bytes | None = None) -> bytes:
    pixels = images()
    return mapping(
        batch_label=text(b"testing batch 1 of 1"), **{labels: listed(LABELS) if numbers is None else numbers},
        data=array(pixels.shape, text(pixels.tobytes())) if data is None else data,
        filenames=b"](" + b"".join(text(b"a_%d.png" % k) for k in range(3)) + b"e",
    )  # fmt: skip


@lru_cache
def goods() -> list[Good]:
    """`more` is the source's word, and the file's name."""
    ten, hundred = ("cifar10", "test_batch"), ("cifar100", "test")
    binary = ("cifar10", "test_batch.bin")
    pixels, want = images(), samples(LABELS, images().reshape(-1, 3, 32, 32))
    rows = b"".join(bytes([label]) + row.tobytes() for label, row in zip(LABELS, pixels, strict=True))
    many = b"".join(bytes([5, label]) + row.tobytes() for label, row in zip(LABELS, pixels, strict=True))

    def dumped(protocol: int, **more: Any) -> bytes:
        return pickle.dumps({b"data": pixels, b"labels": LABELS, **{k.encode(): v for k, v in more.items()}}, protocol)

    right = [
        ("as Python 2 wrote it", hand(), want, ten), ("by protocol 2", dumped(2), want, ten),
        ("of 100 classes", hand("fine_labels"), want, hundred),
    ]  # fmt: skip
    result = [Good(name, data, of, spread=len(want), more=more) for name, data, of, more in right]
    result += [
        Good("binary", rows, want, ends=False, more=binary),
        Good("binary, 100", many, want, ends=False, more=("cifar100", "test.bin")),
    ]
    result += [Good(name, data, None, more=ten) for name, data in wrong().items()]
    return [*result, Good("a row and a half", rows[: VALUES * 3 // 2], None, more=binary)]


def wrong() -> dict[str, bytes]:
    """Pickles that have to be refused: they run code, take memory, or are no files of CIFAR."""
    runs = f"touch {MARKER}".encode()
    return {
        "a call of system": mapping(data=b"cposix\nsystem\n(" + text(runs) + b"tR"),
        "a call of eval": mapping(data=b"c__builtin__\neval\n(" + text(b"open('has-run','w')") + b"tR"),
        "a call by protocol 4": b"\x80\x04\x8c\x05posix\x94\x8c\x06system\x94\x93\x8c\x0dtouch has-run\x94\x85R.",
        "an instance": b"\x80\x02(" + text(runs) + b"iposix\nsystem\n.",
        "an object": b"\x80\x02(cposix\nsystem\n" + text(runs) + b"o.",
        "a call of numpy.load": mapping(data=b"cnumpy\nload\n(" + text(b"x") + b"NNNtR"),
        "a persistent id": b"\x80\x02Px\n.", "an extension": b"\x80\x02\x82\x01.",
        "doubled 30 times": b"\x80\x02c_codecs\nencode\nq\0C\4AAAAq\1" + b"h\0h\1X\3\0\0\0hex\x86Rq\1" * 30 + b"h\1.",
        "doubled in lists": b"\x80\x02]q\0" + b"(h\0h\0lq\0" * 60 + b".",
        "a place of 2^31": b"\x80\x02Nr\xff\xff\xff\x7f.",
        "64 GiB of bytes": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 36) + b"x.",
        "a frame of 2^62": b"\x80\x04\x95" + struct.pack("<Q", 1 << 62) + b"N.",
        "2^31 letters": b"\x80\x02X" + struct.pack("<I", 2**31 - 1) + b"x.",
        "deep": b"\x80\x02" + b"(" * 10**5 + b"t" * 10**5 + b".",
        "an array of 3 TiB": hand(data=b"cnumpy\nndarray\n(" + b"(J\0\0\0\x40M\0\x0ctX\2\0\0\0u1tR"),
        "objects": hand(data=array((3,), b"](K\1K\2K\3e", b"O8")),
        "a type of 1 GB": hand(data=array((3,), text(b""), b"V1000000000")),
        "a shape that is too large": hand(data=array((30, VALUES), text(images().tobytes()))),
        "a shape of 2^62": hand(data=RECONSTRUCT + b"(\x8a\x08" + b"\xff" * 7 + b"\x3ftU\1btR"),
        "negative labels": hand(numbers=b"](" + number(-1) * 3 + b"e"),
        "a label too few": hand(numbers=listed(LABELS[:2])),
        "labels of 2^70": hand(numbers=b"](\x8a\x09" + bytes(8) + b"\x40K\1K\1e"),
        "labels of texts": hand(numbers=b"](U\1aU\1bU\1ce"),
        "labels that are fractions": hand(numbers=b"](G" + struct.pack(">d", 1.5) + b"K\1K\1e"),
        "a list": pickle.dumps([1, 2], 2),
        "the digits of a number": b"\x80\x02L" + b"9" * 200_000 + b"L\n.",
    }  # fmt: skip


@lru_cache
def parts(index: int) -> list[bytes]:
    """The opcodes of a pickle, each with its argument."""
    data = goods()[index].data
    try:
        starts = [at for _, _, at in pickletools.genops(data) if at is not None]
    except ValueError:
        return [data]
    return [data[first:last] for first, last in zip(starts, [*starts[1:], len(data)], strict=True)]


PIECES = [b"c_codecs\nencode\n", b"cnumpy\nndarray\n", b"cnumpy\ndtype\n", b"cnumpy._core.multiarray\n_reconstruct\n",
          b"cposix\nsystem\n",
          b"cnumpy\nfromfile\n", b"c__builtin__\nbytearray\n", b"\x8c\x05numpy\x8c\x07ndarray\x93", b"(", b")", b"}",
          b"]", b"t", b"R", b"b",
          b"u", b"s", b"e", b"a", b"0", b"1", b"2", b".", b"N", b"\x88", b"h\0", b"h\xff", b"j\xff\xff\xff\xff",
          b"q\0", b"r\xff\xff\xff\x7f",
          b"\x94", b"\x81", b"\x92", b"Q", b"Pid\n", b"\x82\1", b"\x84\1\0\0\0", b"I99\n", b"L99L\n", b"F1e400\n",
          b"S'a'\n", b"V\\ud800\n",
          b"\x8a\xff" + b"\x7f" * 255, b"\x8b\xff\xff\xff\x7f", b"\x8b\xff\xff\xff\xff", b"C\3abc", b"\x8f", b"\x91",
          b"\x97", b"\x98", b"\x96" + bytes(8),
          b"G\x7f\xf0\0\0\0\0\0\0", b"h\0h\0\x86q\0" * 40, b"(h\0h\0lq\0" * 40]  # fmt: skip


@st.composite
def files(draw: Any) -> bytes:
    index = draw(st.integers(0, 4)) if draw(st.booleans()) else draw(st.integers(0, len(goods()) - 1))
    data = goods()[index].data
    how = pick(draw, ["right", "bytes", "bytes", "opcodes", "opcodes", "opcodes", "sizes"])
    if how == "bytes":
        data = draw(mutated(data, PIECES))
    elif how != "right":
        data = draw(_opcodes(parts(index), how == "sizes"))
    return packed(index, data)


@st.composite
def _opcodes(draw: Any, opcodes: list[bytes], sizes: bool) -> bytes:
    """Opcodes gone, doubled, exchanged, from elsewhere; or with another length or number in them."""
    opcodes = list(opcodes)
    for _ in range(pick(draw, [1, 1, 2, 3])):
        first, second = draw(st.integers(0, len(opcodes) - 1)), draw(st.integers(0, len(opcodes) - 1))
        one = opcodes[first]
        if sizes and len(one) > 1:
            form = "Q" if one[:1] in b"\x8e\x8d\x95\x96" and len(one) > 8 else "I" if len(one) > 4 else "B"
            value = pick(draw, SIZES[form]) if form in SIZES else draw(st.integers(0, 255))
            opcodes[first] = one[:1] + struct.pack(f"<{form}", value) + one[1 + struct.calcsize(f"<{form}") :]
            continue
        how = pick(draw, ["gone", "double", "exchange", "piece", "piece", "code"])
        if how == "gone" and len(opcodes) > 1:
            del opcodes[first]
        elif how == "double":
            opcodes.insert(second, one)
        elif how == "exchange":
            opcodes[first], opcodes[second] = opcodes[second], one
        elif how == "piece":
            opcodes.insert(first, pick(draw, PIECES))
        else:
            opcodes[first] = bytes([draw(st.integers(0, 255))]) + one[1:]
    return b"".join(opcodes)


def check_file(case: bytes, folder: Path) -> bool:
    index, data = unpacked(case)
    word, name = goods()[index].more if index < len(goods()) else goods()[0].more
    (folder / name).write_bytes(data)
    return check(goods(), index, data, f"{word}:.", "TEST")


KIND = Kind("cifar", files(), check_file, 80)
