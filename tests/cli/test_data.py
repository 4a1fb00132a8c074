"""data: what a source holds, told from numbers that are known; sheets, means and databases that it writes."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import pytest
from PIL import Image

from minidnn.cli.main import main
from minidnn.data import mean_image, parse
from tests.support.pictures import folder

NET = """
name: small
layer:
- name: data
  type: Data
  top: [data, label]
  data_param: {source: "SOURCE", batch_size: 4, workers: 2}
  transform_param: {CHANGE}
- {name: ip, type: InnerProduct, bottom: data, top: ip, inner_product_param: {num_output: 4}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
"""


@pytest.fixture
def case(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(capsys, *argv, code=0):
    assert main(["data", *argv, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def refused(capsys, *argv):
    assert main(["data", *argv]) == 2
    return capsys.readouterr().err


def images(case, *sizes):
    """A list of PNGs of one colour each, red 10 k, green 20 k, blue 30 k; labels 0, 1, 0, 1, ..."""
    lines = []
    for k, (height, width) in enumerate(sizes, 1):
        Image.new("RGB", (width, height), (10 * k, 20 * k, 30 * k)).save(case / f"{k}.png")
        lines.append(f"{k}.png {(k + 1) % 2}\n")
    (case / "list.txt").write_text("".join(lines))
    return sum((case / f"{k}.png").stat().st_size for k in range(1, len(sizes) + 1))


def test_counts_shapes_values_and_bytes(case, capsys):
    stored = images(case, (4, 6), (8, 6), (5, 9))
    (row,) = answer(capsys, "list:list.txt")["rows"]
    assert row["samples"] == row["read_samples"] == 3 and row["source_kind"] == "list"
    assert row["labels"] == [{"label": 0, "name": None, "samples": 2}, {"label": 1, "name": None, "samples": 1}]
    shapes = [row[f"{which}_shape"] for which in ("smallest", "median", "largest")]
    assert shapes == [[3, 4, 6], [3, 5, 6], [3, 8, 6]]
    assert (row["sample_type"], row["lowest"], row["highest"]) == ("uint8", 10, 90)
    assert row["mean_value"] == [60, 40, 20], "blue first, each image as much as another"
    assert row["disk_bytes"] == stored and row["decoded_bytes"] == 3 * (24 + 48 + 45)
    assert row["net_shape"] is row["batch_bytes"] is row["staged_bytes"] is None


def test_classes_have_names_and_the_phase_chooses_the_split(case, capsys):
    folder(case / "made")
    for phase, count in (("TRAIN", 6), ("TEST", 2)):
        document = answer(capsys, "made", "--phase", phase)
        names = [(found["name"], found["samples"]) for found in document["rows"][0]["labels"]]
        assert names == [("digit_0", count), ("digit_1", count), ("digit_2", count)] and document["phase"] == phase


def test_a_net_s_layers_as_it_sees_them(case, capsys):
    images(case, (10, 12), (14, 12))
    text = NET.replace("SOURCE", "list:list.txt").replace("CHANGE", "resize: [8, 8], crop_size: 6, scale: 0.1")
    (case / "net.yaml").write_text(text)
    (row,) = answer(capsys, "net.yaml", "--phase", "TEST")["rows"]
    assert row["layer"] == "data" and row["net_shape"] == [3, 6, 6] and row["workers"] == 2
    assert row["batch_bytes"] == 4 * 4 * 3 * 36 and row["staged_bytes"] > 3 * row["batch_bytes"]
    assert row["mean_value"] == [45, 30, 15], "before the scale"


def test_samples_that_cannot_be_read_are_named(case, capsys):
    folder(case / "made")
    (case / "made/train/digit_0/torn.jpg").write_bytes(b"junk")
    for k in range(6):
        (case / f"made/train/digit_1/none{k}.jpg").write_bytes(b"")
    (row,) = answer(capsys, "made", code=2)["rows"]
    assert row["samples"] == 25 and row["unreadable"] == 7 and len(row["problems"]) == 5
    assert row["problems"][0].endswith("torn.jpg: not a whole image (4 bytes): not an image that Pillow knows")
    assert main(["data", "made"]) == 2
    out = capsys.readouterr().out
    assert "cannot be read: made/train/digit_0/torn.jpg" in out and "and 2 more" in out and "digit_2" in out


def test_a_source_of_which_nothing_can_be_read(case, capsys):
    images(case, (3, 3))
    (case / "1.png").write_bytes(b"junk")
    (row,) = answer(capsys, "list:list.txt", code=2)["rows"]
    assert row["unreadable"] == 1 and row["smallest_shape"] is row["mean_value"] is row["lowest"] is None
    assert "no sample can be read" in refused(capsys, "list:list.txt", "--sheet", "a.png")


def test_some_samples_alone(case, capsys):
    np.savez("a.npz", x=np.arange(10.0).reshape(10, 1), y=np.arange(10) % 3)
    (row,) = answer(capsys, "a.npz", "--limit", "4")["rows"]
    assert (row["samples"], row["read_samples"]) == (10, 4) and row["mean_value"] == [np.mean([0, 2, 5, 7])]
    assert main(["data", "a.npz", "--limit", "4"]) == 0
    assert "10, of which 4 were read" in capsys.readouterr().out


def test_several_labels_a_sample_and_many_labels(case, capsys):
    np.savez("a.npz", x=np.zeros((2, 1, 2, 2)), y=np.array([[[0, 0], [0, 7]], [[0, 0], [0, 0]]]))
    (row,) = answer(capsys, "a.npz")["rows"]
    assert [(found["label"], found["samples"]) for found in row["labels"]] == [(0, 2), (7, 1)]
    np.savez("b.npz", x=np.zeros((40, 1)), y=np.arange(40))
    assert main(["data", "b.npz"]) == 0
    assert "and 10 more labels; 1 to 1 samples each" in capsys.readouterr().out


@pytest.mark.parametrize("change", ["resize: [4, 4]", "resize: [4, 4], channel_order: RGB, mean_value: 9, scale: 0.5"])
@pytest.mark.parametrize("of_net", [False, True])
def test_a_sheet_of_pictures(case, capsys, change, of_net):
    images(case, (8, 8), (8, 4), (8, 8))
    (case / "net.yaml").write_text(NET.replace("SOURCE", "list:list.txt").replace("CHANGE", change))
    document = answer(capsys, "net.yaml" if of_net else "list:list.txt", "--sheet", "a.png", "--count", "2")
    assert document["files"] == ["a.png"]
    sheet = np.asarray(Image.open("a.png"))
    assert sheet.shape == (10 + 140, 10 + 2 * 122, 3)
    assert sheet[66, 66].tolist() == [10, 20, 30] and sheet[66, 150].tolist() == [20, 40, 60]
    assert (sheet[66, 220] == 255).all() == (not of_net), "the second is slim as it is stored, square for the net"


def test_a_page_of_pictures(case, capsys):
    folder(case / "a&b")
    answer(capsys, "folder:a&b", "--sheet", "a.html", "--count", "5")
    text = (case / "a.html").read_text()
    assert len(re.findall('<img src="data:image/png;base64,', text)) == 5 and "a&amp;b" in text
    assert text.count("<figcaption>digit_0") == 2 and "http" not in text


def test_values_that_are_no_bytes_are_spread_from_black_to_white(case, capsys):
    np.savez("a.npz", x=np.array([-1.0, 0.0, 3.0]).reshape(3, 1, 1, 1), y=[0, 1, 2])
    answer(capsys, "a.npz", "--sheet", "a.png")
    sheet = np.asarray(Image.open("a.png"))
    assert [sheet[y, x, 0] for y, x in ((60, 60), (60, 180), (200, 60))] == [0, 64, 255]


@pytest.mark.parametrize("suffix", ["binaryproto", "npy"])
def test_a_mean_that_a_layer_takes(case, capsys, suffix):
    values = np.random.default_rng(1).integers(0, 256, (5, 3, 4, 6), dtype=np.uint8)
    np.savez("a.npz", x=values, y=np.zeros(5, int))
    answer(capsys, "a.npz", "--mean", f"mean.{suffix}")
    found = mean_image(f"mean.{suffix}")
    assert found.dtype == np.float32 and np.array_equal(found, values.mean(0, dtype=np.float64).astype(np.float32))


class TestDatabase:
    def test_arrays_in_another_size_blue_first(self, case, capsys):
        images(case, (8, 8), (10, 20))
        document = answer(capsys, "list:list.txt", "--write", "a.lmdb", "--resize", "4x6")
        assert document["files"] == ["a.lmdb"]
        found, labels = parse("a.lmdb").open().take(np.arange(2))
        assert found.shape == (2, 3, 4, 6) and labels.tolist() == [0, 1]
        assert (found == np.array([[30, 20, 10], [60, 40, 20]], np.uint8)[:, :, None, None]).all()

    def test_encoded_images_as_they_are_or_resized(self, case, capsys):
        images(case, (8, 8), (10, 20))
        answer(capsys, "list:list.txt", "--write", "a.lmdb", "--encoded")
        kept = parse("a.lmdb").open()
        assert [kept.read(i)[0] for i in range(2)] == [(case / f"{k}.png").read_bytes() for k in (1, 2)]
        answer(capsys, "list:list.txt", "--write", "b.lmdb", "--encoded", "--resize", "16")
        made = Image.open(io.BytesIO(parse("b.lmdb").open().read(1)[0]))
        assert (made.format, made.size) == ("JPEG", (16, 16))
        assert np.abs(np.asarray(made).mean((0, 1)) - [20, 40, 60]).max() < 3

    def test_a_broken_image_leaves_no_database(self, case, capsys):
        images(case, (8, 8), (10, 20))
        (case / "2.png").write_bytes(b"junk")
        assert "2.png: not a whole image" in refused(capsys, "list:list.txt", "--write", "a.lmdb", "--resize", "8")
        assert not list(case.glob("*lmdb*")) and not list(case.glob(".*lmdb*"))

    @pytest.mark.parametrize(
        ("more", "said"),
        [
            ((), "images may have sizes of their own, and arrays of one database have one: give --resize"),
            (("--encoded",), None),
        ],
    )
    def test_what_it_cannot_hold(self, case, capsys, more, said):
        images(case, (8, 8))
        if said:
            assert said in refused(capsys, "list:list.txt", "--write", "a.lmdb", *more)
        np.savez("a.npz", x=np.zeros((2, 3)), y=[0, 1])
        assert "a Datum is an image (C, H, W) with one label" in refused(capsys, "a.npz", "--write", "a.lmdb", *more)
        np.savez("b.npz", x=np.zeros((2, 1, 3, 3)), y=[0, 1])
        if more:
            assert "it holds arrays, and no encoded images" in refused(capsys, "b.npz", "--write", "a.lmdb", *more)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["nosuch"], "source 'nosuch' is not known"),
        (["folder:nosuch"], "nosuch: No such file or directory"),
        (["net.yaml", "--layer", "dat"], "has no layer dat (did you mean 'data'?): data"),
        (["net.yaml", "--resize", "8"], "is a net, whose layers say in transform_param how images are resized"),
        (["input.yaml"], "no layer reads its samples from a source in phase TRAIN"),
        (["two.yaml", "--sheet", "a.png"], "has the layers more, data: choose the one to write with --layer NAME"),
        (["list:list.txt", "--sheet", "a.jpg"], "--sheet a.jpg: expected a name that ends in .png or .html"),
        (["list:list.txt", "--mean", "a.png"], "--mean a.png: expected a name that ends in .binaryproto or .npy"),
        (["list:list.txt", "--mean", "a.npy"], "samples have sizes of their own; --resize 256, or a net, gives"),
        (["a.npz", "--sheet", "a.png"], "a sheet shows images of 1 or 3 channels, and a sample is (3,)"),
        (["a.npz", "--mean", "a.npy"], "samples are not images"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_told(case, capsys, argv, said):
    images(case, (8, 8), (10, 20))
    np.savez("a.npz", x=np.zeros((2, 3)), y=[0, 1])
    text = NET.replace("SOURCE", "list:list.txt").replace("CHANGE", "resize: [8, 8]")
    (case / "net.yaml").write_text(text)
    more = "- {name: more, type: Data, top: more, data_param: {source: a.npz, batch_size: 4}}\n"
    (case / "two.yaml").write_text(text.replace("layer:\n", f"layer:\n{more}"))
    layer = "- {name: in, type: Input, top: data, input_param: {shape: {dim: [4, 3]}}}\n"
    (case / "input.yaml").write_text(f"name: a\nlayer:\n{layer}- {{name: r, type: ReLU, bottom: data, top: r}}\n")
    assert said in refused(capsys, *argv)


def test_a_solver_s_net_and_a_model_by_its_name(case, capsys):
    folder(case / "made")
    (case / "net.yaml").write_text(NET.replace("SOURCE", "folder:made").replace("CHANGE", "resize: [8, 8]"))
    (case / "solver.yaml").write_text("net: net.yaml\nbase_lr: 0.1\nlr_policy: fixed\n")
    assert answer(capsys, "solver.yaml")["rows"][0]["samples"] == 18
    assert answer(capsys, "digits_lenet", "--limit", "3")["rows"][0]["samples"] == 1437
