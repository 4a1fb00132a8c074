"""A Caffe user's first commands: his own files, as they are."""

from __future__ import annotations

import json

import numpy as np
import pytest

from minidnn.cli.main import main
from minidnn.training.snapshot import load_weights

NET = """name: "Small"
layers {
  name: "data" type: DATA top: "data" top: "label"
  data_param { source: "synthetic:1x8x8:classes=3:count=32" batch_size: 8 backend: LMDB scale: 0.5 }
}
layers {
  name: "conv" type: CONVOLUTION bottom: "data" top: "conv" blobs_lr: 1 blobs_lr: 2
  convolution_param { num_output: 4 kernel_size: 3 engine: CAFFE weight_filler { type: "xavier" } }
}
layers { name: "relu" type: RELU bottom: "conv" top: "conv" relu_param { engine: CUDNN } }
layers {
  name: "ip" type: INNER_PRODUCT bottom: "conv" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } }
}
layers { name: "accuracy" type: ACCURACY bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
layers { name: "loss" type: SOFTMAX_LOSS bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = """net: "net.prototxt"  # beside this file
test_iter: 2 test_interval: 4
base_lr: 0.1 lr_policy: "step" gamma: 0.1 stepsize: 3 momentum: 0.9
max_iter: 4 snapshot: 2 snapshot_prefix: "small" snapshot_format: BINARYPROTO
solver_mode: GPU solver_type: SGD random_seed: 3
"""
DEVICE = ["--device", "reference"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    return tmp_path


def test_train_test_and_fine_tune(here, capsys):
    assert main(["train", "solver.prototxt", *DEVICE]) == 0
    shown = capsys.readouterr()
    told = "read, but not obeyed: solver_mode GPU (--device chooses; this is reference), backend of 1 layer, engine of"
    assert (shown.err + shown.out).count(told) == 1
    assert main(["test", "net.prototxt", "--weights", "small_iter_4.caffemodel", *DEVICE, "--json"]) == 0
    shown = capsys.readouterr()
    assert "accuracy" in json.loads(shown.out)["outputs"]
    assert shown.err == "minidnn: read, but not obeyed: backend of 1 layer, engine of 2 layers\n"
    assert main(["train", "solver.prototxt", *DEVICE, "--weights", "small_iter_4.caffemodel", "--max-iter", "1"]) == 0
    assert "4 blobs taken" in capsys.readouterr().out


def test_resumed_it_ends_with_the_same_file(here):
    assert main(["train", "solver.prototxt", *DEVICE]) == 0
    whole = (here / "small_iter_4.caffemodel").read_bytes()
    for path in here.glob("small_iter_4.*"):
        path.unlink()
    assert main(["train", "solver.prototxt", *DEVICE, "--resume", "latest"]) == 0
    assert (here / "small_iter_4.caffemodel").read_bytes() == whole


def test_the_same_run_from_yaml_has_the_same_weights(here):
    for name in ("net", "solver"):
        assert main(["convert", f"{name}.prototxt", f"{name}.yaml"]) == 0
    text = (here / "solver.yaml").read_text()
    (here / "solver.yaml").write_text(text.replace("net.prototxt", "net.yaml").replace("BINARYPROTO", "SAFETENSORS"))
    assert main(["train", "solver.prototxt", *DEVICE]) == main(["train", "solver.yaml", *DEVICE]) == 0
    mine, theirs = load_weights("small_iter_4.safetensors"), load_weights("small_iter_4.caffemodel")
    numbered = {"w": "0", "b": "1"}
    assert len(mine) == len(theirs) == 4
    for name, values in mine.items():
        layer, blob = name.split("/")
        assert np.array_equal(values.whole(), theirs[f"{layer}/{numbered[blob]}"].whole())


def test_unknown_fields(here, capsys):
    (here / "net.prototxt").write_text(NET.replace("num_output: 4", "num_output: 4 fork: 1"))
    words = ["plan", "solver.prototxt", "--gpu", "titan_x", "--policy", "liveness"]
    assert main(words) == 2
    assert capsys.readouterr().err == (
        "minidnn: net.prototxt:8:37: layer[conv].convolution_param.fork: there is no field 'fork'; --ignore-unknown "
        "leaves out the additions of Caffe's forks\n"
    )
    assert main([*words, "--ignore-unknown"]) == 0
    assert "minidnn: ignored: net.prototxt:8:37: layer[conv].convolution_param.fork\n" in capsys.readouterr().err
    assert main(["train", "solver.prototxt", *DEVICE, "--ignore-unknown"]) == 0
    assert capsys.readouterr().out.count("ignored: net.prototxt:8:37") == 1


def test_a_net_named_from_the_folder_of_caffe_is_pointed_at(here, capsys):
    (here / "solver.prototxt").write_text(SOLVER.replace("net.prototxt", "examples/small/net.prototxt"))
    assert main(["plan", "solver.prototxt"]) == 2
    assert capsys.readouterr().err == (
        "minidnn: solver.prototxt:1:6: net: there is no net examples/small/net.prototxt (looked for "
        "examples/small/net.prototxt); there is net.prototxt\n"
    )
    assert main(["plan", "net.protoxt"]) == 2
    assert "there is no file or model net.protoxt (did you mean 'net.prototxt'?)" in capsys.readouterr().err


def test_a_layer_that_cannot_be(here, capsys):
    (here / "net.prototxt").write_text(NET + 'layers { name: "h" type: HDF5_OUTPUT bottom: "ip" }\n')
    assert main(["plan", "net.prototxt"]) == 2
    assert capsys.readouterr().err.startswith("minidnn: net.prototxt:17:26: layer[h].type: minidnn has no layer HDF5")


def test_a_caffemodel_is_a_net_too(here, capsys):
    assert main(["train", "solver.prototxt", *DEVICE]) == 0
    assert main(["plan", "small_iter_4.caffemodel", "--policy", "liveness"]) == 0
    assert "Small, batch 8" in capsys.readouterr().out


def test_a_simulated_gpu_obeys_solver_mode_gpu(here, capsys):
    """The layers of a net for both phases count once."""
    assert main(["plan", "solver.prototxt", "--gpu", "titan_x", "--policy", "liveness"]) == 0
    assert capsys.readouterr().err == "minidnn: read, but not obeyed: backend of 1 layer, engine of 2 layers\n"
    (here / "solver.prototxt").write_text(SOLVER.replace("GPU", "CPU"))
    assert main(["plan", "solver.prototxt", "--gpu", "titan_x", "--policy", "liveness"]) == 0
    assert "solver_mode CPU (--device chooses; this is cuda, simulated)" in capsys.readouterr().err
