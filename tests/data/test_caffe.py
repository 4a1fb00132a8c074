"""What Caffe's data layers take and refuse, where they look for files, and which way up OpenCV gives them images."""

from __future__ import annotations

import io

import numpy as np
import pytest

import minidnn
from minidnn.data import DataError, open_loader, shapes, source_of
from minidnn.data.decoding import pixels
from minidnn.schema import InvalidFile
from minidnn.schema.sources import DataParameter, ImageDataParameter, TransformationParameter

Image = pytest.importorskip("PIL.Image")
PIXELS = np.arange(2 * 3, dtype=np.uint8).reshape(2, 3) * 40
IMAGE = 'layer { name: "d" type: "ImageData" top: "x" top: "label" image_data_param { source: "%s" %s } }'


def jpeg(orientation: int, side: int = 16) -> bytes:
    """An image of blocks of side x side whose EXIF says this orientation."""
    image = Image.fromarray(np.kron(PIXELS, np.ones((side, side), np.uint8))).convert("RGB")
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    image.save(file, "JPEG", quality=100, exif=exif)
    return file.getvalue()


def taken(param, transform) -> tuple[np.ndarray, np.ndarray]:
    """The first sample of a layer's source, as it is decoded, and its label."""
    return source_of(param, transform, "TEST").open().take(np.arange(1))


class TestOrientation:
    @pytest.mark.parametrize("orientation", range(10))
    @pytest.mark.parametrize("channels", [1, 3])
    def test_the_pixels_are_pillow_s_upright_ones(self, orientation, channels):
        from PIL import ImageOps

        data = jpeg(orientation)
        with Image.open(io.BytesIO(data)) as image:
            want = np.asarray(ImageOps.exif_transpose(image).convert("RGB" if channels == 3 else "L"))
        got = pixels(data, channels, upright=True)
        assert np.array_equal(got.transpose(1, 2, 0) if channels == 3 else got[0], want)
        assert pixels(data, channels).shape == (channels, 32, 48)

    @pytest.mark.peer("cv2")
    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_opencv_turns_them_alike(self, orientation, tmp_path):
        import cv2

        (tmp_path / "a.jpg").write_bytes(jpeg(orientation))
        want = cv2.imread(str(tmp_path / "a.jpg"), 1)[:, :, ::-1].transpose(2, 0, 1)
        got = pixels(jpeg(orientation), 3, upright=True)
        assert got.shape == want.shape and abs(got.astype(int) - want).max() <= 3

    def test_an_exif_that_is_broken_changes_nothing(self):
        data = jpeg(6)
        at = data.index(b"Exif\0\0") + 6
        assert pixels(data[:at] + b"\xff" * 8 + data[at + 8 :], 3, upright=True).shape == (3, 32, 48)

    @pytest.mark.parametrize(("exif", "size"), [(None, (48, 32)), (True, (48, 32)), (False, (32, 48))])
    def test_image_data_turns_them_unless_told_otherwise(self, exif, size, tmp_path):
        (tmp_path / "a.jpg").write_bytes(jpeg(6))
        (tmp_path / "list.txt").write_text(f"{tmp_path}/a.jpg 1\n")
        param = ImageDataParameter(source=str(tmp_path / "list.txt"))
        assert taken(param, TransformationParameter(exif=exif))[0].shape[2:] == size

    @pytest.mark.parametrize(("exif", "size"), [(None, (32, 48)), (True, (48, 32))])
    def test_a_folder_does_if_told(self, exif, size, tmp_path):
        for name in "ab":
            (tmp_path / name).mkdir()
            (tmp_path / name / "a.jpg").write_bytes(jpeg(6))
        param = DataParameter(source=f"folder:{tmp_path}", batch_size=2)
        assert taken(param, TransformationParameter(exif=exif))[0].shape[2:] == size

    @pytest.mark.parametrize(("color", "size"), [(None, (32, 48)), (True, (48, 32)), (False, (48, 32))])
    def test_a_database_does_where_opencv_casts_its_colours(self, color, size, tmp_path):
        pytest.importorskip("lmdb")
        from minidnn.data import database
        from minidnn.schema.blobs import Picture

        database.write(tmp_path / "d_lmdb", [("a", Picture(label=3, content=jpeg(6)))])
        forced = {None: {}, True: {"force_color": True}, False: {"force_gray": True}}[color]
        param = DataParameter(source=str(tmp_path / "d_lmdb"), batch_size=1)
        images, labels = taken(param, TransformationParameter(**forced))
        assert images.shape == (1, 1 if color is False else 3, *size) and labels.tolist() == [3]


