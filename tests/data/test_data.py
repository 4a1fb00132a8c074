"""Readers and the loader: right values, clear errors, and batches that are functions of their position."""

import gzip
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest

from minidnn.data import digits, mnist, npz, open_loader, parse, shapes, transform
from minidnn.data.dataset import Arrays, DataError
from minidnn.data.loader import Loader
from minidnn.data.random import below, permutation, words
from minidnn.data.synthetic import Synthetic
from minidnn.data.transform import Transform
from minidnn.schema.sources import DataParameter, TransformationParameter
from minidnn.schema.wire import sized, varint
from tests.support.paths import ROOT


def numbered(n=10, shape=(1, 4, 4)):
    """Image i is full of i."""
    images = np.broadcast_to(np.arange(n, dtype=np.float32).reshape(-1, 1, 1, 1), (n, *shape)).copy()
    return Arrays.of("numbered", images, np.arange(n) % 3)


def idx(array, code=0x08):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def mnist_folder(tmp_path):
    images = np.arange(6 * 5 * 4, dtype=np.uint8).reshape(6, 5, 4)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(images))
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.arange(6, dtype=np.uint8))))
    return tmp_path


class TestDigits:
    def test_real_digits_split_without_overlap(self):
        train, test = digits.read("train"), digits.read("test")
        assert (len(train), len(test)) == (1437, 360)
        assert train.shape == (1, 8, 8) and train.highest() == 9
        assert train.images.min() == 0 and train.images.max() == 16
        assert np.bincount(test.labels, minlength=10).min() > 20

    def test_they_are_those_of_scikit_learn(self):
        datasets = pytest.importorskip("sklearn.datasets")
        images, labels = (getattr(datasets.load_digits(), name) for name in ("images", "target"))
        test = np.arange(len(labels)) % 5 == 0
        for split, chosen in (("test", test), ("train", ~test)):
            found = digits.read(split)
            assert np.array_equal(found.images[:, 0], images[chosen]) and np.array_equal(found.labels, labels[chosen])

    def test_they_come_with_the_package_and_their_licence_with_it(self):
        assert str(digits.FILE.relative_to(ROOT)) in (ROOT / "NOTICE").read_text()
        code = "import sys; from minidnn.data import digits; digits.read('test'); assert 'sklearn' not in sys.modules"
        subprocess.run([sys.executable, "-c", code], check=True)


class TestMnist:
    def test_reads_plain_and_gzipped(self, mnist_folder):
        data = mnist.read(mnist_folder, "train")
        images, labels = data.take(np.array([5, 0]))
        assert images.shape == (2, 1, 5, 4) and images[1, 0, 0, 1] == 1
        assert labels.tolist() == [5, 0] and labels.dtype == np.int32

    def test_missing_file_and_folder_are_named(self, mnist_folder):
        with pytest.raises(DataError, match="t10k-images-idx3-ubyte"):
            mnist.read(mnist_folder, "test")
        with pytest.raises(DataError, match="no such folder"):
            mnist.read(mnist_folder / "nowhere", "train")

    @pytest.mark.parametrize(
        ("length", "said"), [(0, "holds 0"), (3, "holds 3"), (9, "holds 9"), (50, "120 bytes; 34 follow")]
    )
    def test_torn_file_gives_path_and_numbers(self, mnist_folder, length, said):
        path = mnist_folder / "train-images-idx3-ubyte"
        path.write_bytes(path.read_bytes()[:length])
        with pytest.raises(DataError, match=f"train-images-idx3-ubyte: truncated.*{said}"):
            mnist.read(mnist_folder, "train")

    def test_torn_gzip(self, mnist_folder):
        path = mnist_folder / "train-labels-idx1-ubyte.gz"
        path.write_bytes(path.read_bytes()[:-9])
        with pytest.raises(DataError, match=r"labels-idx1-ubyte\.gz: truncated"):
            mnist.read(mnist_folder, "train")

    def test_another_format_and_a_wrong_count(self, mnist_folder):
        labels = mnist_folder / "train-labels-idx1-ubyte.gz"
        labels.write_bytes(idx(np.zeros(4, np.uint8)))
        with pytest.raises(DataError, match=r"6 images, but .* 4 labels"):
            mnist.read(mnist_folder, "train")
        labels.write_bytes(b"PK\x03\x04 a zip file")
        with pytest.raises(DataError, match="not an IDX file: it begins with 50 4b 03 04"):
            mnist.read(mnist_folder, "train")

    def test_big_endian_types(self, tmp_path):
        path = tmp_path / "a.idx"
        path.write_bytes(idx(np.array([1.5, -2.0], ">f4"), code=0x0D))
        assert mnist.read_idx(path).tolist() == [1.5, -2.0]


