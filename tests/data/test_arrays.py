"""Sources of arrays: HDF5, CIFAR, and samples from Python."""

import os
import pickle

import h5py
import numpy as np
import pytest
from PIL import Image

from minidnn.data import DataError, parse
from minidnn.data import python as adapters
from minidnn.data.hdf5 import Column

LIMIT = 1 << 20


def everything(dataset):
    return dataset.take(np.arange(len(dataset)))


class TestHdf5:
    def write(self, path, count=5, first=0, **more):
        with h5py.File(path, "w") as file:
            file["data"] = np.arange(first, first + count * 12).reshape(count, 1, 3, 4).astype(np.float32)
            file["label"] = (np.arange(count) % 3).astype(np.float32)
            for name, values in more.items():
                del file[name]
                file[name] = values
        return path

    def test_one_file_and_a_list_of_them(self, tmp_path):
        one, two = self.write(tmp_path / "a.h5"), self.write(tmp_path / "b.h5", count=2, first=60)
        images, labels = everything(parse(str(one)).open())
        assert np.array_equal(images.reshape(-1), np.arange(60)) and labels.tolist() == [0, 1, 2, 0, 1]
        (tmp_path / "list.txt").write_text(f"{one}\n{two}\n")
        source = parse(f"hdf5:{tmp_path}/list.txt")
        images, labels = source.open().take(np.array([6, 0]))
        assert images[0].reshape(-1).tolist() == [*range(72, 84)] and labels.tolist() == [1, 0]
        assert source.sample_shape() == (1, 3, 4) and source.label_shape() == () and len(source.open()) == 7

    def test_a_child_of_a_fork_opens_files_of_its_own(self, tmp_path):
        column = Column(str(self.write(tmp_path / "a.h5")), ["data"])
        column.rows(np.array([0]))
        if not (child := os.fork()):
            os._exit(0 if column.rows(np.array([4]))[0, 0, 0, 0] == 48 else 1)
        assert os.waitpid(child, 0)[1] == 0

    @pytest.mark.parametrize(
        ("more", "said"),
        [
            ({"label": np.zeros(4, np.float32)}, "5 samples, but 4 labels"),
            ({"label": np.full(5, 0.5, np.float32)}, "row 0: 0.5 is not a label: expected a whole number"),
            ({"data": np.zeros(5, "S3")}, "data: .*expected numbers"),
        ],
    )
    def test_what_does_not_fit(self, tmp_path, more, said):
        path = self.write(tmp_path / "a.h5", **more)
        with pytest.raises(DataError, match=said):
            everything(parse(str(path)).open())

    def test_what_is_missing(self, tmp_path):
        with pytest.raises(DataError, match=r"none\.h5: no such file"):
            parse(f"{tmp_path}/none.h5").sample_shape()
        (tmp_path / "bad.h5").write_bytes(b"junk")
        with pytest.raises(DataError, match=r"bad\.h5: not an HDF5 file"):
            parse(f"{tmp_path}/bad.h5").sample_shape()
        with h5py.File(tmp_path / "c.h5", "w") as file:
            file["pixels"] = np.zeros(3)
        with pytest.raises(DataError, match=r"c\.h5: holds pixels; expected a dataset data or x or images"):
            parse(f"{tmp_path}/c.h5").sample_shape()
        (tmp_path / "d.txt").write_text("\n")
        with pytest.raises(DataError, match=r"d\.txt: there are no lines"):
            parse(f"hdf5:{tmp_path}/d.txt").sample_shape()


