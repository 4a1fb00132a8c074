"""Files of data that are damaged or that lie: each is the file's error, and names it."""

from __future__ import annotations

import gzip
import io
import tracemalloc
import zipfile

import numpy as np
import pytest

from minidnn.data import DataError, mnist, parse
from minidnn.data.npz import read, read_arrays, sample_shape


def npy(header: bytes | None = None) -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(800, dtype=np.float32).reshape(2, 400))
    raw = file.getvalue()
    return raw if header is None else raw[:10] + header.ljust(len(raw[10:128]) - 1) + b"\n" + raw[128:]


def archive(path, x: bytes, compression: int = zipfile.ZIP_STORED) -> bytearray:
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("x.npy", x)
        file.writestr("y.npy", npy())
    return bytearray(path.read_bytes())


def each(raw: bytearray, signature: bytes, offset: int, value: int) -> None:
    """Set a byte behind each header with this signature."""
    at = raw.find(signature)
    while at >= 0:
        raw[at + offset] = value
        at = raw.find(signature, at + 4)


LOCAL, CENTRAL = b"PK\x03\x04", b"PK\x01\x02"


def encrypted(path):
    raw = archive(path, npy())
    each(raw, LOCAL, 6, 1)
    each(raw, CENTRAL, 8, 1)
    return raw


def unknown_method(path):
    raw = archive(path, npy())
    each(raw, LOCAL, 8, 99)
    each(raw, CENTRAL, 10, 99)
    return raw


def unknown_version(path):
    raw = archive(path, npy())
    each(raw, CENTRAL, 6, 250)
    return raw


def damaged_lzma(path):
    raw = archive(path, npy(), zipfile.ZIP_LZMA)
    raw[60:90] = b"\xff" * 30
    return raw


def tokens(path):
    return archive(path, npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 400,"))


def types(path):
    return archive(path, npy(b"{'descr': 7, 'fortran_order': False, 'shape': (2, 400), }"))


def no_array(path):
    return archive(path, b"\x93NUMPZ" + npy()[6:])


def python(path):
    return archive(path, npy(b"{'descr': '<f4', 'fortran_order': FaX, 'shape': (2, 400), }"))


@pytest.mark.parametrize(
    "damage", [no_array, python, encrypted, unknown_method, unknown_version, damaged_lzma, tokens, types]
)
def test_a_damaged_file_is_named(tmp_path, damage):
    path = tmp_path / "data.npz"
    path.write_bytes(damage(path))
    for use in (read, sample_shape):
        with pytest.raises(DataError, match=r"data.npz: not a whole npz or npy file \(\d+ bytes\): .") as error:
            use(path)
        assert " at 0x" not in str(error.value)


def test_a_header_that_promises_more_than_follows_is_refused_before_it_is_believed(tmp_path):
    path = tmp_path / "data.npz"
    huge = npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }")
    archive(path, huge)
    for use in (read, sample_shape):
        with pytest.raises(
            DataError, match=r"x.npy promises float32 of shape \(4294967296, 4294967296\), \d+ bytes; 3"
        ):
            use(path)
    path.write_bytes(huge)
    with pytest.raises(DataError, match="it promises float32 of shape"):
        read_arrays(path)


def test_a_member_that_is_no_array_may_lie_beside_them(tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, x=np.ones((2, 3), np.float32), y=np.arange(2))
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("README", "mine")
    assert read(path).shape == sample_shape(path) == (3,)


def test_a_file_without_damage_is_read(tmp_path):
    archive(tmp_path / "data.npz", npy())
    assert sample_shape(tmp_path / "data.npz") == (400,)


# ---- IDX


def idx(folder, shape, values: bytes = b"", magic: bytes = b"\0\0\x08\x03", pack=lambda raw: raw):
    path = folder / "train-images-idx3-ubyte"
    path.write_bytes(pack(magic + b"".join(n.to_bytes(4, "big") for n in shape) + values))
    return path


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"shape": (6, 64, 1208125519)}, r"truncated: its header promises 6×64×1208125519 values"),
        (
            {"shape": (6, 64, 1208125519), "pack": gzip.compress},
            r"truncated: its header promises 6×64×1208125519 values",
        ),
        ({"shape": (6, 5, 4), "magic": b"\0\1\x08\x03"}, r"not an IDX file: it begins with 00 01 08 03"),
        ({"shape": (6, 5), "magic": b"\0\0\x08\x02", "values": bytes(30)}, r"2 axes .* images have 3"),
        ({"shape": (6, 0, 4)}, r"its images have 0×4 places"),
        ({"shape": (6,)}, r"truncated: 3 axes take 16 bytes of header, it holds 8"),
        (
            {"shape": (6, 5, 4), "pack": lambda raw: gzip.compress(raw)[:15]},
            r"truncated: gzip cannot read its 15 bytes",
        ),
    ],
)
def test_a_damaged_idx_file_is_refused_before_its_shape_is_used(tmp_path, made, said):
    path = idx(tmp_path, **made)
    with pytest.raises(DataError, match=f"train-images-idx3-ubyte: {said}"):
        mnist.sample_shape(tmp_path, "train")
    if "images have" not in said:  # an array that is no image is an IDX file all the same
        with pytest.raises(DataError, match=f"train-images-idx3-ubyte: {said}"):
            mnist.read_idx(path)


