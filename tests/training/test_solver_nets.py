"""The nets of a solver: inline, in states, several to test with; and what it says of them: test losses, debug_info."""

from __future__ import annotations

import json

import numpy as np
import pytest

import minidnn
from minidnn.cli.main import main
from minidnn.errors import BadInput
from minidnn.jobs.solver_file import understand
from minidnn.schema import InvalidFile
from minidnn.training import events
from minidnn.training.solver import Solver

LAYERS = """
- {name: data, type: Data, top: [data, label],
   data_param: {source: "synthetic:2x6x6:classes=4:count=24", batch_size: 6}}
- {name: conv, type: Convolution, bottom: data, top: conv,
   convolution_param: {num_output: 3, kernel_size: 3, weight_filler: {type: msra}}}
- {name: relu, type: ReLU, bottom: conv, top: conv}
- {name: ip, type: InnerProduct, bottom: conv, top: ip,
   inner_product_param: {num_output: 4, weight_filler: {type: xavier}}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss, loss_weight: 2}
- {name: accuracy, type: Accuracy, bottom: [ip, label], top: accuracy, include: {phase: TEST, not_stage: short}}
- {name: top2, type: Accuracy, bottom: [ip, label], top: top2, include: {phase: TEST, stage: wide},
   accuracy_param: {top_k: 2}}
"""
NET = f"name: small\nlayer:{LAYERS}"
SOLVER = "base_lr: 0.05\nlr_policy: fixed\nmax_iter: 4\nrandom_seed: 3\nmomentum: 0.9\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.yaml").write_text(NET)
    return tmp_path


def inline(field, indent="  "):
    return f"{field}:\n{indent}layer:\n" + "".join(f"{indent}{line}\n" for line in LAYERS.strip().split("\n"))


def run(folder, text, **options):
    (folder / "s.yaml").write_text(SOLVER + text)
    with Solver("s.yaml", device="reference", **options) as solver:
        tests = []
        solver.solve(lambda event: tests.append(event) if isinstance(event, events.Tested) else None)
        return tests, solver.session.weights()["ip/w"].tobytes()


STATES = """net: net.yaml
test_iter: [2, 4, 1]
test_interval: 2
test_state: [{}, {stage: wide}, {stage: [wide, short]}]
"""


def test_several_test_nets_are_tested_in_turn_each_as_often_as_it_says(folder):
    tests, weights = run(folder, STATES)
    assert [(t.iteration, t.number, t.images, sorted(t.outputs)) for t in tests] == [
        (i, k, images, names)
        for i in (0, 2, 4)
        for k, (images, names) in enumerate(
            [(12, ["accuracy", "loss"]), (24, ["accuracy", "loss", "top2"]), (6, ["loss", "top2"])]
        )
    ]
    alone, same = run(folder, "net: net.yaml\ntest_iter: 4\ntest_interval: 2\ntest_state: {stage: wide}\n")
    assert same == weights
    assert [t.outputs for t in alone] == [t.outputs for t in tests if t.number == 1]


def test_under_every_budget_they_share_one_arena(folder):
    want, weights = run(folder, STATES, policy="baseline:m")
    got, same = run(folder, STATES, policy="vdnn_all:m", debug=True)
    assert same == weights and [t.outputs for t in got] == [t.outputs for t in want]


def test_nets_by_file_inline_and_as_the_train_net_are_in_caffe_s_order(folder):
    (folder / "t.yaml").write_text(NET.replace("batch_size: 6", "batch_size: 3"))
    text = inline("test_net_param").replace("batch_size: 6", "batch_size: 2")
    both, weights = run(folder, f"{text}test_net: t.yaml\nnet: net.yaml\ntest_iter: [1, 1, 1]\ntest_interval: 4\n")
    assert [t.images for t in both[:3]] == [2, 3, 6]
    apart, same = run(folder, inline("train_net_param") + "test_net: [t.yaml, t.yaml]\ntest_iter: [1, 2]\n")
    assert [t.images for t in apart] == [3, 6] and same == weights


def test_an_inline_net_s_errors_have_their_places(folder):
    text = inline("train_net_param").replace("type: ReLU", "type: Relu") + inline("test_net_param").replace(
        "xavier", "x"
    )
    with pytest.raises(InvalidFile) as caught:
        run(folder, f"{text}test_iter: 1\n")
    assert [error.split(": ")[0] for error in caught.value.errors] == ["s.yaml:12:24", "s.yaml:27:65"]
    with pytest.raises(BadInput, match=r"s\.yaml:23:5: layer 'conv'"):
        run(folder, inline("train_net_param") + inline("test_net_param").replace("kernel_size: 3", "kernel_size: 9"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "net: net.yaml\ntest_net: [net.yaml, net.yaml]\ntest_iter: 1\n",
            "test_iter: expected one for each of 2",
        ),
        (
            "net: net.yaml\ntest_iter: [1, 1]\ntest_state: {stage: a}\n",
            "test_state: expected one for each of 2",
        ),
        ("train_net: net.yaml\ntest_iter: 1\n", "test_iter: there is no net to test with: give test_net, or net"),
        ("train_net: net.yaml\ntest_net: net.yaml\ntest_iter: [1, 1]\n", "test_iter: expected one for each of 1"),
        ("net: net.yaml\nlayer_wise_reduce: true\n", "layer_wise_reduce: for Caffe on several GPUs"),
        ("net: net.yaml\nweights: a.caffemodel\n", "weights: name the file where the run begins: --weights FILE"),
    ],
)
def test_what_does_not_fit_is_refused(folder, text, says):
    with pytest.raises(InvalidFile, match=says):
        run(folder, text)