class TestNpz:
    def test_either_pair_of_names(self, tmp_path):
        np.savez(tmp_path / "a.npz", images=np.zeros((4, 3, 3), np.uint8), labels=np.arange(4)[:, None])
        data = npz.read(tmp_path / "a.npz")
        assert data.shape == (1, 3, 3) and data.labels.tolist() == [0, 1, 2, 3]

    def test_errors_name_the_file(self, tmp_path):
        path = tmp_path / "b.npz"
        with pytest.raises(DataError, match=r"b\.npz: No such file"):
            npz.read(path)
        np.savez(path, pictures=np.zeros(3))
        with pytest.raises(DataError, match=r"b\.npz: holds pictures; expected an array x or images"):
            npz.read(path)
        np.savez(path, x=np.zeros((3, 2)), y=np.zeros(3))
        with pytest.raises(DataError, match="labels are float64"):
            npz.read(path)
        np.savez(path, x=np.zeros((3, 2)), y=np.array([0, -1, 1]))
        with pytest.raises(DataError, match="label -1 at index 1"):
            npz.read(path)
        path.write_bytes(path.read_bytes()[:-40])
        with pytest.raises(DataError, match="not a whole npz"):
            npz.read(path)
        path.write_bytes(b"")
        with pytest.raises(DataError, match="0 bytes"):
            npz.read(path)


class TestSynthetic:
    def test_an_image_is_a_function_of_its_index(self):
        data = Synthetic((3, 8, 9), classes=5, count=100, seed=3)
        images, labels = data.take(np.arange(100))
        again, same = data.take(np.array([7, 99]))
        assert np.array_equal(again, images[[7, 99]]) and np.array_equal(same, labels[[7, 99]])
        assert images.shape == (100, 3, 8, 9) and set(labels) == set(range(5))
        assert not np.array_equal(Synthetic((3, 8, 9), 5, 100, seed=4).take(np.arange(2))[0], images[:2])

    def test_labels_can_be_learnt(self):
        data = Synthetic((1, 8, 8), classes=4, count=200)
        x, y = data.take(np.arange(200))
        means = np.stack([x[:100][y[:100] == c].mean(0) for c in range(4)])
        guess = ((x[100:, None] - means) ** 2).sum((2, 3, 4)).argmin(1)
        assert (guess == y[100:]).mean() > 0.95

    def test_flat_samples(self):
        assert Synthetic((7,), 2, 5).take(np.arange(5))[0].shape == (5, 7)


class TestRandom:
    def test_words_do_not_depend_on_the_batch(self):
        assert np.array_equal(words(1, np.arange(10))[4:], words(1, np.arange(4, 10)))
        assert len(np.unique(words(1, np.arange(10000)))) == 10000
        assert not np.array_equal(words(1, np.arange(9), 0), words(1, np.arange(9), 1))

    def test_below_is_even(self):
        counts = np.bincount(below(5, np.arange(30000), 2, 3), minlength=3)
        assert counts.sum() == 30000 and abs(counts - 10000).max() < 400

    def test_permutations(self):
        assert sorted(permutation(1, 0, 50)) == list(range(50))
        assert not np.array_equal(permutation(1, 0, 50), permutation(1, 1, 50))
        assert not np.array_equal(permutation(1, 0, 50), permutation(2, 0, 50))