@pytest.mark.parametrize(
    ("shape", "said"),
    [((6, 5, 4), "promises 6×5×4 values, 120 bytes; more follow"), ((2**20, 2**10, 2**10), "1099511627776 bytes; it")],
)
def test_of_a_gzip_bomb_no_more_is_unpacked_than_its_header_promises(tmp_path, shape, said):
    path = idx(tmp_path, shape, bytes(50 << 20), pack=lambda raw: gzip.compress(raw, 1))
    assert most_bytes(lambda: mnist.read_idx(path), said) < 4 << 20


def test_a_header_of_a_length_beyond_the_file(tmp_path):
    """No more is allocated for it than the file has."""
    path = tmp_path / "data.npz"
    path.write_bytes(b"\x93NUMPY\x02\x00" + (2**32 - 1).to_bytes(4, "little") + b"{'descr': '<f4'")
    assert most_bytes(lambda: read(path), "not a whole npz or npy file") < 4 << 20


def most_bytes(refuse, said: str) -> int:
    """The most bytes that Python and NumPy hold while a file is refused with these words."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=said):
            refuse()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_header_of_no_images_is_refused_whatever_their_size(tmp_path):
    path = tmp_path / "data.npz"
    archive(path, npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4294967296), }"))
    (tmp_path / "train-images-idx3-ubyte").write_bytes(bytes([0, 0, 8, 3]) + np.array([0, 5, 2**31], ">u4").tobytes())
    for use in (lambda: read(path), lambda: sample_shape(path), lambda: mnist.sample_shape(tmp_path, "train")):
        with pytest.raises(DataError, match="there are no images"):
            use()


def test_a_header_of_no_images_that_are_beyond_every_machine(tmp_path):
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(bytes([0, 0, 8, 3]) + np.array([0, 2**32 - 1, 2**32 - 1], ">u4").tobytes())
    with pytest.raises(DataError, match="beyond what a machine addresses"):
        mnist.read_idx(path)


@pytest.mark.parametrize("shape", [(2, 3, 0, 4), (2, 0), (2, 0, 4)])
def test_images_without_values(tmp_path, shape):
    np.savez(tmp_path / "data.npz", x=np.zeros(shape, np.uint8), y=[0, 1])
    for use in (read, sample_shape):
        with pytest.raises(DataError, match=r"data\.npz: images of shape .*0.* have no values"):
            use(tmp_path / "data.npz")


@pytest.mark.parametrize(
    "labels",
    [np.array([0, 2**31]), np.array([2**32 + 1, 1]), np.array([2**64 - 1, 0], np.uint64), [-1, 0], [1.0, 0.0], [1j, 0]],
)
def test_labels_are_checked_before_they_are_narrowed(tmp_path, labels):
    np.savez(tmp_path / "data.npz", x=np.zeros((2, 4), np.uint8), y=labels)
    with pytest.raises(DataError, match=r"data\.npz: label.* (is not a class number|is negative|are (float|complex))"):
        read(tmp_path / "data.npz")


@pytest.mark.parametrize("label", ["9" * 5000, "4294967297", "-1", "1.5", "\u00b2"])
def test_a_label_of_a_list(tmp_path, label):
    (tmp_path / "list.txt").write_text(f"a.png 0\nb.png {label}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"list\.txt:2: expected a path, a space and a label of at least 0") as error:
        parse(f"list:{tmp_path / 'list.txt'}").open()
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_npz_with_another_bit_is_refused_or_read_rightly(tmp_path, compression):
    """zip has checksums."""
    path, images, labels = tmp_path / "data.npz", np.arange(80, dtype=np.uint8).reshape(5, 1, 4, 4), [0, 1, 2, 3, 1]
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, values in (("x", images), ("y", np.array(labels))):
            np.save(content := io.BytesIO(), values)
            file.writestr(f"{name}.npy", content.getvalue())
    whole, accepted = path.read_bytes(), 0
    for at in range(0, len(whole), 3):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        try:
            result = read(path)
        except DataError:
            continue
        accepted += 1
        assert np.array_equal(result.images, images) and result.labels.tolist() == labels
    assert 0 < accepted < len(whole) / 6