class TestLists:
    def test_a_byte_order_mark_is_no_part_of_a_path(self, tmp_path):
        (tmp_path / "a.jpg").write_bytes(jpeg(1))
        (tmp_path / "list.txt").write_text(f"{tmp_path}/a.jpg 1\n", encoding="utf-8-sig")
        param = ImageDataParameter(source=str(tmp_path / "list.txt"))
        assert taken(param, TransformationParameter())[1].tolist() == [1]

    def test_colours_are_what_is_color_says(self, tmp_path):
        (tmp_path / "list.txt").write_text("a.jpg 1\n")
        for color in (True, False):
            param = ImageDataParameter(source=str(tmp_path / "list.txt"), is_color=color)
            transform = TransformationParameter(force_gray=True, crop_size=4, resize=8)
            assert shapes(param, transform, "TEST")[0] == (3 if color else 1, 4, 4)

    def test_a_list_of_hdf5_has_blanks_between_names_or_lines(self, tmp_path, monkeypatch):
        h5py = pytest.importorskip("h5py")
        for name in "abc":
            with h5py.File(tmp_path / f"{name}.h5", "w") as file:
                file["x"] = np.zeros((4, 3), np.float32)
        text = 'layer { name: "d" type: "HDF5Data" top: "x" hdf5_data_param { source: "l.txt" batch_size: 2 } }'
        (tmp_path / "l.txt").write_text("a.h5 b.h5\nc.h5\n", encoding="utf-8-sig")
        (tmp_path / "net.prototxt").write_text(text)
        monkeypatch.chdir(tmp_path)
        node = minidnn.Net.from_file("net.prototxt").graph("TRAIN")["d"]
        from minidnn.data.hdf5 import files

        assert node.tops[0].tensor.shape == (2, 3) and files("l.txt") == ["a.h5", "b.h5", "c.h5"]


class TestRefused:
    def errors(self, text: str) -> str:
        with pytest.raises(InvalidFile) as caught:
            minidnn.Net.from_text(text, source="net.prototxt")
        return str(caught.value)

    def test_hdf5_is_not_transformed(self):
        text = 'layer { name: "d" type: "HDF5Data" top: "x" hdf5_data_param { source: "l" batch_size: 2 } %s }'
        assert "transform_param: is not for layer type HDF5Data" in self.errors(text % "transform_param { scale: 2 }")

    def test_tops_of_hdf5_have_as_many_rows(self, tmp_path):
        h5py = pytest.importorskip("h5py")
        for name, rows in (("a", 4), ("b", 3)):
            with h5py.File(tmp_path / f"{name}.h5", "w") as file:
                file["x"], file["y"] = np.zeros((4, 3), np.float32), np.zeros(rows, np.float32)
        (tmp_path / "l.txt").write_text("a.h5 b.h5")
        param = f'hdf5_data_param {{ source: "{tmp_path}/l.txt" batch_size: 2 }}'
        text = f'layer {{ name: "d" type: "HDF5Data" top: "x" top: "y" {param} }}'
        net = minidnn.Net.from_text(text, source="n.prototxt")
        with pytest.raises(DataError, match=r"b\.h5: x has 4 rows, y has 3: a row of each is a sample"):
            net.graph("TRAIN")

    def test_one_new_size_is_none(self):
        assert "expected new_height and new_width" in self.errors(IMAGE % ("l", "new_height: 3"))

    def test_memory_data_is_not_transformed_and_says_so(self):
        param = "memory_data_param { batch_size: 2 channels: 1 height: 3 width: 3 }"
        text = f'layer {{ name: "d" type: "MemoryData" top: "x" top: "y" {param} transform_param {{ scale: 2 }} }}'
        net = minidnn.Net.from_text(text, source="n.prototxt")
        assert "transform_param: is not for layer type MemoryData" in net.notes[0]


