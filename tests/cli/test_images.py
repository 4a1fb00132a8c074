"""From a folder of JPEGs to a trained net, its logs, a table of confusions and an answer about one file."""

from __future__ import annotations

import json

from minidnn.cli.main import main
from tests.support.pictures import folder

NET = """
name: made
layer:
- name: data
  type: Data
  top: [data, label]
  data_param: {source: "folder:made", batch_size: 12}
  transform_param: {resize: 20, crop_size: 18, mean_value: [43, 46, 47], scale: 0.02}
- {name: conv, type: Convolution, bottom: data, top: conv,
   convolution_param: {num_output: 8, kernel_size: 5, stride: 2, weight_filler: {type: msra}}}
- {name: relu, type: ReLU, bottom: conv, top: conv}
- {name: scores, type: InnerProduct, bottom: conv, top: scores,
   inner_product_param: {num_output: 3, weight_filler: {type: xavier}}}
- {name: loss, type: SoftmaxWithLoss, bottom: [scores, label], top: loss}
- {name: accuracy, type: Accuracy, bottom: [scores, label], top: accuracy, include: {phase: TEST}}
"""
SOLVER = """
net: net.yaml
base_lr: 0.02
lr_policy: fixed
momentum: 0.9
random_seed: 1
snapshot_prefix: out/made
"""
NAMES = ["digit_0", "digit_1", "digit_2"]


def test_the_whole_way(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder(tmp_path / "made", train=8, val=4)
    (tmp_path / "net.yaml").write_text(NET)
    (tmp_path / "solver.yaml").write_text(SOLVER)

    def answer(*argv):
        assert main([*argv, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert answer("data", "net.yaml")["rows"][0]["samples"] == 24
    course = ["--epochs", "12", "--test-epochs", "4", "--keep-best", "accuracy", "--device", "reference"]
    trained = answer("train", "solver.yaml", *course, "--tensorboard", "out/tb", "--log", "out/a.jsonl")
    assert trained["iterations"] == 12 * 2 and trained["best_test"]["value"] > 0.9
    assert len(list((tmp_path / "out/tb").iterdir())) == 1
    weights = ["--weights", "out/made_best.safetensors", "--device", "reference"]
    confusion = answer("test", "solver.yaml", "--confusion", *weights)["confusion"]
    assert confusion["class_names"] == NAMES and confusion["samples"] == 12
    (row,) = answer("predict", "solver.yaml", "made/train/digit_2/0003.jpg", *weights)["predictions"]
    assert row["class_names"][0] == "digit_2" and sorted(row["class_names"]) == NAMES