def test_a_solver_s_state_is_merged_into_the_net_s(folder):
    (folder / "net.yaml").write_text(f"state: {{level: 3, stage: wide}}\n{NET}")
    (folder / "s.yaml").write_text(SOLVER + "net: net.yaml\ntest_iter: 1\ntest_state: {stage: short}\n")
    _, (test,), _ = understand("s.yaml")
    assert (test.parameter.state.level, test.parameter.state.stage) == (3, ("wide", "short"))
    assert [node.name for node in test.graph("TEST").layers][-2:] == ["loss", "top2"]


def test_a_test_tells_its_loss_if_asked(folder):
    """Caffe's sum of loss_weight * loss; also of a net whose losses are no single numbers."""
    text = "net: net.yaml\ntest_iter: 2\ntest_interval: 4\n"
    assert {t.loss for t in run(folder, text)[0]} == {None}
    (test, *_), _ = run(folder, f"{text}test_compute_loss: true\n")
    assert test.loss == pytest.approx(2 * test.outputs["loss"], rel=1e-6)
    (folder / "net.yaml").write_text(NET.replace("top: ip,", "top: ip, loss_weight: 0.5,"))
    (more, *_), _ = run(folder, f"{text}test_compute_loss: true\n")
    assert more.outputs == test.outputs and more.loss != pytest.approx(test.loss, rel=1e-3)


def test_the_lines_are_caffe_s(folder, capsys):
    (folder / "s.yaml").write_text(SOLVER + STATES + "test_compute_loss: true\ndebug_info: true\ndisplay: 2\n")
    assert main(["train", "s.yaml", "--device", "reference"]) == 0
    lines = [line.split("] ", 1)[1] for line in "".join(capsys.readouterr()).split("\n") if "] " in line]
    tests = [line for line in lines if line.startswith(("Iteration 2, Testing", "Test loss"))]
    assert [t for t in tests if "Iteration" in t] == [f"Iteration 2, Testing net (#{k})" for k in range(3)]
    assert len(tests) == 3 + 9
    shown = [line.strip() for line in lines if "    [" in line]
    assert len([line for line in shown if line.startswith("[Forward] Layer ip, top blob ip data: ")]) == 2
    assert main(["train", "s.yaml", "--device", "reference", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [t["test_net"] for t in document["tests"]] == [0, 1, 2] * 3 and document["tests"][0]["test_loss"] is not None
    assert [bool(row.get("debug")) for row in document["history"]] == [True, False, True, False]


def test_the_command_tests_all_nets(folder, capsys):
    (folder / "s.yaml").write_text(SOLVER + STATES + f"snapshot_prefix: {folder}/out\n")
    assert main(["train", "s.yaml", "--device", "reference"]) == 0
    capsys.readouterr()
    weights = ["--weights", "out_iter_4.safetensors", "--device", "reference"]
    assert main(["test", "s.yaml", *weights]) == 0
    said = capsys.readouterr().out
    assert [line for line in said.split("\n") if "#" in line] == [f"Test net #{k}" for k in range(3)]
    assert main(["test", "s.yaml", *weights, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["samples"] for row in document["nets"]] == [12, 24, 6] and document["samples"] == 12
    assert main(["plan", "s.yaml", "--policy", "vdnn_all", "--listing"]) == 0
    assert "TEST2" in capsys.readouterr().out


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_debug_info_is_what_the_tensors_hold(folder, device):
    net = minidnn.load("net.yaml")
    options = dict(base_lr=0.05, device=device, seed=3, fuse=False, display=2, momentum=0.9, policy="vdnn_all:m")
    with Solver(net, debug_info=True, keep=["conv", "ip"], debug=True, **options) as solver:
        before = solver.session.weights()
        found = solver.step().debug
        after = solver.session.weights()

        def mean(values):
            return pytest.approx(float(np.abs(values).mean()), rel=1e-5)

        assert found["[Forward] Layer relu, top blob conv data"] == mean(solver.blobs["conv"])
        assert found["[Forward] Layer ip, top blob ip data"] == mean(solver.blobs["ip"])
        for i, name in enumerate("wb"):
            assert found.get(f"[Forward] Layer conv, param blob {i} data", 0.0) == mean(before[f"conv/{name}"])
            assert found[f"[Update] Layer conv, param blob {i} data"] == mean(after[f"conv/{name}"])
            moved = (after[f"conv/{name}"] - before[f"conv/{name}"]) / 0.05
            assert found[f"[Backward] Layer conv, param blob {i} diff"] == pytest.approx(np.abs(moved).mean(), rel=1e-3)
        assert found["[Backward] Layer loss, bottom blob ip diff"] > 0
        assert next(iter(found)) == "[Forward] Layer conv, top blob conv data"
        assert not solver.step().debug and solver.step().debug, "of displayed iterations alone"
        watched = {name: array.tobytes() for name, array in solver.values().items()}
    with Solver(net, **options) as solver:
        solver.step(3)
        assert {name: array.tobytes() for name, array in solver.values().items()} == watched
