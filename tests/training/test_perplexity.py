"""What is said of a net of tokens: its perplexity beside its loss, tokens per second, and tokens that are none."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from minidnn.cli.main import main
from minidnn.data import DataError
from minidnn.nets import perplexity
from minidnn.nets.net import Net
from minidnn.training.session import Session
from minidnn.training.solver import Solver
from minidnn.zoo import load

TEXT = """
- {name: data, type: Data, top: [data, label], data_param: {source: "synthetic_tokens:6:classes=9", batch_size: 4}}
- {name: embed, type: Embed, bottom: data, top: embed,
   embed_param: {num_output: 8, input_dim: 9, weight_filler: {type: gaussian}}}
- {name: scores, type: InnerProduct, bottom: embed, top: scores,
   inner_product_param: {num_output: 9, axis: 2, weight_filler: {type: xavier}}}
- {name: loss, type: SoftmaxWithLoss, bottom: [scores, label], top: loss, softmax_param: {axis: 2} LOSS}
"""


SOLVER = """
{net: net.yaml, base_lr: 0.1, lr_policy: fixed, max_iter: 2, test_iter: 3, test_interval: 2, random_seed: 1, display: 1,
 snapshot_prefix: out, minidnn: {log: [run.jsonl, run.csv], keep_best: perplexity}}
"""


def net(loss: str = "") -> Net:
    return Net.from_text("layer:" + TEXT.replace(" LOSS", loss))


@pytest.fixture
def solver(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.yaml").write_text("layer:" + TEXT.replace(" LOSS", ""))
    (tmp_path / "solver.yaml").write_text(SOLVER)
    return "solver.yaml"


def test_it_is_told_wherever_the_loss_is(solver, capsys):
    assert main(["train", solver, "--json", "--device", "cpu"]) == 0
    document, said = capsys.readouterr()
    tests = json.loads(document)["tests"]
    assert [t["outputs"]["perplexity"] for t in tests] == [math.exp(t["outputs"]["loss"]) for t in tests]
    assert " tokens/s), loss = " in said and "images" not in said
    steps = [r for r in map(json.loads, Path("run.jsonl").read_text().splitlines()) if r["event"] == "step"]
    assert all(r["train/perplexity"] == math.exp(r["train/loss"]) for r in steps)
    assert all(math.isclose(r["tokens_per_second"] * r["step_seconds"], 24) for r in steps)
    (head, *_) = Path("run.csv").read_text().split("\n")
    assert head.split(",")[3:] == [
        "loss", "smoothed_loss", "rate", "step_seconds", "tokens_per_second", "train/loss", "train/perplexity",
        "test/loss", "test/perplexity",
    ]  # fmt: skip
    best = json.loads(document)["best_test"]
    assert best["way"] == "lowest" and best["value"] == min(t["outputs"]["perplexity"] for t in tests)
    assert (
        main(["test", "net.yaml", "--weights", "out_iter_2.safetensors", "--iterations", "3", "--device", "cpu"]) == 0
    )
    loss, found, took = capsys.readouterr().out.strip().split("\n")
    assert math.isclose(
        float(found.removeprefix("perplexity = ")), math.exp(float(loss.removeprefix("loss = "))), rel_tol=1e-5
    )
    assert took.startswith("72 tokens in ")


@pytest.mark.parametrize(
    ("loss", "times"),
    [("", 1), (", loss_param: {normalization: BATCH_SIZE}", 6), (", loss_param: {normalization: NONE}", 24)],
)
def test_it_is_of_the_mean_loss_of_a_token(loss, times):
    graph = net(loss).graph("TEST")
    assert perplexity.losses(graph) == {"perplexity": ("loss", times)}
    assert perplexity.of(graph, {"loss": times * math.log(7)}) == {"perplexity": pytest.approx(7)}
    assert perplexity.of(graph, {"loss": 1e6}) == {"perplexity": math.inf}


def test_smoothed_losses_and_images_have_none():
    assert perplexity.losses(net(", loss_param: {label_smoothing: 0.1}").graph("TRAIN")) == {}
    with Session(load("digits_lenet"), device="cpu") as session:
        assert "perplexity" not in session.scalar_names("TEST") and session.counted("TEST").name == "images"


@pytest.mark.parametrize(("what", "layer"), [("input_dim: 9", "embed"), ("num_output: 9, axis", "scores")])
def test_a_token_out_of_range_is_called_a_token(what, layer, tmp_path):
    np.full(40, 7, np.uint16).tofile(tmp_path / "ids.bin")
    source = f"tokens:{tmp_path}/ids.bin:length=6"
    text = (
        TEXT.replace("synthetic_tokens:6:classes=9", source).replace(what, what.replace("9", "5")).replace(" LOSS", "")
    )
    fields = dict(base_lr=0.1, lr_policy="fixed", max_iter=1)
    said = r"token 7 of sample . names none of the 5 classes of layer"
    made = Net.from_text("layer:" + text)
    with Solver(made, device="cpu", **fields) as solver, pytest.raises(DataError, match=said):
        solver.step(1)


def test_the_shape_of_tokens_is_asked_for_as_such(tmp_path, capsys):
    (tmp_path / "net.yaml").write_text(
        "layer:" + TEXT.replace("synthetic_tokens:6:classes=9", "text:x").replace(" LOSS", "")
    )
    assert main(["plan", str(tmp_path / "net.yaml")]) == 2
    assert capsys.readouterr().err.strip().endswith("give their shape: --shape data=4,T")