class TestTransform:
    images = np.arange(2 * 3 * 6 * 6, dtype=np.uint8).reshape(2, 3, 6, 6)

    def test_order_is_crop_mean_scale(self):
        t = Transform(crop=4, mean=(1, 2, 3), scale=0.5, train=False)
        out = t(self.images, np.arange(2))
        want = (self.images[:, :, 1:5, 1:5] - np.array([1, 2, 3], np.float32).reshape(3, 1, 1)) * np.float32(0.5)
        assert out.dtype == np.float32 and out.flags.c_contiguous
        assert np.array_equal(out, want)
        assert t.shape((3, 6, 6)) == (3, 4, 4)

    def test_random_crop_and_mirror_depend_on_the_sample_number_only(self):
        images = np.repeat(self.images[:1], 64, axis=0)
        t = Transform(crop=3, mirror=True, train=True, seed=9)
        whole = t(images, np.arange(100, 164))
        assert np.array_equal(whole[40:], t(images[40:], np.arange(140, 164)))
        assert len(np.unique(whole.reshape(64, -1), axis=0)) > 16  # of 32 possible
        assert not np.array_equal(whole, Transform(3, mirror=True, seed=8)(images, np.arange(100, 164)))

    def test_mirror_reverses_columns(self):
        t = Transform(mirror=True, seed=1)
        out = t(np.repeat(self.images[:1], 20, axis=0), np.arange(20))
        kinds = {bytes(image) for image in out}
        plain = self.images[0].astype(np.float32)
        assert kinds == {plain.tobytes(), plain[..., ::-1].tobytes()}

    def test_the_dataset_is_not_changed(self):
        images = np.ones((2, 1, 2, 2), np.float32)
        Transform(scale=3.0)(images, np.arange(2))
        assert (images == 1).all()

    def test_what_does_not_fit(self):
        with pytest.raises(DataError, match="crop_size 7 exceeds the images' 6×6"):
            Transform(crop=7).shape((3, 6, 6))
        with pytest.raises(DataError, match="2 mean_values for 3 channels"):
            Transform(mean=(1, 2)).shape((3, 6, 6))
        with pytest.raises(DataError, match="need images"):
            Transform(mirror=True).shape((8,))
        with pytest.raises(DataError, match=r"a mean of shape \(1, 2, 2\), but a sample is \(3, 6, 6\)"):
            Transform(image=np.zeros((1, 2, 2), np.float32)).shape((3, 6, 6))
        with pytest.raises(DataError, match="need images"):
            Transform(image=np.zeros((1, 2, 2), np.float32)).shape((8,))

    def test_a_mean_image_is_subtracted_at_each_pixel_s_own_place(self):
        image = np.arange(3 * 36, dtype=np.float32).reshape(3, 6, 6)
        numbers = np.arange(len(self.images))
        plain, minus = Transform(crop=4, seed=3), Transform(crop=4, image=image, scale=0.5, seed=3)
        windows = plain.windows((3, 6, 6), numbers)
        means = np.stack([image[:, r : r + 4, c : c + 4] for r, c, _ in windows])
        assert np.array_equal(minus(self.images, numbers), (plain(self.images, numbers) - means) * np.float32(0.5))
        assert np.array_equal(Transform(image=image)(self.images, numbers), self.images.astype(np.float32) - image)


class TestMeanFile:
    def param(self, path) -> TransformationParameter:
        return TransformationParameter(mean_file=str(path))

    def test_of_caffe_and_of_numpy(self, tmp_path):
        image = np.random.default_rng(0).standard_normal((3, 2, 2)).astype(np.float32)
        shape = b"".join(varint(i << 3) + varint(n) for i, n in enumerate((1, 3, 2, 2), 1))
        (tmp_path / "m.binaryproto").write_bytes(shape + sized(5, image.tobytes()))
        np.save(tmp_path / "m.npy", image)
        for name in ("m.binaryproto", "m.npy"):
            assert np.array_equal(transform(self.param(tmp_path / name), "TEST").image, image)

    @pytest.mark.parametrize("name", ["none.binaryproto", "bad.binaryproto", "empty.binaryproto", "none.npy"])
    def test_bad_ones_are_refused_by_their_name(self, tmp_path, name):
        (tmp_path / "bad.binaryproto").write_bytes(b"\xff\xff")
        (tmp_path / "empty.binaryproto").write_bytes(b"")
        with pytest.raises(DataError, match=name):
            transform(self.param(tmp_path / name), "TEST")

    def test_both_means_are_refused(self):
        with pytest.raises(ValueError, match="expected mean_file or mean_value, got both"):
            TransformationParameter(mean_file="a", mean_value=(1.0,))


