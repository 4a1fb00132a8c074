"""Sources of encoded images: right pixels and labels, places in errors, nothing held that need not be."""

import io
import os
import re
import shutil
import tarfile

import numpy as np
import pytest
from PIL import Image

from minidnn.data import DataError, Encoded, database, decoding, parse
from minidnn.data.encoded import DECODED, Names
from minidnn.schema.blobs import Picture
from tests.support.pictures import SIDE, digit, folder, jpeg


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return folder(tmp_path_factory.mktemp("images") / "digits")


@pytest.fixture
def digits(made, tmp_path):
    """A folder of one's own, to break."""
    return shutil.copytree(made, tmp_path / "digits")


def everything(dataset):
    return dataset.take(np.arange(len(dataset)))


def wanted(split="train"):
    """(images, labels) of `folder`, decoded by Pillow alone."""
    pairs = [(c, n) for c in range(3) for n in (range(6) if split == "train" else range(6, 8))]
    images = [np.asarray(Image.open(io.BytesIO(jpeg(digit(c, n))))).transpose(2, 0, 1) for c, n in pairs]
    return np.stack(images), [c for c, _ in pairs]


def tar(path, members):
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))


class TestDecoding:
    def test_colours_grey_and_palettes(self):
        image = digit(3, 0)
        rgb = np.asarray(image).transpose(2, 0, 1)
        assert np.array_equal(decoding.pixels(jpeg(image, "PNG"), 3), rgb)
        grey = decoding.pixels(jpeg(image, "PNG"), 1)
        luma = (rgb * np.array([0.299, 0.587, 0.114]).reshape(3, 1, 1)).sum(0)
        assert grey.shape == (1, SIDE, SIDE) and abs(grey[0] - luma).max() <= 1
        assert np.array_equal(decoding.pixels(jpeg(image.convert("L"), "PNG"), 3)[2], np.asarray(image.convert("L")))
        assert decoding.pixels(jpeg(image.convert("P"), "PNG"), 3).shape == rgb.shape

    @pytest.mark.parametrize("subsampling", [0, 1, 2])
    def test_simplejpeg_and_pillow_give_the_same_values(self, subsampling, monkeypatch):
        file = io.BytesIO()
        digit(5, 1, side=61).save(file, "JPEG", quality=70, subsampling=subsampling)
        assert decoding._simplejpeg() is not None, "the tests' environment has it"
        quick = decoding.pixels(file.getvalue(), 3)
        monkeypatch.setattr(decoding, "_simplejpeg", lambda: None)
        assert np.array_equal(decoding.pixels(file.getvalue(), 3), quick)

    def test_the_channels_of_a_file(self):
        assert decoding.channels(jpeg(digit(1, 1))) == 3 and decoding.channels(jpeg(digit(1, 1).convert("L"))) == 1

    def test_what_is_no_whole_image(self):
        whole = jpeg(digit(1, 1))
        for data, what in ((b"", "not an image"), (b"GIF89a", "not an image"), (whole[: len(whole) // 2], "")):
            with pytest.raises(DataError, match=rf"not a whole image \({len(data)} bytes\).*{what}"):
                decoding.pixels(data, 3)

    def test_sixteen_bits_and_far_too_many_pixels_are_refused_from_the_header(self, monkeypatch):
        deep = Image.fromarray(np.zeros((4, 4), np.uint16))
        with pytest.raises(DataError, match=r"more than 8 bits \(mode I;16\)"):
            decoding.pixels(jpeg(deep, "PNG"), 1)
        monkeypatch.setattr(decoding, "PIXELS", 100)
        with pytest.raises(DataError, match="24×24; at most 100 pixels"):
            decoding.pixels(jpeg(digit(1, 1)), 3)

    def test_without_pillow_its_extra_is_named(self, monkeypatch, made):
        monkeypatch.setitem(__import__("sys").modules, "PIL", None)
        with pytest.raises(DataError, match=r"0000\.jpg: .*pip install 'minidnn\[images\]'"):
            everything(parse(f"folder:{made}").open())


class TestFolder:
    def test_the_phase_chooses_train_or_val(self, made):
        for phase, split in (("TRAIN", "train"), ("TEST", "test")):
            source = parse(f"folder:{made}", phase)
            images, labels = everything(source.open())
            right, known = wanted(split)
            assert np.array_equal(images, right) and labels.tolist() == known
            assert source.sample_shape() == (3, 0, 0) and source.sample_type() == "uint8"
        assert source.class_names() == ("digit_0", "digit_1", "digit_2")
        assert len(parse(f"folder:{made}:train", "TEST").open()) == 18

    def test_it_is_a_dataset_of_encoded_images_that_holds_none(self, made):
        source = parse(str(made))  # the word may be left out
        dataset = source.open()
        assert isinstance(dataset, Encoded)
        assert 0 < dataset.nbytes < 18 * 40  # names and labels
        assert source.resident() == dataset.nbytes + DECODED * SIDE * SIDE  # and one image that is decoded
        assert dataset.place(7) == str(made / "train" / "digit_1" / "0001.jpg")
        assert dataset.read(7) == ((made / "train" / "digit_1" / "0001.jpg").read_bytes(), 1)

    def test_classes_without_splits_and_folders_within(self, made, tmp_path):
        shutil.copytree(made / "train", tmp_path / "all")
        (tmp_path / "all" / "digit_1" / "more").mkdir()
        (tmp_path / "all" / "digit_1" / "0003.jpg").rename(tmp_path / "all" / "digit_1" / "more" / "a.jpg")
        (tmp_path / "all" / "digit_0" / "notes.txt").write_text("no image")
        (tmp_path / "all" / ".cache").mkdir()
        train, test = (parse(f"folder:{tmp_path / 'all'}", phase).open() for phase in ("TRAIN", "TEST"))
        assert len(train) == len(test) == 18 and train.place(11).endswith("more/a.jpg")

    def test_grey(self, made):
        source = parse(f"folder:{made}").decoded(False)
        assert source.sample_shape() == (1, 0, 0) and everything(source.open())[0].shape == (18, 1, SIDE, SIDE)

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda d: shutil.rmtree(d), "digits: No such file or directory"),
            (lambda d: shutil.rmtree(d / "train"), "digits/val/digit_0"),
            (lambda d: shutil.rmtree(d / "val"), "has train, but neither val nor test"),
            (
                lambda d: (d / "val" / "digit_9").mkdir(),
                "digit_9: no such class in .*train, which has digit_0, digit_1",
            ),
            (
                lambda d: [f.unlink() for f in (d / "val" / "digit_1").iterdir()],
                "val/digit_1: there are no images: none",
            ),
        ],
    )
    def test_what_is_missing_is_named(self, digits, change, said):
        change(digits)
        try:
            found = parse(f"folder:{digits}", "TEST").open()
        except DataError as error:
            assert re.search(said, str(error))
        else:
            assert said in found.place(0) + found.place(len(found) - 2)

    def test_a_broken_image_is_named(self, digits):
        path = digits / "train" / "digit_1" / "0002.jpg"
        path.write_bytes(path.read_bytes()[:300])
        with pytest.raises(DataError, match=rf"{path}: not a whole image \(300 bytes\)"):
            everything(parse(str(digits)).open())
        path.unlink()
        dataset = parse(str(digits)).open()
        (digits / "train" / "digit_0" / "0000.jpg").unlink()
        with pytest.raises(DataError, match=r"0000\.jpg: No such file"):
            everything(dataset)

    def test_images_of_several_sizes_need_one(self, digits):
        (digits / "train" / "digit_0" / "0001.jpg").write_bytes(jpeg(digit(0, 1, side=30)))
        with pytest.raises(DataError, match=r"0001\.jpg: it is \(3, 30, 30\).*is \(3, 24, 24\): give .*resize"):
            everything(parse(str(digits)).open())


