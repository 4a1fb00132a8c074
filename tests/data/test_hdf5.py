"""HDF5 files of strangers: what lies elsewhere, has no bounds or was never written is refused before it is read."""

import gc
import os
import sys
import zlib

import h5py
import numpy as np
import pytest

from minidnn.data import DataError, hdf5_file, parse
from minidnn.data.dataset import no_labels

X, Y = np.arange(72, dtype=np.float32).reshape(6, 1, 3, 4), np.arange(6) % 3
CHUNKS = {"chunks": (2, 1, 3, 4)}


def write(path, x=X, y=Y, libver=None, **how):
    """A file with these samples and labels; None: without."""
    with h5py.File(path, "w", libver=libver) as file:
        if x is not None:
            file.create_dataset("data", data=x, **how)
        if y is not None:
            file["label"] = y
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.h5"


def content(path):
    dataset = parse(f"hdf5:{path}").open()
    return dataset.take(np.arange(len(dataset)))


def refused(path, said):
    with pytest.raises(DataError, match=f"a.h5: {said}") as error:
        content(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "how",
    [
        {},
        CHUNKS,
        {"libver": "latest", **CHUNKS},
        {"compression": "gzip", "shuffle": True, "fletcher32": True, **CHUNKS},
        {"compression": "lzf", "chunks": (4, 1, 3, 4), "maxshape": (None, 1, 3, 4)},
    ],
)
def test_what_is_whole_is_read(path, how):
    images, labels = content(write(path, **how))
    assert np.array_equal(images, X) and labels.tolist() == Y.tolist() and labels.dtype == np.int32


def test_a_link_within_the_file_is_followed_and_none_that_leads_out_or_round(path, tmp_path):
    write(tmp_path / "other.h5")
    write(path, None)
    with h5py.File(path, "a") as file:
        file["deep/samples"] = X
        file["deep/again"] = h5py.SoftLink("samples")
        file["data"] = h5py.SoftLink("/deep/again")
    assert np.array_equal(content(path)[0], X)
    gc.collect()  # closes the file
    for link, said in (
        (h5py.SoftLink("/data"), "data: more than 16 links"),
        (h5py.SoftLink("out/data"), "data: a link to the file other.h5"),
        (h5py.ExternalLink("other.h5", "data"), "data: a link to the file other.h5"),
        (h5py.ExternalLink("/dev/zero", "data"), "data: a link to the file /dev/zero"),
        (h5py.SoftLink("nothing"), r"holds data, deep, label, out; expected a dataset data or x or images"),
        (h5py.SoftLink("label/deeper"), "data: "),
    ):
        with h5py.File(path, "a") as file:
            del file["data"]
            file["data"] = link
            if "out" not in file:
                file["out"] = h5py.ExternalLink("other.h5", "/")
        refused(path, said)


def test_values_in_other_files_are_refused(path, tmp_path):
    (tmp_path / "secret").write_bytes(bytes(range(72)))
    with h5py.File(write(path, None), "a") as file:
        file.create_dataset("data", (6, 1, 3, 4), "u1", external=[(str(tmp_path / "secret"), 0, 72)])
    refused(path, "data: its values lie in other files")
    view = h5py.VirtualLayout((6, 1, 3, 4), "f4")
    view[:] = h5py.VirtualSource(str(write(tmp_path / "other.h5")), "data", X.shape)
    with h5py.File(path, "a") as file:
        del file["data"]
        file.create_virtual_dataset("data", view)
    refused(path, "data: its values lie in other files")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (h5py.Empty("f4"), "data: an empty dataset, without a shape"),
        (np.ones((2, 0, 2, 2), "f4"), r"data: float32 of shape \(2, 0, 2, 2\): its rows hold no values"),
        (np.ones((0, 1, 2, 2), "f4"), "data: there are no rows"),
        (np.float32(1), "data: float32 of shape"),
        (X.astype("c8"), "data: complex64"),
        (np.array([b"a", b"b"]), "data: .*S1"),
        (np.dtype("f4"), "data: a datatype; expected a dataset"),
    ],
)
def test_what_is_no_array_of_samples(path, value, said):
    with h5py.File(write(path, None), "a") as file:
        file["data"] = value
    refused(path, said)


def test_no_rows_of_chunks(path):
    refused(write(path, X[:0], Y[:0], maxshape=(None, 1, 3, 4)), "data: there are no rows")


def test_a_group_is_no_dataset(path):
    with h5py.File(write(path, None), "a") as file:
        file.create_group("data")
    refused(path, "data: a group; expected a dataset")


