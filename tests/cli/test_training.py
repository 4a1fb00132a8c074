"""train and test as a user runs them: epochs, the best snapshot, logs, and the table of confusions."""

from __future__ import annotations

import json

import numpy as np
import pytest

from minidnn.cli.main import main
from tests.support.tiny import samples

NET = """
name: tiny
layer:
- {name: data, type: Data, top: [x, label], data_param: {source: set.npz, batch_size: 6}}
- {name: ip, type: InnerProduct, bottom: x, top: ip,
   inner_product_param: {num_output: 3, weight_filler: {type: xavier}}}
- {name: accuracy, type: Accuracy, bottom: [ip, label], top: accuracy, include: {phase: TEST}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
"""
SOLVER = """
net: net.yaml
base_lr: 0.5
lr_policy: fixed
max_iter: 1000
random_seed: 4
snapshot_prefix: run
minidnn: {device: reference}
"""


@pytest.fixture
def case(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = samples()
    np.savez("set.npz", x=x, y=y)
    (tmp_path / "net.yaml").write_text(NET)
    (tmp_path / "solver.yaml").write_text(SOLVER)
    return tmp_path


def said(capsys, *words: str) -> dict:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_from_epochs_to_confusions(case, capsys):
    options = ["--test-epochs", "1", "--keep-best", "accuracy", "--log", "run.jsonl", "--log", "run.csv"]
    trained = said(capsys, "train", "solver.yaml", "--epochs", "3", "--tensorboard", "tb", *options)
    assert trained["iterations"] == 12 and [test["iteration"] for test in trained["tests"]] == [0, 4, 8, 12]
    assert trained["weights"] is None and trained["resumed"] is None and not trained["out_of_patience"]
    best = max(test["outputs"]["accuracy"] for test in trained["tests"])
    assert trained["best_test"]["value"] == best and any(one["kept_best"] for one in trained["snapshots"])
    assert len(list((case / "tb").iterdir())) == 1

    longer = said(capsys, "train", "solver.yaml", "--epochs", "4", "--resume", "latest", *options)
    assert longer["resumed"] == "run_iter_12.safetensors" and longer["iterations"] == 16
    lines = [json.loads(line) for line in (case / "run.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines if line["event"] == "step"] == list(range(16))
    assert len((case / "run.csv").read_text().splitlines()) == 1 + 16 + 4 + 2

    tested = said(capsys, "test", "solver.yaml", "--weights", "run_best.safetensors", "--confusion")
    counts = np.array(tested["confusion"]["counts"])
    assert counts.shape == (3, 3) and counts.sum() == 20 and tested["confusion"]["class_names"] == ["0", "1", "2"]
    assert main(["test", "solver.yaml", "--weights", "run_best.safetensors", "--confusion"]) == 0
    out = capsys.readouterr().out
    assert "Labels in rows, predictions in columns (layer accuracy)" in out and "of 20; mean over classes" in out


def test_the_log_names_the_best_and_the_end_of_patience(case, capsys):
    (case / "solver.yaml").write_text(SOLVER.replace("base_lr: 0.5", "base_lr: 0"))
    options = ["--epochs", "9", "--test-epochs", "1", "--keep-best", "loss", "--patience", "2"]
    assert main(["train", "solver.yaml", *options]) == 0
    lines = [line.partition("] ")[2] for line in capsys.readouterr().out.splitlines()]
    assert any(line.startswith("Best loss so far: ") for line in lines)
    assert "Snapshotting to run_best.safetensors" in lines and "No better loss in 2 tests" in lines
    assert lines[-2].startswith("Best loss: ") and lines[-2].endswith(", after iteration 0")
    assert lines[-1] == "Optimization Done."
    assert (case / "run_iter_8.safetensors").exists()


DEEPER = "{name: first, type: InnerProduct, bottom: x, top: h, inner_product_param: {num_output: 4}}"


@pytest.mark.parametrize(
    "weights, unused", [("run_iter_4.safetensors", ["ip/b", "ip/w"]), ("w.caffemodel", ["ip/0", "ip/1"])]
)
def test_weights_that_do_not_match_are_named(case, capsys, weights, unused):
    """The last layer is to learn other classes, so it gets another name; with the old one it is refused."""
    last = "{name: ip, type: InnerProduct, bottom: "
    net = NET.replace(f"- {last}x", f"- {DEEPER}\n- {last}h")
    (case / "net.yaml").write_text(net)
    said(capsys, "train", "solver.yaml", "--epochs", "1")
    assert main(["convert", "run_iter_4.safetensors", "w.caffemodel", "--net", "net.yaml"]) == 0
    capsys.readouterr()

    (case / "net.yaml").write_text(net.replace("num_output: 3", "num_output: 5"))
    assert main(["train", "solver.yaml", "--epochs", "1", "--weights", weights]) == 2
    assert "is given with (3, 4); to train the layer from scratch, give it another name" in capsys.readouterr().err

    (case / "net.yaml").write_text(net.replace("num_output: 3", "num_output: 5").replace("name: ip,", "name: other,"))
    options = ["--epochs", "1", "--weights", weights, "--log", "run.jsonl"]
    loaded = said(capsys, "train", "solver.yaml", *options)["weights"]
    assert loaded["missing"] == ["other/b", "other/w"] and loaded["unused"] == unused and len(loaded["taken"]) == 2
    assert json.loads((case / "run.jsonl").read_text().splitlines()[0])["weights"] == loaded


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--log", "none/run.jsonl"], "log none/run.jsonl: there is no folder none"),
        (["--log", "set.npz"], "log set.npz: expected a name that ends in .jsonl or .csv"),
        (["--tensorboard", "set.npz"], "tensorboard set.npz: is not a folder"),
        (["--keep-best", "accuracy"], "keep_best needs tests: give test_iter and test_interval, or test_epochs"),
        (["--patience", "3"], "minidnn.patience: needs keep_best"),
        (
            ["--test-epochs", "1", "--keep-best", "acuracy"],
            "output 'acuracy' (did you mean 'accuracy'?)",
        ),
    ],
)
def test_refused(case, capsys, options, why):
    assert main(["train", "solver.yaml", *options]) == 2
    assert why in capsys.readouterr().err
    assert not list(case.glob("run_*"))


def test_epochs_or_iterations(case, capsys):
    with pytest.raises(SystemExit):
        main(["train", "solver.yaml", "--epochs", "1", "--max-iter", "2"])
    assert "not allowed with argument" in capsys.readouterr().err