class TestList:
    def write(self, path, *lines):
        path.write_text("\n".join(lines) + "\n")
        return f"list:{path}"

    def test_paths_labels_and_places(self, made, tmp_path):
        at = made / "train"
        lines = f"{at}/digit_2/0001.jpg 7", "", f"{at}/digit_0/0003.jpg 0"
        dataset = parse(self.write(tmp_path / "list.txt", *lines)).open()
        images, labels = everything(dataset)
        assert labels.tolist() == [7, 0] and np.array_equal(images, wanted()[0][[13, 3]])
        assert dataset.place(1) == f"{tmp_path}/list.txt:3: {at}/digit_0/0003.jpg" and dataset.highest() == 7

    @pytest.mark.parametrize("line", ["a.jpg", "a.jpg cat", "a.jpg -1", "a.jpg 1.5", "3", f"a.jpg {2**31}"])
    def test_a_line_that_is_none_is_named(self, tmp_path, line):
        text = self.write(tmp_path / "list.txt", "b.jpg 1", line)
        with pytest.raises(DataError, match=rf"list\.txt:2: expected a path, a space and a label.*got '{line}'"):
            parse(text).open()

    def test_missing_files(self, made, tmp_path):
        with pytest.raises(DataError, match=r"none\.txt: No such file"):
            parse(f"list:{tmp_path}/none.txt").sample_shape()
        with pytest.raises(DataError, match="there are no lines"):
            parse(self.write(tmp_path / "empty.txt")).sample_shape()
        with pytest.raises(DataError, match=r"list\.txt:1: a\.jpg: no such file; paths are relative to the working"):
            parse(self.write(tmp_path / "list.txt", "a.jpg 1")).open()
        text = self.write(tmp_path / "list.txt", f"{made}/train/digit_0/0000.jpg 1", "gone.jpg 0")
        with pytest.raises(DataError, match=r"list\.txt:2: gone\.jpg: No such file"):
            everything(parse(text).open())


