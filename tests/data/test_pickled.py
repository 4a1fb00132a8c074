"""CIFAR's pickles are read as Python reads them, and other pickles are not, in time and memory of the file's size."""

from __future__ import annotations

import pickle
import random
import struct
import time
import tracemalloc

import numpy as np
import pytest

from minidnn.data import DataError, parse, pickled

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 3072), np.uint8)
LABELS = [0, 9, 3, 8, 7, 5]
WHOLE = {b"batch_label": b"testing batch 1 of 1", b"labels": LABELS, b"data": IMAGES, b"filenames": [b"a\xff.png"] * 6}


def python_2(images: np.ndarray, labels: list[int]) -> bytes:
    """What Python 2 writes with protocol 2: bytes as texts, NumPy's old names."""
    raw, n = images.tobytes(), len(images)
    return (
        b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x15training batch 1 of 5q\x03U\x06labelsq\x04]q\x05("
        + b"".join(b"K" + bytes([label]) for label in labels)
        + b"eU\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87Rq\t("
        + b"K\1K" + bytes([n]) + b"M\x00\x0c\x86cnumpy\ndtype\nq\nU\x02u1K\x00K\x01\x87Rq\x0b(K\x03U\x01|NNN"
        + b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T" + struct.pack("<I", len(raw)) + raw
        + b"tbU\tfilenamesq\x0c]q\r(U\x05a.pngq\x0eh\x0eeu."
    )  # fmt: skip


def texts_of_python_2(images: np.ndarray, labels: list[int]) -> bytes:
    """What Python 2 writes with protocol 0: lines of text."""
    return (
        b"(dp1\nS'labels'\np2\n(lp3\n" + b"".join(b"I%d\na" % label for label in labels) + b"sS'data'\np4\n"
        + b"cnumpy.core.multiarray\n_reconstruct\np5\n(cnumpy\nndarray\np6\n(I0\ntS'b'\ntRp7\n(I1\n(I%d\n" % len(images)
        + b"L3072L\ntcnumpy\ndtype\np8\n(S'u1'\nI0\nI1\ntRp9\n(I3\nS'|'\nNNNI-1\nI-1\nI0\ntbI00\nS"
        + repr(images.tobytes())[1:].encode() + b"\ntbs."
    )  # fmt: skip


def folder(path, content: bytes, name: str = "test_batch") -> str:
    (path / name).write_bytes(content)
    return f"cifar10:{path}:test"


def same(source: str, labels: list[int]) -> bool:
    images, found = parse(source).open().take(np.arange(len(labels)))
    return np.array_equal(images.reshape(-1, 3072), IMAGES[: len(labels)]) and found.tolist() == labels


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("protocol", range(6))
def test_what_python_writes_is_read(tmp_path, protocol, old):
    kinds = [WHOLE, {key.decode(): value for key, value in WHOLE.items()}, WHOLE | {b"labels": np.array(LABELS)}]
    kinds += [WHOLE | {b"data": IMAGES.copy("F")}, WHOLE | {b"labels": np.array(LABELS, ">i4")}]
    for values in kinds:
        raw = pickle.dumps(values, protocol)
        if old:  # NumPy 1's names; those of protocol 4 and later have their length before them
            raw = raw.replace(b"\x16numpy._core", b"\x15numpy.core").replace(b"\x13numpy._core", b"\x12numpy.core")
            raw = raw.replace(b"numpy._core", b"numpy.core")
        assert same(folder(tmp_path, raw), LABELS)


@pytest.mark.parametrize("write", [python_2, texts_of_python_2])
def test_what_python_2_wrote_is_read(tmp_path, write):
    labels = [6, 9, 9, 4, 1, 0]
    assert same(folder(tmp_path, write(IMAGES, labels)), labels)


def test_values_are_those_of_python():
    value = {b"a": [1, -1, 2**40, -(2**62), True, False, None, 1.5, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)]}
    value |= {b"numbers": [255, 256, 65535, 70000]}
    value |= {"text": "\n\\é\u0394\U0001f600", b"": b"", b"nested": [[], [[{}]], {"x": {}}]}
    for protocol in range(6):
        assert pickled.load(pickle.dumps(value, protocol)) == value