class TestBounds:
    @pytest.mark.parametrize(
        ("shape", "chunks", "said"),
        [
            ((10**12, 1, 2, 2), (1, 1, 2, 2), r"data: 1000000000000 rows in a file of \d+ bytes"),
            ((10**9, 1, 2, 2), (1024, 1, 2, 2), r"data: 1000000000 rows in a file of \d+ bytes"),
            ((4, 3, 10**5, 10**5), (1, 1, 1000, 1000), "data: 0 of 120000 chunks are there"),
            ((4, 3, 10**5, 10**5), None, r"data: float32 of shape \(4, 3, 100000, 100000\): it was never written"),
            ((4, 1, 2, 2), (2**25, 1, 2, 2), r"data: chunks of shape .* 536870912 bytes; at most 268435456"),
        ],
    )
    def test_what_is_promised_and_not_there(self, path, shape, chunks, said):
        with h5py.File(write(path, None), "a") as file:
            more = (None, *shape[1:]) if chunks and chunks[0] > shape[0] else None
            file.create_dataset("data", shape, "f4", chunks=chunks, maxshape=more)
        refused(path, said)

    def test_a_chunk_that_was_never_written_is_no_sample(self, path):
        with h5py.File(write(path, None), "a") as file:
            file.create_dataset("data", X.shape, "f4", **CHUNKS)[:4] = X[:4]
        refused(path, "data: 2 of 3 chunks are there")

    def test_values_beyond_what_their_bytes_can_hold(self, path, monkeypatch):
        with h5py.File(write(path, None, np.zeros(4)), "a") as file:
            file.create_dataset("data", (4, 1, 512, 512), "f4", chunks=(4, 1, 512, 512), compression="gzip")[:] = 0
        assert content(path)[0].max() == 0
        monkeypatch.setattr(hdf5_file, "RATIO", 100)
        monkeypatch.setattr(hdf5_file, "_CHECKED", {})
        refused(path, r"data: 1 chunks of 4194304 bytes, stored in \d+ bytes, which is impossible")

    def test_a_large_chunk_is_unpacked_once_for_its_rows(self, path):
        rows = np.zeros((4096, 1, 32, 32), np.float32)
        rows[:, 0, 0, 0] = np.arange(4096)
        write(path, rows, np.zeros(4096), chunks=rows.shape, compression="gzip", compression_opts=1)
        source = parse(f"hdf5:{path}").open()
        assert source._x._opened(str(path))[1].id.get_access_plist().get_chunk_cache()[1] == rows.nbytes == 2**24
        assert source.take(np.array([7, 4095]))[0][:, 0, 0, 0].tolist() == [7, 4095]

    @pytest.mark.parametrize("how", [{}, CHUNKS])
    def test_a_file_that_is_cut_anywhere_is_refused(self, path, how):
        whole = write(path, **how).read_bytes()
        for size in range(0, len(whole), 61):
            path.write_bytes(whole[:size])
            refused(path, "not an HDF5 file")


@pytest.mark.parametrize(
    ("at", "value", "said"),
    [
        (8, 6, "contradict its shape"),
        (8, 4, "contradict its shape"),
        (24, 3, "contradict its shape"),
        (48, -96, "lie in each other's bytes"),
        (48, 10**6, "lie in each other's bytes, or beyond the file's"),
    ],
)
def test_a_chunk_has_a_place_of_its_own(path, at, value, said):
    """Its first row, its first row of pixels, its address."""
    whole = bytearray(write(path, **CHUNKS).read_bytes())
    begin = whole.index(b"TREE\1") + 24 + 56  # the second chunk: its bytes, filters, first places, address
    assert whole[begin : begin + 16] == (96).to_bytes(8, "little") + (2).to_bytes(8, "little")
    old = int.from_bytes(whole[begin + 48 : begin + 56], "little") if at == 48 else 0
    whole[begin + at : begin + at + 8] = (old + value).to_bytes(8, "little")
    path.write_bytes(whole)
    refused(path, f"data: .*{said}|data: . of 3 chunks")