class TestDatabase:
    def encoded(self, path, made):
        dataset = parse(str(made)).open()
        names = [os.path.basename(dataset.place(i)) for i in range(len(dataset))]
        pictures = [Picture(dataset.read(i)[1], dataset.read(i)[0]) for i in range(len(dataset))]
        assert database.write(path, zip(names, pictures, strict=True)) == 18
        return path

    def test_encoded_images_come_back_in_order(self, made, tmp_path):
        source = parse(str(self.encoded(tmp_path / "a_lmdb", made)))
        images, labels = everything(dataset := source.open())
        right, known = wanted()
        assert np.array_equal(images, right) and labels.tolist() == known and isinstance(dataset, Encoded)
        assert source.sample_shape() == (3, 0, 0) and source.decoded(False).sample_shape() == (1, 0, 0)
        assert dataset.place(7) == f"{tmp_path}/a_lmdb: 00000007_0001.jpg"
        assert 18 * 17 < dataset.nbytes < 18 * 40 and source.resident() == dataset.nbytes + DECODED * SIDE * SIDE

    @pytest.mark.parametrize("dtype", [np.uint8, np.float32])
    def test_arrays_come_back(self, tmp_path, dtype):
        values = (np.arange(300 * 2 * 3 * 4) % 251).astype(dtype).reshape(300, 2, 3, 4)
        database.write(tmp_path / "b.lmdb", ((str(i), Picture(i, v)) for i, v in enumerate(values)))
        source = parse(f"lmdb:{tmp_path}/b.lmdb")
        images, labels = source.open().take(np.array([5, 299, 0]))
        assert np.array_equal(images, values[[5, 299, 0]]) and labels.tolist() == [5, 299, 0]
        assert source.sample_shape() == (2, 3, 4) and source.sample_type() == dtype.__name__
        with pytest.raises(DataError, match="force_color and force_gray are for encoded images"):
            source.decoded(True).sample_shape()

    def test_grey_files_stay_grey_unless_colour_is_forced(self, tmp_path):
        database.write(tmp_path / "g.lmdb", [("g", Picture(1, jpeg(digit(1, 1).convert("L"))))])
        source = parse(str(tmp_path / "g.lmdb"))
        assert source.sample_shape() == (1, 0, 0) and source.decoded(True).sample_shape() == (3, 0, 0)

    def test_a_child_of_a_fork_reads_on(self, made, tmp_path):
        dataset = parse(str(self.encoded(tmp_path / "a.lmdb", made))).open()
        dataset.read(0)
        if not (child := os.fork()):
            os._exit(0 if everything(dataset)[1].tolist() == wanted()[1] else 1)
        assert os.waitpid(child, 0)[1] == 0

    def test_a_database_grows_and_none_is_overwritten(self, tmp_path, monkeypatch):
        monkeypatch.setattr(database, "_LEAST_MAP", 1 << 16)
        values = np.zeros((40, 1, 64, 64), np.uint8)
        database.write(tmp_path / "c.lmdb", ((str(i), Picture(i, v)) for i, v in enumerate(values)))
        assert len(parse(str(tmp_path / "c.lmdb")).open()) == 40
        with pytest.raises(DataError, match=r"c\.lmdb: exists already"):
            database.write(tmp_path / "c.lmdb", [])
        with pytest.raises(ZeroDivisionError):
            database.write(tmp_path / "d.lmdb", ((str(1 // i), Picture(i, values[0])) for i in (1, 0)))
        assert [path.name for path in tmp_path.iterdir()] == ["c.lmdb"]

    def test_what_is_none_is_named(self, tmp_path):
        with pytest.raises(DataError, match=r"none\.lmdb: No such file"):
            parse(f"lmdb:{tmp_path}/none.lmdb").sample_shape()
        (tmp_path / "junk").mkdir()
        (tmp_path / "junk" / "data.mdb").write_bytes(b"x" * 9000)
        with pytest.raises(DataError, match=r"junk: not an LMDB database: .*MDB_INVALID"):
            parse(f"{tmp_path}/junk").sample_shape()
        database.write(tmp_path / "empty.lmdb", [])
        with pytest.raises(DataError, match=r"empty\.lmdb: there are no records"):
            parse(str(tmp_path / "empty.lmdb")).sample_shape()

    def test_records_that_differ_from_the_first_are_named(self, tmp_path):
        small, large = np.zeros((1, 2, 2), np.uint8), np.zeros((1, 3, 2), np.uint8)
        database.write(tmp_path / "m.lmdb", [("a", Picture(0, small)), ("b", Picture(0, large))])
        with pytest.raises(DataError, match=r"00000001_b: an array \(1, 3, 2\); the first record is .* \(1, 2, 2\)"):
            everything(parse(str(tmp_path / "m.lmdb")).open())
        whole = jpeg(digit(1, 1))
        database.write(tmp_path / "n.lmdb", [("a", Picture(0, whole)), ("b", Picture(0, small))])
        with pytest.raises(DataError, match="00000001_b: an array; the first record is an encoded image"):
            everything(parse(str(tmp_path / "n.lmdb")).open())


class TestWebDataset:
    def members(self, numbers):
        found = {}
        for n in numbers:
            found |= {f"part/{n:03d}.jpg": jpeg(digit(n % 3, n)), f"part/{n:03d}.cls": b"%d\n" % (n % 3)}
        return found | {"README.md": b"text"}

    def test_pairs_of_several_files(self, tmp_path):
        tar(tmp_path / "0.tar", self.members(range(4)))
        tar(tmp_path / "1.tar", self.members(range(4, 6)))
        dataset = parse(f"tar:{tmp_path}").open()
        images, labels = everything(dataset)
        right = [decoding.pixels(jpeg(digit(n % 3, n)), 3) for n in range(6)]
        assert np.array_equal(images, np.stack(right)) and labels.tolist() == [0, 1, 2, 0, 1, 2]
        assert dataset.place(5) == f"{tmp_path}/1.tar: part/005.jpg"
        assert len(parse(f"{tmp_path}/0.tar").open()) == 4

    def test_splits(self, tmp_path):
        for name, numbers in (("train", range(4)), ("val", range(4, 5))):
            (tmp_path / name).mkdir()
            tar(tmp_path / name / "a.tar", self.members(numbers))
        assert [len(parse(f"tar:{tmp_path}", phase).open()) for phase in ("TRAIN", "TEST")] == [4, 1]

    @pytest.mark.parametrize(
        ("members", "said"),
        [
            ({"a.jpg": b""}, r"a\.jpg has no label: there is no a\.cls"),
            ({"a.jpg": b"", "a.cls": b"cat"}, r"a\.cls: expected a label, .*got 'cat'"),
            ({"a.jpg": b"", "a.png": b"", "a.cls": b"1"}, r"a\.png and a\.jpg are images of one sample"),
            ({"a.txt": b""}, "holds no images"),
        ],
    )
    def test_what_is_no_pair_is_named(self, tmp_path, members, said):
        tar(tmp_path / "a.tar", members)
        with pytest.raises(DataError, match=rf"a\.tar: {said}"):
            parse(f"tar:{tmp_path}/a.tar").open()

    def test_no_tar(self, tmp_path):
        (tmp_path / "a.tar").write_bytes(b"\x1f\x8b packed")
        with pytest.raises(DataError, match=r"a\.tar: not a plain tar file"):
            parse(f"{tmp_path}/a.tar").open()
        with pytest.raises(DataError, match="no such file"):
            parse(f"tar:{tmp_path}/b").sample_shape()


def test_names_are_held_in_one_block():
    names = Names(b"%05d.jpg" % i for i in range(1000))
    assert list(names[3:5]) == [b"00003.jpg", b"00004.jpg"] and names.nbytes < 18 * 1000
    with pytest.raises(IndexError):
        names[1000]