AGAIN = b"\x80\x02c_codecs\nencode\nq\x00X" + struct.pack("<I", 50000) + b"x" * 50000 + b"q\x01X\x06\0\0\0latin1q\x02"
BOMBS = {
    "hex": (b"\x80\x02c_codecs\nencode\nq\x00C\x04AAAAq\x01" + b"h\x00h\x01X\x03\0\0\0hex\x86Rq\x01" * 30 + b"h\x01.",
            "a call that no file of CIFAR has"),
    "memo": (b"\x80\x02Nr\xff\xff\xff\x7f.", "it has no array data"),
    "bytes": (b"\x80\x04\x8e" + struct.pack("<Q", 1 << 36) + b"x.", "68719476736 bytes should follow, and 2 do"),
    "deep": (b"\x80\x02" + b"(" * 20000 + b"t" * 20000 + b".", "no array data"),
    "lists": (b"\x80\x02]q\0" + b"".join(b"](h%ch%ceq%c" % (i, i, i + 1) for i in range(60)) + b"(U\4datah\x3cd.",
              "no array data"),
    "array": (b"cnumpy\nndarray\n(J\0\0\0\x40M\0\x0ctX\2\0\0\0u1\x86R.", "at byte 3[0-9]: a call that no file"),
    "number": (b"\x80\x02\x8b" + struct.pack("<I", 10**6) + b"\1" * 10**6 + b".", "a number of 1000000 bytes"),
    "digits": (b"I" + b"9" * 10**6 + b"\n.", "a line that does not end"),
    "again": (AGAIN + b"h\0h\1h\2\x86R" * 20000 + b".", "a text is encoded again and again"),
    "keys": (b"(" + b"".join(b"\x8a\x08" + struct.pack("<q", i * (2**61 - 1)) + b"N" for i in range(2, 5)) + b"d.",
             "entries that are no names"),
    "itself": (b"]q\0(h\0h\0e(U\4datah\0d.", "instruction without|no array data"),
    "code": (b"cos\nsystem\n(S'exit 1'\ntR.", r"it would make os\.system"),
    "long name": (b"c" + b"a" * 10**6 + b"\nb\n.", r"it would make a{80}\.b, which"),
    "no name": (b"\x80\x04]N\x93.", "it would make what has no name"),
    "empty": (b"", "truncated: 1 bytes should follow, and 0 do"),
    "stack": (b"0.", "at byte 0: an instruction without its values"),
    "mark": (b"t.", "at byte 0: an instruction without its mark"),
    "note": (b"h\5.", "value 5 is not noted"),
    "other": (b"\x80\x02Q.", "instruction b'Q', which no file of CIFAR has"),
    "shape": (python_2(IMAGES, LABELS[:3] * 2).replace(b"M\x00\x0c", b"M\x01\x0c"), "an array of 18432 bytes"),
    "fewer": (pickle.dumps(WHOLE | {b"labels": LABELS[1:]}, 2), r"6 images, but labels of shape \(5,\)"),
    "negative": (pickle.dumps(WHOLE | {b"labels": [-1] * 6}, 2), "label -1 at index 0 is negative"),
    "wide": (pickle.dumps(WHOLE | {b"labels": [2**32 + 1] * 6}, 2), "label 4294967297 of image 0 is none"),
    "unsigned": (pickle.dumps(WHOLE | {b"labels": np.full(6, 2**64 - 1, "u8")}, 2), "label 18446744073709551615 of"),
    "words": (pickle.dumps(WHOLE | {b"labels": ["a"] * 6}, 2), "no array labels"),
    "floats": (pickle.dumps(WHOLE | {b"labels": np.full(6, 1.5)}, 2), "labels are float64"),
    "no images": (pickle.dumps(WHOLE | {b"data": IMAGES[:, :5]}, 2), r"its data are uint8 of shape \(6, 5\)"),
}  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS)
def test_what_no_file_of_cifar_holds_is_refused_at_once(tmp_path, bomb):
    raw, said = BOMBS[bomb]
    source = parse(folder(tmp_path, raw))
    tracemalloc.start()
    try:
        begin = time.process_time()
        with pytest.raises(DataError, match=f"test_batch.*{said}|\\(test\\).*{said}"):
            source.open()
        assert time.process_time() - begin < 5 and tracemalloc.get_traced_memory()[1] < (1 << 20) + 200 * len(raw)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("raw", [python_2(IMAGES, [6, 9, 9, 4, 1, 0]), pickle.dumps(WHOLE, 0), pickle.dumps(WHOLE, 5)])
def test_it_may_be_cut_or_altered_anywhere(tmp_path, raw):
    chance, accepted = random.Random(3), 0
    outside = [at for at in range(len(raw)) if not 600 < at < len(raw) - 300]  # of the images' values
    for size in outside[::9]:
        with pytest.raises(pickled.InvalidPickle):
            pickled.load(raw[:size])
    for at in outside[::7]:
        changed = bytearray(raw)
        changed[at] ^= 1 << chance.randrange(8)
        source = parse(folder(tmp_path, bytes(changed)))
        try:
            accepted += len(source.open()) == 6
        except DataError as error:
            assert len(str(error)) < 600
    assert 0 < accepted < len(outside) / 7
