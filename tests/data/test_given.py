"""What `predict` takes: images and folders of them, as the net's TEST phase reads them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from minidnn.cli.main import main

pytest.importorskip("PIL")
from tests.support.pictures import digit, folder

NET = """
name: pictures
layer:
- name: data
  type: Data
  top: [data, label]
  data_param: {source: pics, batch_size: 4}
  transform_param: {resize: [12, 12], scale: 0.01, mirror: true}
- {name: scores, type: InnerProduct, bottom: data, top: scores,
   inner_product_param: {num_output: 3, weight_filler: {type: xavier}}}
- {name: loss, type: SoftmaxWithLoss, bottom: [scores, label], top: loss}
"""
PLAIN = NET[: NET.index("- name: data")] + (
    "- {name: data, type: Input, top: data, input_param: {shape: {dim: [4, 3, 12, 12]}}}\n"
    + NET[NET.index("- {name: scores") : NET.index("- {name: loss")]
)


@pytest.fixture
def case(tmp_path, monkeypatch, capsys):
    """A trained net for the pictures in `pics`."""
    monkeypatch.chdir(tmp_path)
    folder(tmp_path / "pics")
    (tmp_path / "net.yaml").write_text(NET)
    (tmp_path / "plain.yaml").write_text(PLAIN)
    solver = "net: net.yaml\nbase_lr: 0.1\nlr_policy: fixed\nmax_iter: 20\nrandom_seed: 1\nsnapshot_prefix: w\n"
    (tmp_path / "solver.yaml").write_text(solver)
    assert main(["train", "solver.yaml", "--device", "reference"]) == 0
    capsys.readouterr()
    return tmp_path


def predict(capsys, *inputs, net="net.yaml", code=0):
    options = ["--weights", "w_iter_20.safetensors", "--device", "reference", "--json"]
    assert main(["predict", net, *inputs, *options]) == code
    out = capsys.readouterr()
    return json.loads(out.out)["predictions"] if code == 0 else out.err


def test_images_and_folders_are_answered_in_order_and_by_name(case, capsys):
    rows = predict(capsys, "pics/val/digit_2/0007.jpg", "pics/train")
    assert [row["index"] for row in rows] == list(range(19))
    assert rows[0]["image"] == "pics/val/digit_2/0007.jpg" and rows[1]["image"] == "pics/train/digit_0/0000.jpg"
    right = sum(row["names"][0] == row["image"].split("/")[-2] for row in rows)
    assert right >= 17 and {len(row["names"]) for row in rows} == {3}
    assert rows[0]["classes"] == [int(name[-1]) for name in rows[0]["names"]]


def test_an_answer_does_not_depend_on_the_other_samples_of_its_batch(case, capsys):
    (alone,), several = predict(capsys, "pics/train/digit_1/0003.jpg"), predict(capsys, "pics/train")
    (same,) = (row for row in several if row["image"] == alone["image"])
    assert same["probabilities"] == alone["probabilities"]


def test_a_net_with_an_input_gets_images_of_its_size(case, capsys):
    (case / "small.png").parent.mkdir(exist_ok=True)
    digit(1, 3).save(case / "small.png")
    rows = predict(capsys, "small.png", net="plain.yaml")
    assert rows[0]["names"] is None and len(rows[0]["classes"]) == 3
    assert main(["predict", "plain.yaml", "small.png", "--weights", "w_iter_20.safetensors"]) == 0
    assert "images become 12×12, blue before green before red, values 0 to 255" in capsys.readouterr().err


def test_names_from_a_file(case, capsys):
    (case / "names.txt").write_text("zero\none\ntwo\n")
    given = ["--weights", "w_iter_20.safetensors", "--device", "reference", "--classes", "names.txt", "--top", "1"]
    assert main(["predict", "net.yaml", "pics/val/digit_2/0007.jpg", *given]) == 0
    assert capsys.readouterr().out.startswith("pics/val/digit_2/0007.jpg: two (")
    (case / "names.txt").write_text("zero\n")
    assert main(["predict", "net.yaml", "pics/val/digit_2/0007.jpg", *given]) == 2
    assert "names of 1 classes, but scores of 3" in capsys.readouterr().err


def test_arrays_are_resized_like_images(case, capsys):
    np.save(case / "x.npy", np.random.default_rng(1).integers(0, 256, (5, 3, 20, 16), dtype=np.uint8))
    assert [row["image"] for row in predict(capsys, "x.npy")] == [None] * 5


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (["no.jpg"], "sample 0 (no.jpg): No such file"),
        (["broken.jpg"], "sample 0 (broken.jpg): not a whole image"),
        (["empty"], "empty: there are no images: none ends in"),
        (["pics", "x.npy"], "x.npy: is neither a folder nor an image by its name"),
    ],
)
def test_what_is_no_image_is_named(case, capsys, inputs, said):
    (case / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    (case / "empty").mkdir()
    assert said in predict(capsys, *inputs, code=2)