class TestSizes:
    """Where nothing crops or resizes, images have the size of the first one."""

    def listed(self, tmp_path, *sizes: tuple[int, int]) -> ImageDataParameter:
        for k, size in enumerate(sizes):
            Image.fromarray(np.zeros(size, np.uint8)).save(tmp_path / f"{k}.png")
        (tmp_path / "l.txt").write_text("".join(f"{k}.png {k}\n" for k in range(len(sizes))))
        return ImageDataParameter(source=str(tmp_path / "l.txt"), root_folder=f"{tmp_path}/", batch_size=2)

    def test_of_the_first(self, tmp_path):
        param = self.listed(tmp_path, (5, 7), (5, 7))
        assert shapes(param, TransformationParameter(), "TRAIN") == ((3, 5, 7), ())

    @pytest.mark.parametrize("workers", [0, 1])
    def test_they_are_blue_green_and_red(self, tmp_path, workers):
        Image.fromarray(np.full((2, 3, 3), (1, 2, 3), np.uint8)).save(tmp_path / "a.png")
        (tmp_path / "l.txt").write_text("a.png 4\n")
        param = ImageDataParameter(source=str(tmp_path / "l.txt"), root_folder=f"{tmp_path}/", workers=workers)
        loader = open_loader(param, TransformationParameter(), "TEST", 0)
        try:
            images, labels = loader.batch(0, 1)
            assert images[0, :, 0, 0].tolist() == [3, 2, 1] and labels.tolist() == [4]
        finally:
            loader.close()

    def test_another_size_is_refused_where_it_is_read(self, tmp_path):
        param = self.listed(tmp_path, (5, 7), (5, 8))
        dataset = source_of(param, TransformationParameter(), "TRAIN").open()
        with pytest.raises(DataError, match=r"1\.png: it is 5×8, and the first one is 5×7: give crop_size, or resize"):
            dataset.take(np.arange(2))

    def test_a_crop_takes_any_size(self, tmp_path):
        param = self.listed(tmp_path, (5, 7), (6, 8))
        assert shapes(param, TransformationParameter(crop_size=4), "TRAIN")[0] == (3, 4, 4)

    def test_a_first_image_that_is_gone_has_its_place(self, tmp_path):
        param = self.listed(tmp_path, (5, 7))
        (tmp_path / "0.png").unlink()
        with pytest.raises(DataError, match=r"l\.txt:1: .*0\.png: No such file"):
            shapes(param, TransformationParameter(), "TRAIN")


class TestPlaces:
    """Relative paths start at the working folder, or else at the file's."""

    @pytest.fixture
    def folder(self, tmp_path, monkeypatch):
        there = tmp_path / "there"
        there.mkdir()
        for at, (h, w) in ((there, (4, 6)), (tmp_path, (2, 3))):
            Image.fromarray(np.zeros((h, w), np.uint8)).save(at / "a.png")
        (there / "l.txt").write_text("a.png 0\n")
        (there / "net.prototxt").write_text(IMAGE % ("l.txt", "batch_size: 1"))
        monkeypatch.chdir(tmp_path)
        return tmp_path

    def first(self, file: str) -> tuple[int, ...]:
        layer = minidnn.Net.from_file(file).layers[0]
        return taken(layer.image_data_param, layer.transform_param)[0].shape

    def test_data_lie_beside_the_file(self, folder):
        (folder / "a.png").unlink()
        assert self.first("there/net.prototxt") == (1, 3, 4, 6)

    def test_the_working_folder_goes_first(self, folder):
        (folder / "l.txt").write_text("a.png 0\n")
        assert self.first("there/net.prototxt") == (1, 3, 2, 3)

    def test_a_root_folder_beside_the_file(self, folder):
        (folder / "there" / "root").mkdir()
        Image.fromarray(np.zeros((5, 5), np.uint8)).save(folder / "there" / "root" / "a.png")
        (folder / "there" / "net.prototxt").write_text(IMAGE % ("l.txt", 'batch_size: 1 root_folder: "root/"'))
        assert self.first("there/net.prototxt") == (1, 3, 5, 5)

    @pytest.mark.parametrize("source", ["gone_lmdb", "lmdb:gone", "npz:gone.npz", "hdf5:gone.h5"])
    def test_the_error_names_both_places(self, folder, source):
        layer = 'layer { name: "d" type: "Data" top: "x" data_param { source: "%s" batch_size: 1 } }'
        (folder / "there" / "net.prototxt").write_text(layer % source)
        with pytest.raises(DataError, match=r"relative paths start at the working folder, or else at there\)"):
            minidnn.Net.from_file("there/net.prototxt").graph("TRAIN")

    @pytest.mark.parametrize("form", ["%s", "npz:%s"])
    def test_sources_with_a_word_are_found_too(self, folder, form):
        np.savez(folder / "there" / "d.npz", x=np.zeros((3, 1, 4, 4), np.float32), y=np.zeros(3, np.int64))
        layer = 'layer { name: "d" type: "Data" top: "x" data_param { source: "%s" batch_size: 1 } }'
        (folder / "there" / "net.prototxt").write_text(layer % (form % "d.npz"))
        net = minidnn.Net.from_file("there/net.prototxt")
        assert net.graph("TRAIN")["d"].tops[0].tensor.shape == (1, 1, 4, 4)

    def test_a_solver_s_net_is_caffe_s(self, folder):
        from minidnn.jobs.solver_file import understand

        solver = 'net: "net.prototxt" base_lr: 1 lr_policy: "fixed"\n'
        (folder / "there" / "s.prototxt").write_text(solver)
        assert understand("there/s.prototxt").net.layers[0].name == "d"
        (folder / "net.prototxt").write_text((IMAGE % ("l.txt", "batch_size: 1")).replace('"d"', '"here"'))
        assert understand("there/s.prototxt").net.layers[0].name == "here"