def test_a_chunk_that_no_filter_could_shrink_is_read_and_one_that_says_so_wrongly_is_refused(path):
    noise = np.frombuffer(np.random.default_rng(0).bytes(4 * X.size), "u1").reshape(6, 1, 3, 16)
    for how in ({"compression": "lzf"}, {"compression": "gzip", "fletcher32": True}):
        write(path, noise, chunks=(1, 1, 3, 16), **how)
        assert np.array_equal(content(path)[0], noise)
    whole = bytearray(write(path, compression="gzip", **CHUNKS).read_bytes())
    begin = whole.index(b"TREE\1") + 24
    whole[begin + 4] ^= 1
    path.write_bytes(whole)
    refused(path, "data: a chunk of 96 bytes is stored in .* without a filter")


@pytest.mark.parametrize("twice", [True, False])
def test_a_chunk_that_becomes_more_than_its_rows(path, twice):
    """To unpack it, HDF5 would take as much memory as it wants."""
    bomb = zlib.compress(bytes(1 << 20), 9)
    with h5py.File(write(path, None), "a") as file:
        how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        how.set_chunk((6, 1, 3, 4))
        how.set_deflate(9)
        if twice:
            how.set_deflate(9)
        space = h5py.h5s.create_simple(X.shape)
        made = h5py.h5d.create(file.id, b"data", h5py.h5t.IEEE_F32LE, space, how)
        made.write_direct_chunk((0, 0, 0, 0), zlib.compress(bomb) if twice else bomb * 2)
    refused(path, "data: packed twice, by 1 and 1" if twice else r"data: a chunk takes \d+ bytes packed, .* 1330")


def test_other_filters_are_refused_unless_the_user_imports_their_package(path, monkeypatch):
    write(path, compression="gzip", **CHUNKS)
    monkeypatch.delitem(hdf5_file._FILTERS, 1)
    monkeypatch.setattr(hdf5_file, "_CHECKED", {})
    refused(path, r"data: packed by the filter 1 \(deflate\); read are shuffle, .*or import hdf5plugin")
    monkeypatch.setitem(sys.modules, "hdf5plugin", os)
    assert np.array_equal(content(path)[0], X)


@pytest.mark.parametrize(
    ("labels", "row", "shown"),
    [
        (np.array([0, 1, 2, 3, 2**32 + 3, 0]), 4, "4294967299"),
        (np.array([0, 2**31, 2, 3, 4, 0]), 1, "2147483648"),
        (np.array([0, 1, 2, 3, 2**64 - 1, 0], np.uint64), 4, "18446744073709551615"),
        (np.array([0, 1, 2, 3, 2**31, 0], np.uint32), 4, "2147483648"),
        (np.array([0, 1, 2, 1e20, 4, 0], np.float32), 3, "1.0000000200408773e"),
        (np.array([0, 1, 2, -1, 4, 0], np.int8), 3, "-1"),
        (np.array([0, 1, 2, -1, 4, 0], np.float16), 3, "-1.0"),
        (np.array([0, 1, 2, 2.5, 4, 0]), 3, "2.5"),
    ],
)
def test_labels_of_every_width_are_checked_before_they_are_narrowed(path, labels, row, shown):
    write(path, y=labels)
    refused(path, f"label: row {row}: {shown}.* is not a label: expected a whole number from 0 to 2147483647")


@pytest.mark.parametrize("dtype", ["u1", "i1", "u8", ">i2", "f2", "f8", ">f4", "?"])
def test_labels_of_every_width_are_read(path, dtype):
    labels = np.array([0, 1, 0, 1, 1, 0], dtype)
    assert content(write(path, y=labels))[1].tolist() == [0, 1, 0, 1, 1, 0]


def test_no_labels():
    wrong = no_labels(np.array([0.0, np.nan, np.inf, -np.inf, -1, 0.5, 2**31, 2**31 - 1, 1e300]))
    assert wrong.tolist() == [False, True, True, True, True, True, True, False, True]
    assert no_labels(np.array([-(2**31), -(2**31) - 1, -1]), -(2**31)).tolist() == [False, True, False]


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_values_that_float32_cannot_hold(path, value):
    images = X.astype(np.float64)
    images[3, 0, 1, 2] = value
    refused(write(path, images), "data: row 3 holds values that are not finite in float32")


def test_a_damaged_file_is_read_or_refused(path):
    """What h5py raises is of ten kinds."""
    whole = write(path, compression="gzip", fletcher32=True, **CHUNKS).read_bytes()
    places = [at for at in range(len(whole)) if whole[at]][::3]
    read = 0
    for k, at in enumerate(places):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << k % 8
        path.write_bytes(damaged)
        try:
            images, _ = content(path)
        except DataError as error:
            assert "a.h5" in str(error)
        else:
            read += 1
            assert images.shape == X.shape
    assert 0 < read < len(places)
