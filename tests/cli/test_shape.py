"""Planning without the data: --shape says what the data would, and without it an error says so."""

from __future__ import annotations

import pytest

import minidnn
from minidnn.cli.main import main

LENET = """
layer { name: "d" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  data_param { source: "gone_lmdb" batch_size: 8 backend: LMDB } transform_param { scale: 0.5 mean_file: "gone" } }
layer { name: "d" type: "Data" top: "data" top: "label" include { phase: TEST }
  data_param { source: "gone_too_lmdb" batch_size: 5 backend: LMDB } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "s" inner_product_param { num_output: 10 } }
layer { name: "l" type: "SoftmaxWithLoss" bottom: "s" bottom: "label" top: "loss" }
"""
SOLVER = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 3 test_iter: 1 test_interval: 1\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "net.prototxt").write_text(LENET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys, *words: str) -> str:
    assert main(list(words)) == 2
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("file", ["net.prototxt", "solver.prototxt"])
def test_the_error_names_the_option(folder, capsys, file):
    error = refused(capsys, "plan", file, "--gpu", "titan_x", "--policy", "liveness")
    assert error.startswith("minidnn: net.prototxt:2:1: layer 'd': ")
    assert error.endswith("; to plan without the data, give their shape: --shape data=8,C,H,W")


@pytest.mark.parametrize("file", ["net.prototxt", "solver.prototxt"])
def test_with_a_shape_it_is_planned(folder, capsys, file):
    assert main(["plan", file, "--gpu", "titan_x", "--policy", "liveness", "--shape", "data=8,1,28,28"]) == 0
    assert main(["show", file, "--shape", "data=8,1,28,28"]) == 0
    assert "8×1×28×28" in capsys.readouterr().out


def test_a_test_layer_keeps_its_batch_and_batch_goes_first(folder):
    rows = {p: minidnn.show("net.prototxt", phase=p, shape={"data": (8, 1, 2, 2)}) for p in ("TRAIN", "TEST")}
    assert [shown.document.batch for shown in rows.values()] == [8, 5]
    assert minidnn.show("net.prototxt", batch=3, shape={"data": (8, 1, 2, 2)}).document.batch == 3


def test_a_plan_is_that_of_the_same_net_with_inputs(folder):
    given = minidnn.plan("net.prototxt", "liveness", gpu="titan_x", shape={"data": (8, 1, 28, 28)})
    first = LENET.index("layer {"), LENET.index('layer { name: "ip"')
    inputs = 'layer { name: "d" type: "Input" top: "data" top: "label" input_param { shape { %s } shape { dim: 8 } } }'
    (folder / "same.prototxt").write_text(inputs % "dim: 8 dim: 1 dim: 28 dim: 28" + LENET[first[1] :])
    same = minidnn.plan("same.prototxt", "liveness", gpu="titan_x")
    assert given.document.rows == same.document.rows


def test_every_top_of_hdf5_can_have_a_shape(folder, capsys):
    text = """layer { name: "h" type: "HDF5Data" top: "x" top: "y"
      hdf5_data_param { source: "gone.txt" batch_size: 4 } }
    layer { name: "l" type: "EuclideanLoss" bottom: "x" bottom: "y" top: "loss" }"""
    (folder / "h.prototxt").write_text(text)
    assert refused(capsys, "show", "h.prototxt").endswith("--shape x=4,K --shape y=4,K")
    assert main(["show", "h.prototxt", "--shape", "x=4,6", "--shape", "y=4,6"]) == 0


@pytest.mark.parametrize(
    ("change", "shape"),
    [
        ("crop_size: 24", "3x24x24"),
        ("crop_size: 24 force_gray: true", "1x24x24"),
        ("crop_size: 24 mean_value: 1 mean_value: 2", "2x24x24"),
    ],
)
def test_what_the_layer_says_is_taken_from_it(folder, capsys, change, shape):
    (folder / "net.prototxt").write_text(LENET.replace('scale: 0.5 mean_file: "gone"', change))
    assert main(["show", "net.prototxt"]) == 0
    captured = capsys.readouterr()
    assert f"planned with images of {shape}" in captured.err and shape.replace("x", "×") in captured.out


def test_image_data_of_one_size_says_it_too(folder, capsys):
    layer = """layer { name: "d" type: "ImageData" top: "x" image_data_param
      { source: "gone.txt" batch_size: 2 new_height: 6 new_width: 7 is_color: false } top: "label" }"""
    (folder / "i.prototxt").write_text(layer)
    assert main(["show", "i.prototxt"]) == 0
    assert "2×1×6×7" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("data", "expected a top and its shape, such as data=64,1,28,28; got 'data'"),
        ("data=1,0", "expected a top and its shape"),
        ("data=", "expected a top and its shape"),
        ("dta=1,2", "no data layer has this top (did you mean 'data'?); there are data, label"),
    ],
)
def test_a_shape_that_is_none(folder, capsys, text, expected):
    try:
        code = main(["show", "net.prototxt", "--shape", text])
    except SystemExit as end:
        code = end.code
    assert code == 2 and expected in capsys.readouterr().err


def test_a_shape_twice_or_of_another_number_of_samples_is_refused(folder, capsys):
    twice = refused(capsys, "plan", "net.prototxt", "--shape", "data=8,4", "--shape", "data=8,5")
    assert twice == "minidnn: --shape data is given twice: give one shape"
    error = refused(capsys, "plan", "net.prototxt", "--shape", "data=8,4", "--shape", "label=7")
    assert "--shape data=8,4 and --shape label=7: samples and labels of layer 'd' are equally many" in error


def test_other_tops_of_an_input_layer_keep_their_shapes():
    shapes = "input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } shape { dim: 2 dim: 3 } }"
    text = f'layer {{ name: "in" type: "Input" top: "data" top: "info" {shapes} }}'
    net = minidnn.Net.from_text(text, source="net.prototxt")

    def tops(*args):
        return [blob.tensor.shape for blob in net.with_shapes(*args).graph("TEST").blobs]

    assert tops({"data": (2, 3, 9, 9)}) == [(2, 3, 9, 9), (2, 3)]
    assert tops({"data": (4, 3, 9, 9)}) == [(4, 3, 9, 9), (4, 3)]
    assert tops({"data": (1, 3, 9, 9), "info": (300, 5)}) == [(1, 3, 9, 9), (300, 5)]
    assert tops({"data": (1, 3, 9, 9), "info": (300, 5)}, 7) == [(7, 3, 9, 9), (7, 5)]


def test_a_leveldb_that_is_not_here_is_called_one(folder, capsys):
    (folder / "net.prototxt").write_text(LENET.replace("gone_lmdb", "gone_leveldb"))
    error = refused(capsys, "plan", "net.prototxt")
    assert "gone_leveldb: a LevelDB database, which minidnn does not read; convert it to LMDB; to plan" in error