class TestLoader:
    def test_a_batch_is_a_function_of_its_position(self):
        with (
            Loader(numbered(), 4, Transform(seed=7)) as loader,
            Loader(numbered(), 4, Transform(seed=7)) as other,
        ):
            taken = [loader.take(p) for p in range(0, 40, 4)]
            assert np.array_equal(other.take(20)[0], taken[5][0])  # straight to the middle
            assert np.array_equal(other.take(4)[0], taken[1][0])  # and back

    def test_train_shows_every_sample_once_an_epoch(self):
        with Loader(numbered(), 4, Transform(seed=7)) as loader:
            seen = np.concatenate([loader.take(p)[0][:, 0, 0, 0] for p in range(0, 40, 4)])
        epochs = seen.reshape(4, 10)
        assert (np.sort(epochs) == np.arange(10)).all()
        assert not np.array_equal(epochs[0], epochs[1])

    def test_labels_stay_with_their_images(self):
        with Loader(numbered(), 7, Transform(seed=1)) as loader:
            images, labels = loader.take(0)
        assert np.array_equal(images[:, 0, 0, 0] % 3, labels)

    def test_test_goes_in_order_and_wraps(self):
        with Loader(numbered(), 4, Transform(train=False)) as loader:
            assert loader.take(8)[0][:, 0, 0, 0].tolist() == [8, 9, 0, 1]

    def test_another_batch_size_continues_the_same_stream(self):
        with Loader(numbered(), 4, Transform(seed=7)) as a, Loader(numbered(), 6, Transform(seed=7)) as b:
            four = np.concatenate([a.take(p)[0] for p in (0, 4, 8)])
            assert np.array_equal(four, np.concatenate([b.take(p)[0] for p in (0, 6)]))

    def test_the_next_batch_is_made_meanwhile(self):
        made, data = threading.Event(), numbered()

        class Watched(Arrays):
            def take(self, indices):
                if indices[0] == 4:
                    made.set()
                return super().take(indices)

        with Loader(Watched(data.name, data.images, data.labels), 4) as loader:
            loader.take(0)
            assert not made.wait(0.05), "its memory may still be that of the last batch"
            loader.ahead()
            assert made.wait(600), "it is not asked for"

    def test_what_fails_on_the_thread_is_raised_here(self):
        data = numbered()

        class Broken(Arrays):
            def take(self, indices):
                if indices[0] == 4:
                    raise DataError("disk on fire")
                return super().take(indices)

        with Loader(Broken(data.name, data.images, data.labels), 4) as loader:
            loader.take(0)
            loader.ahead()
            with pytest.raises(DataError, match="disk on fire"):
                loader.take(4)
            assert loader.take(8)[1].shape == (4,)

    def test_close_ends_the_thread(self):
        before = threading.active_count()
        loader = Loader(numbered(), 4)
        loader.take(0)
        loader.close()
        assert threading.active_count() == before


class TestSource:
    def test_the_phase_chooses_the_split(self, mnist_folder):
        assert parse("digits", "TRAIN").split == "train" and parse("digits", "TEST").split == "test"
        assert parse("digits:train", "TEST").split == "train"
        assert len(parse(f"mnist:{mnist_folder}:train", "TEST").open()) == 6
        train, test = (parse("synthetic:1x8x8", phase).open() for phase in ("TRAIN", "TEST"))
        assert not np.array_equal(train.take(np.arange(3))[0], test.take(np.arange(3))[0])

    def test_settings_of_synthetic(self):
        data = parse("synthetic:3x6x7:classes=4:count=9").open()
        assert (data.shape, data.highest() + 1, len(data)) == ((3, 6, 7), 4, 9)

    @pytest.mark.parametrize("kind", ["digits", "mnist", "npz", "synthetic"])
    def test_the_shape_is_known_before_reading(self, kind, mnist_folder, tmp_path):
        np.savez_compressed(tmp_path / "a.npz", x=np.zeros((4, 9, 7)), y=np.zeros(4, int))
        text = {
            "digits": "digits",
            "mnist": f"mnist:{mnist_folder}",
            "npz": f"{tmp_path}/a.npz",
            "synthetic": "synthetic:3x5x5",
        }[kind]
        assert parse(text).sample_shape() == parse(text).open().shape

    def test_mnist_that_is_not_there_yet_can_be_planned(self, tmp_path):
        assert parse(f"mnist:{tmp_path}").sample_shape() == (1, 28, 28)

    def test_the_type_of_samples_is_known_before_they_are_read(self, tmp_path, mnist_folder):
        assert [parse(t).sample_type() for t in ("digits", "synthetic:1x8x8")] == ["float32"] * 2
        folders = mnist_folder, tmp_path / "no"
        assert [parse(f"mnist:{folder}").sample_type() for folder in folders] == ["uint8"] * 2
        for dtype, said in (("uint8", "uint8"), ("float32", "float32"), ("float64", "float32"), ("int16", "float32")):
            np.savez(tmp_path / "a.npz", x=np.zeros((2, 3, 3), dtype), y=np.zeros(2, int))
            assert parse(f"npz:{tmp_path / 'a.npz'}").sample_type() == said

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("digit", "did you mean 'digits'"),
            ("mnist", "expected folder:PATH, .*, mnist:FOLDER, digits"),
            ("digits:half", "not known"),
            ("synthetic:3xx", "'3xx' is not a sample's shape"),
            ("synthetic:0x1x1", "'0x1x1' is not a sample's shape"),
            ("synthetic:1x8x8:clases=3", "'clases=3' is not one of classes, count, seed"),
            ("synthetic:1x8x8:count=99999999999999999999", "may be above 2"),
            ("synthetic:3x99999999x99999999", "may be above 2"),
        ],
    )
    def test_what_is_not_understood(self, text, said):
        with pytest.raises(DataError, match=said):
            parse(text)

    def test_a_data_layer_after_its_crop(self):
        data = DataParameter(source="synthetic:3x9x9", batch_size=5)
        change = TransformationParameter(crop_size=6, mean_value=[0.5], mirror=True)
        assert shapes(data, change, "TRAIN") == ((3, 6, 6), ())
        with open_loader(data, change, "TRAIN", seed=1) as loader:
            assert loader.shape == loader.take(0)[0].shape == (5, 3, 6, 6)
        with open_loader(data, change, "TEST", seed=1, batch=2) as loader:
            assert loader.take(0)[0].shape == (2, 3, 6, 6)


