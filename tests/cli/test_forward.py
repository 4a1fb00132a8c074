"""A net without a loss, such as a deploy net, is planned as its forward pass, phase TEST, and the remedy is told."""

from __future__ import annotations

import json

import pytest

import minidnn
from minidnn.cli.main import main
from minidnn.programs.build import programs
from tests.support.slow import extended_are

DEPLOY = """name: "deploy"
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 16 dim: 16 } } }
layer { name: "c1" type: "Convolution" bottom: "x" top: "c1" convolution_param { num_output: 8 kernel_size: 3 } }
layer { name: "r" type: "ReLU" bottom: "c1" top: "c1" }
layer { name: "c2" type: "Convolution" bottom: "c1" top: "c2" convolution_param { num_output: 8 kernel_size: 3 } }
layer { name: "ip" type: "InnerProduct" bottom: "c2" top: "ip" inner_product_param { num_output: 5 } }
layer { name: "p" type: "Softmax" bottom: "ip" top: "p" }
"""
GPU = ["--gpu", "titan_x"]
VERBS = [
    ["plan", *GPU], ["plan", "--device", "reference"], ["frontier", *GPU, "--points", "2"],
    ["compare", *GPU, "--policies", "baseline,vdnn_all"], ["time", *GPU], ["time", *GPU, "--algorithms"],
    ["compare", "--device", "reference", "--policies", "liveness,vdnn_all", "--steps", "1"],
    ["time", "--device", "reference", "--iterations", "1"],
    ["search", *GPU, "--max", "batch", "--policies", "liveness", "--budget", "1MiB"],
]  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deploy.prototxt").write_text(DEPLOY)
    (tmp_path / "solver.prototxt").write_text('net: "deploy.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 1')
    return tmp_path


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_verbs_do_the_forward_pass_and_say_so(verb, capsys):
    assert main([verb[0], "deploy.prototxt", *verb[1:], "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["phase"] == "TEST"
    (told,) = (line for line in shown.err.splitlines() if "no loss" in line)
    assert told.startswith("minidnn: net deploy has no loss: this is its forward pass, phase TEST; --loss adds one")
    assert 'append to deploy.prototxt: layer { name: "label" type: "Input" top: "label"' in told


def test_the_plan_is_that_of_the_test_program(capsys):
    assert main(["plan", "deploy.prototxt", *GPU]) == 0
    assert "deploy, batch 2, phase TEST." in capsys.readouterr().out
    plans = minidnn.plan("deploy.prototxt", "liveness", gpu="titan_x")
    schedule = plans.schedule("liveness")
    assert [*plans.results[0].arrangement.schedules] == ["TEST"] and schedule.program.name == "TEST"
    net = minidnn.load("deploy.prototxt")
    (test,) = programs(net, None, ["TEST"]).values()
    assert [t.name for t in schedule.program.outputs] == [t.name for t in test.outputs] == ["p.y"]
    assert schedule.live_peak < minidnn.plan(net.with_loss(), "liveness", gpu="titan_x").schedule("liveness").live_peak


def test_a_net_whose_inputs_are_for_phase_test_alone(here, capsys):
    text = DEPLOY.replace("dim: 16 dim: 16 } }", "dim: 16 dim: 16 } } include { phase: TEST }")
    (here / "deploy.prototxt").write_text(text)
    assert main(["plan", "deploy.prototxt", *GPU, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["phase"] == "TEST"
    (here / "deploy.prototxt").write_text(text + 'layer { type: "EuclideanLoss" bottom: "p" bottom: "ip" name: "l" }')
    assert main(["plan", "deploy.prototxt", *GPU]) == 2
    assert "in phase TRAIN, no layer before this one makes blob 'x'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "policy",
    extended_are(["best"], ["baseline", "liveness", "vdnn_all", "superneurons", "best", "layrub", "checkmate"]),
)
def test_budgets_hold(policy, capsys):
    (row,) = minidnn.plan("deploy.prototxt", policy, gpu="titan_x").rows
    assert row.fits and row.recomputed_ops == 0
    (least,) = minidnn.plan("deploy.prototxt", policy, gpu="titan_x", budget=1024).rows
    assert not least.fits and "at TEST" in least.why
    (kept,) = minidnn.plan("deploy.prototxt", policy, gpu="titan_x", budget=least.smallest_budget_bytes).rows
    assert kept.fits and kept.peak_bytes <= least.smallest_budget_bytes
    assert main(["plan", "deploy.prototxt", *GPU, "--budget", "8KiB", "--policy", policy]) == 2
    assert "internal error" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", "solver.prototxt"], "net deploy has no loss to train with: no layer has a loss_weight; --loss adds"),
        (["train", "deploy.prototxt", "--max-iter", "1"], "net deploy has no loss to train with"),
        (["train", "deploy.prototxt"], "deploy.prototxt is a net: training needs a solver file that names it, or"),
        (["plan", "solver.prototxt"], "net deploy has no loss to train with"),
        (["plan", "deploy.prototxt", *GPU, "--ranks", "2"], "--ranks 2: net deploy has no loss, and without training"),
        (["tune", "deploy.prototxt", *GPU], "tune looks for a batch to train with, and net deploy has no loss"),
    ],
)
def test_what_trains_tells_the_remedy(words, told, capsys):
    assert main(words) == 2
    message = capsys.readouterr().err
    assert told in message and 'append to deploy.prototxt: layer { name: "label"' in message


def test_the_option_adds_a_loss(capsys):
    for file, *more in (["deploy.prototxt"], ["solver.prototxt"], ["deploy.prototxt", "--ranks", "2"]):
        assert main(["plan", file, *GPU, *more, "--loss", "--json"]) == 0
        shown = capsys.readouterr()
        assert json.loads(shown.out)["phase"] == "TRAIN"
        assert "net deploy has no loss: SoftmaxWithLoss of ip and label is added" in shown.err


def test_the_remedy_for_layers_in_the_old_form_can_be_followed(here, capsys):
    old = 'input: "x" input_dim: 2 input_dim: 3 input_dim: 1 input_dim: 1 '
    old += 'layers { name: "ip" type: INNER_PRODUCT bottom: "x" top: "ip" inner_product_param { num_output: 5 } }'
    (here / "old.prototxt").write_text(old)
    assert main(["plan", "old.prototxt", *GPU]) == 0
    told = capsys.readouterr().err.strip()
    assert "(`minidnn convert old.prototxt NEW.prototxt`), and append to NEW.prototxt: layer {" in told
    assert main(["convert", "old.prototxt", "NEW.prototxt"]) == 0
    with (here / "NEW.prototxt").open("a") as file:
        file.write(told.partition("append to NEW.prototxt: ")[2])
    assert main(["plan", "NEW.prototxt", *GPU, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.partition("\n")[2])["phase"] == "TRAIN"


def test_tune_tells_the_remedy_once(capsys):
    assert main(["tune", "deploy.prototxt", *GPU]) == 2
    assert capsys.readouterr().err.count("append to deploy.prototxt") == 1
