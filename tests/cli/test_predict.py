"""predict: images and folders made ready as the net's Data layer says, names of classes, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from minidnn.cli.main import main
from minidnn.data import parse
from minidnn.nets.net import Net
from minidnn.training import snapshot
from minidnn.training.session import Session
from minidnn.training.solver import Solver
from tests.support.pictures import digit, folder, jpeg

NET = """
name: small
layer:
- name: data
  type: Data
  top: [data, label]
  data_param: {source: "SOURCE", batch_size: 4}
  transform_param: {CHANGE, mean_value: [10, 20, 30], scale: 0.01}
- {name: ip, type: InnerProduct, bottom: data, top: ip,
   inner_product_param: {num_output: 4, weight_filler: {type: xavier}}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
"""
CHANGE = "resize: 20, crop_size: 16, mirror: true"
SOLVER = "net: net.yaml\nbase_lr: 0.01\nlr_policy: fixed\nrandom_seed: 1\nsnapshot_prefix: out\n"


@pytest.fixture
def case(tmp_path, monkeypatch):
    """A folder of 24 JPEGs of 24 x 24, a net on them, and a snapshot of it."""
    monkeypatch.chdir(tmp_path)
    folder(tmp_path / "made")
    (tmp_path / "net.yaml").write_text(NET.replace("SOURCE", "folder:made").replace("CHANGE", CHANGE))
    (tmp_path / "solver.yaml").write_text(SOLVER)
    with Solver("solver.yaml", device="reference") as solver:
        solver.step(2)
        solver.save()
    return tmp_path


def asked(capsys, *inputs, code=0):
    argv = ["predict", "net.yaml", *inputs, "--weights", "out_iter_2.safetensors", "--device", "reference"]
    assert main([*argv, "--json"]) == code
    out, err = capsys.readouterr()
    return json.loads(out)["predictions"] if not code else err


def test_images_are_made_ready_as_the_test_layer_says(case, capsys):
    """By hand: the shorter side 20, the 16 x 16 in its middle, blue first, less the mean, scaled, not mirrored."""
    dataset = parse("folder:made", "TEST").open()
    paths = [dataset.place(i) for i in range(len(dataset))]
    samples = []
    for path in paths:
        found = np.asarray(Image.open(path).resize((20, 20), Image.Resampling.BILINEAR))[2:18, 2:18, ::-1]
        samples.append((found.transpose(2, 0, 1) - np.float32([10, 20, 30])[:, None, None]) * np.float32(0.01))
    with Session(Net.from_file("net.yaml"), device="reference", keep=["ip"]) as session:
        session.load("out_iter_2.safetensors")
        scores = session.forward(np.stack(samples))["ip"]
    chances = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    rows = asked(capsys, "made/val")  # six images, in batches of four
    assert [row["path"] for row in rows] == paths and [row["index"] for row in rows] == [*range(6)]
    assert [row["classes"] for row in rows] == (-chances).argsort(1)[:, :3].tolist()
    best = [row["probabilities"][0] for row in rows]
    assert best == pytest.approx(chances.max(1), abs=1e-5)
    assert rows[0]["class_names"] == [["digit_0", "digit_1", "digit_2", "3"][c] for c in rows[0]["classes"]]


def test_images_folders_and_arrays_together(case, capsys):
    Image.open("made/val/digit_0/0006.jpg").save("a.png")
    pixels = np.asarray(Image.open("a.png")).transpose(2, 0, 1)[::-1]
    np.savez("a.npz", x=np.stack([pixels, pixels]))
    rows = asked(capsys, "made/val/digit_0", "a.npz", "a.png")
    assert [row["path"] for row in rows][2:] == ["a.npz", "a.npz", "a.png"]
    assert rows[0]["probabilities"] == rows[2]["probabilities"] == rows[3]["probabilities"] == rows[4]["probabilities"]


def test_as_a_table(case, capsys):
    argv = ["predict", "net.yaml", "made/val/digit_1", "--weights", "out_iter_2.safetensors", "--device", "reference"]
    assert main([*argv, "--top", "1"]) == 0
    text = capsys.readouterr().out
    assert "made/val/digit_1/0006.jpg" in text and "probability" in text and "then" not in text
    assert main(argv) == 0
    assert "then" in capsys.readouterr().out


def test_names_of_a_file_of_the_data_and_of_the_snapshot(case, capsys):
    (case / "names.txt").write_text("zero\none\ntwo\nn04 three, 3\n")
    (row,) = asked(capsys, "made/val/digit_1/0006.jpg", "--classes", "names.txt", "--top", "4")
    assert sorted(row["class_names"]) == ["n04 three, 3", "one", "two", "zero"]
    assert snapshot.load("out_iter_2.safetensors").class_names == ["digit_0", "digit_1", "digit_2"]
    (before,) = asked(capsys, "made/val/digit_1/0006.jpg")
    (case / "made").rename("gone")
    (row,) = asked(capsys, "gone/val/digit_1/0006.jpg")
    assert {**row, "path": ""} == {**before, "path": ""} and "digit_1" in row["class_names"]
    (case / "names.txt").write_text("zero\none\n")
    said = asked(capsys, "gone/val/digit_1/0006.jpg", "--classes", "names.txt", code=2)
    assert "names.txt: 2 lines; expected the name of each of the net's 4 classes" in said


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("gone.jpg", None, "images: sample 0 (gone.jpg): No such file or directory"),
        ("torn.jpg", jpeg(digit(1, 1))[:300], "images: sample 0 (torn.jpg): not a whole image (300 bytes)"),
        ("slim.png", jpeg(digit(1, 1).resize((9, 30000)), "PNG"), "would be longer than 32768 pixels"),
        ("net.yaml", None, "not a whole image"),
    ],
)
def test_what_is_no_image_is_named(case, capsys, name, content, said):
    if content is not None:
        (case / name).write_bytes(content)
    assert said in asked(capsys, name, code=2)


def test_an_empty_folder_is_named(case, capsys):
    (case / "empty").mkdir()
    assert "empty: there are no images: none ends in .bmp" in asked(capsys, "empty", code=2)


@pytest.mark.parametrize(
    ("arrays", "change", "said"),
    [
        ({"x": np.zeros((4, 3, 16, 16), np.uint8)}, "", "of an unknown channel order: give transform_param"),
        ({"x": np.zeros((4, 3, 16, 16), np.float32)}, "", "has arrays (3, 16, 16), which are not 8-bit images"),
        ({"x": np.zeros((4, 3, 16, 16), np.uint8)}, "channel_order: RGB", None),
    ],
)  # fmt: skip
def test_a_net_on_arrays_takes_images_if_it_says_the_order_of_channels(case, capsys, arrays, change, said):
    np.savez("a.npz", **arrays, y=np.zeros(4, int))
    (case / "net.yaml").write_text(NET.replace("SOURCE", "a.npz").replace("CHANGE", change or "mirror: false"))
    if said:
        assert said in asked(capsys, "made/val/digit_1/0006.jpg", code=2)
    else:
        assert len(asked(capsys, "made/val/digit_1/0006.jpg")) == 1


def test_a_net_without_a_data_layer_takes_arrays_alone(case, capsys):
    head, _, rest = NET.partition("- name: data")
    rest = rest[rest.index("- {name: ip") :].replace("bottom: [ip, label]", "bottom: ip").replace("WithLoss", "")
    layer = "- {name: in, type: Input, top: data, input_param: {shape: {dim: [4, 3, 16, 16]}}}\n"
    (case / "net.yaml").write_text(head + layer + rest)
    assert "no Data layer of the net has a transform_param" in asked(capsys, "made/val", code=2)
    np.save("a.npy", np.zeros((5, 3, 16, 16), np.float32))
    assert len(asked(capsys, "a.npy")) == 5


@pytest.mark.parametrize(("change", "shape"), [("resize: [12, 10]", "3x12x10"), ("resize: 20", None)])
def test_data_that_are_elsewhere_have_the_size_that_they_are_resized_to(change, shape):
    made, replaced = Net.from_text(NET.replace("SOURCE", "folder:gone").replace("CHANGE", change)).without_data()
    assert replaced == ({"folder:gone": shape} if shape else {})
    if shape:
        assert made.graph("TRAIN")["data"].tops[0].tensor.shape == (4, 3, 12, 10)