class TestCifar:
    images = np.arange(4 * 3072, dtype=np.uint32).reshape(4, 3072).astype(np.uint8)

    def test_binary_files(self, tmp_path):
        rows = np.concatenate([np.arange(4, dtype=np.uint8)[:, None], self.images], 1)
        for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
            rows.tofile(tmp_path / f"{name}.bin")
        source = parse(f"cifar10:{tmp_path}")
        images, labels = everything(source.open())
        assert np.array_equal(images[4:8].reshape(4, 3072), self.images) and labels.tolist() == [0, 1, 2, 3] * 5
        assert source.sample_shape() == (3, 32, 32) and source.resident() == 5 * rows.nbytes
        assert len(parse(f"cifar10:{tmp_path}", "TEST").open()) == 4 and source.class_names()[3] == "cat"
        (tmp_path / "data_batch_3.bin").write_bytes(rows.tobytes()[:-1])
        with pytest.raises(DataError, match=r"data_batch_3\.bin: truncated: 12291 bytes are not images of 3073"):
            source.open()

    def test_pickled_files_of_cifar100_and_its_fine_labels(self, tmp_path):
        found = {b"data": self.images, b"fine_labels": [9, 99, 0, 1], b"coarse_labels": [0] * 4}
        (tmp_path / "train").write_bytes(pickle.dumps(found, protocol=2))
        images, labels = everything(parse(f"cifar100:{tmp_path}").open())
        assert labels.tolist() == [9, 99, 0, 1] and np.array_equal(images.reshape(4, 3072), self.images)
        with pytest.raises(DataError, match=r"there is no test\.bin, nor test"):
            parse(f"cifar100:{tmp_path}", "TEST").open()

    def test_a_label_that_is_no_class_is_refused(self, tmp_path):
        values = {b"data": self.images, b"fine_labels": [9, 99, 100, 300]}
        (tmp_path / "train").write_bytes(pickle.dumps(values, protocol=2))
        with pytest.raises(DataError, match="train: label 100 of image 2 is none of the 100 classes"):
            parse(f"cifar100:{tmp_path}").open()
        rows = np.concatenate([np.array([[9], [10], [0], [255]], np.uint8), self.images], 1)
        rows.tofile(tmp_path / "test_batch.bin")
        with pytest.raises(DataError, match=r"test_batch\.bin: label 10 of image 1 is none of the 10 classes"):
            parse(f"cifar10:{tmp_path}:test").open()

    def test_a_pickle_that_would_run_code_is_refused(self, tmp_path):
        (tmp_path / "train").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
        with pytest.raises(DataError, match=r"train: .*it would make os\.system"):
            parse(f"cifar100:{tmp_path}").open()


class Squares:
    """A PyTorch Dataset by its contract."""

    def __init__(self, count=6, image=lambda i: np.full((3, 2, 2), i, np.float32)):
        self.count, self.image = count, image

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        if not 0 <= i < self.count:
            raise IndexError(i)
        return self.image(i), i % 3


class TestPython:
    def test_a_sequence_is_asked_when_samples_are_wanted(self):
        asked = []
        data = adapters.dataset(Squares(image=lambda i: asked.append(i) or np.full((1, 2, 2), i)), "mine", LIMIT)
        images, labels = data.take(np.array([4, 1]))
        assert asked == [0, 4, 1] and images[:, 0, 0, 0].tolist() == [4, 1] and labels.tolist() == [1, 1]
        assert len(data) == 6 and data.shape == (1, 2, 2) and data.highest() == -1

    def test_mappings_with_pillow_s_images(self):
        picture = Image.fromarray(np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3))
        images, labels = everything(adapters.dataset([{"image": picture, "label": 4, "id": "a"}], "rows", LIMIT))
        assert images.shape == (1, 3, 2, 3) and images[0, :, 0, 1].tolist() == [3, 4, 5] and labels.tolist() == [4]

    def test_an_iterable_is_read_once(self):
        data = adapters.dataset((Squares()[i] for i in range(4)), "stream", LIMIT)
        assert len(data) == 4 and everything(data)[1].tolist() == [0, 1, 2, 0]
        with pytest.raises(DataError, match=r"first 3 samples take more than 120 bytes; give a sequence"):
            adapters.dataset((Squares()[0] for _ in iter(int, 1)), "endless", 120)

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ([], "there are no samples"),
            (3, "expected arrays, or a sequence or an iterable"),
            ([7], r"sample 0: expected \(image, label\)"),
            ([{"picture": 1}], "sample 0: has picture; expected one of image, img"),
            ([(np.zeros((1, 2, 2)), -1)], "sample 0: -1 is not a label"),
            ([(np.zeros((1, 2, 2)), 0.5)], "sample 0: 0.5 is not a label"),
            ([(np.full((1, 2, 2), np.nan), 0)], "sample 0: .*not finite"),
            ([(np.zeros((1, 2, 2)), 0), (np.zeros((1, 2, 3)), 0)], r"sample 1: an image \(1, 2, 3\)"),
            (Squares(image=lambda i: 1 // i), "sample 0: ZeroDivisionError"),
        ],
    )
    def test_what_is_no_sample_is_named(self, given, said):
        with pytest.raises(DataError, match=said):
            everything(adapters.dataset(given, "mine", LIMIT))
