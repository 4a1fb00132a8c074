"""safetensors files by rows: the library reads what we write, and we read what it writes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from minidnn.layers import rows
from minidnn.training import tensor_file
from minidnn.training.tensor_file import TensorFileError, Writer

TENSORS = {
    "b/w": np.arange(24, dtype=np.float32).reshape(4, 2, 3),
    'a "quoted"\\ \u00fc\n\x7f\x1b/w': np.arange(5, dtype=np.float32),
    "a/one": np.array(2.5, np.float32),
    "a/empty": np.empty((0, 3), np.float32),
    "a/flat": np.empty((3, 0), np.float32),
    "z/double": np.arange(3, dtype=np.float64),
    "z/half": np.arange(4, dtype=np.float16),
    "z/count": np.arange(3, dtype=np.int64),
    "z/is": np.array([True, False]),
}


@pytest.fixture(params=[1, 8 * 2**20], ids=["row by row", "in one piece"])
def pieces(request, monkeypatch):
    monkeypatch.setattr(rows, "PIECE", request.param)


def written(path, tensors, metadata):
    with open(path, "wb") as file:
        writer = Writer(file, {name: rows.of(array) for name, array in tensors.items()}, metadata)
        for name in tensors:
            for piece in rows.of(tensors[name]).pieces():
                writer.write(name, piece)
        writer.end(metadata)
    return path


def test_the_file_is_the_librarys(tmp_path, pieces):
    tensors = {name: TENSORS[name] for name in TENSORS if TENSORS[name].dtype == np.float32}
    metadata = {"minidnn": '{"a": [1, "\u00fc"]}'}
    save_file(tensors, tmp_path / "library", metadata)
    assert written(tmp_path / "ours", tensors, metadata).read_bytes() == (tmp_path / "library").read_bytes()


def test_each_reads_the_others(tmp_path, pieces):
    save_file(TENSORS, tmp_path / "library")
    for path in (tmp_path / "library", written(tmp_path / "ours", TENSORS, {})):
        ours, library = tensor_file.read(path)[0], load_file(path)
        assert ours.keys() == library.keys() == TENSORS.keys()
        for name, array in TENSORS.items():
            for read in (ours[name].whole(), library[name]):
                assert (read.dtype, read.shape, read.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_a_file_that_is_replaced_or_removed_is_read_on_and_one_that_is_written_to_is_not(tmp_path):
    path = written(tmp_path / "a", TENSORS, {})
    values = tensor_file.read(path)[0]["b/w"]
    other = written(tmp_path / "b", {"b/w": TENSORS["b/w"] + 1}, {})
    other.replace(path)
    assert np.array_equal(values.whole(), TENSORS["b/w"])
    values = tensor_file.read(path)[0]["b/w"]
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    path.unlink()
    with pytest.raises(TensorFileError, match="a: changed while it was read"):
        values.whole()


def test_files_are_closed(tmp_path):
    path = written(tmp_path / "a", TENSORS, {})
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        tensor_file.read(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(
    ("shape", "said"), [([2**60, 0], None), ([5, 0, 2**62, 2**62], r"a/w has shape .*, which no machine addresses")]
)
def test_empty_tensors_of_huge_shapes_take_no_time(tmp_path, shape, said):
    header = json.dumps({"a/w": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}).encode()
    path = tmp_path / "a"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    if said:
        with pytest.raises(TensorFileError, match=said):
            tensor_file.read(path)
    else:
        assert len(list(tensor_file.read(path)[0]["a/w"].pieces())) == 1