@pytest.mark.parametrize("train", [True, False])
def test_a_raw_batch_and_its_windows_make_the_batch(train):
    images = np.random.default_rng(1).integers(0, 256, (20, 3, 9, 8)).astype(np.uint8)
    dataset = Arrays.of("some", images, np.arange(20) % 7)
    with Loader(dataset, 6, Transform(5, (1.5, 2.5, 3.5), 0.3, True, train, seed=4)) as loader:
        for position in (0, 6, 18):
            samples, windows, labels = loader.take_raw(position)
            assert samples.dtype == np.uint8 and windows.dtype == np.int32
            cut = [x[:, r : r + 5, c : c + 5] for x, (r, c, _) in zip(samples, windows, strict=True)]
            made = np.stack([x[..., ::-1] if m else x for x, m in zip(cut, windows[:, 2], strict=True)])
            made = (made.astype(np.float32) - np.float32([[[1.5]], [[2.5]], [[3.5]]])) * np.float32(0.3)
            want, want_labels = loader.take(position)
            assert made.tobytes() == want.tobytes() and np.array_equal(labels, want_labels)


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        (np.ones((3, 4)), np.array([0, 2**40, 1]), "label 1099511627776 at index 1 is not a class number"),
        (np.ones((3, 4)), np.array([0, 1, 2**63 + 5], np.uint64), "label 9223372036854775813 at index 2"),
        (np.array([[1.0], [np.nan]]), np.zeros(2, int), "sample 1 holds values that are not finite"),
        (np.array([[1.0]] * 300 + [[1e300]]), np.zeros(301, int), "sample 300 holds values that are not finite"),
        (np.array(["a", "b"]), np.zeros(2, int), r"images are <U1 of shape \(2,\); expected numbers"),
        (np.float32(3), np.zeros(1, int), r"images are float32 of shape \(\); expected numbers"),
    ],
)
def test_npz_that_no_net_can_learn_from(tmp_path, x, y, said):
    np.savez(tmp_path / "a.npz", x=x, y=y)
    with pytest.raises(DataError, match=said):
        source = parse(str(tmp_path / "a.npz"))
        source.sample_shape()
        source.open()


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null"])
def test_what_may_never_end_is_not_read(path):
    for read in (parse(f"npz:{path}").sample_shape, parse(f"npz:{path}").open):
        with pytest.raises(DataError, match="not a regular file"):
            read()


def test_objects_are_no_images(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([{}], object), y=np.zeros(1, int))
    with pytest.raises(DataError, match="Object arrays cannot be loaded"):
        parse(str(tmp_path / "a.npz")).open()


def test_text_is_not_called_a_pickle(tmp_path):
    (tmp_path / "a.npz").write_text("net: 3")
    with pytest.raises(DataError, match="it begins like neither"):
        parse(str(tmp_path / "a.npz")).open()
