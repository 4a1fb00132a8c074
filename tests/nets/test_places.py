"""Every refusal of a net from a file says file, line and column, also of a net within a solver file."""

from __future__ import annotations

import random
import re

import pytest

from minidnn.cli.main import main
from minidnn.errors import BadInput
from minidnn.jobs.job import Job
from minidnn.jobs.setting import Setting
from minidnn.jobs.solver_file import understand
from minidnn.training.feeds import Feeds
from tests.support.broken_files import as_solver, broken

NET = """\
name: n
layer:
- {name: data, type: Data, top: [data, label], data_param: {source: "synthetic:2x8x8", batch_size: 4}}
- {name: c1, type: Convolution, bottom: data, top: c1, convolution_param: {num_output: 4, kernel_size: 3}}
- {name: ip, type: InnerProduct, bottom: c1, top: ip, inner_product_param: {num_output: 10}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
"""
PLACE = re.compile(r"f\.yaml:\d+:\d+: |and \d+ more errors$")


def refused(text: str, where) -> list[str]:
    """The lines of the error of this file; none if it is not refused."""
    (where / "f.yaml").write_text(text, encoding="utf-8")
    try:
        job = Job.of(understand("f.yaml"), Setting())
        assert job.programs
        for graph in job.graphs.values():
            Feeds(graph).close()
    except BadInput as error:
        return str(error).split("\n")
    return []


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


# what is changed into what; the line of the error in the net's file; words of the error
CASES = [
    ("kernel_size: 3", "kernel_size: 99", 4, "layer 'c1'"),
    ("num_output: 10", "num_output: 10, weight_filler: {type: bilinear}", 5, "a bilinear filler needs square kernels"),
    ("convolution_param: {num_output: 4, kernel_size: 3}", "convolution_param: null", 4, "a mapping, got nothing"),
    ("num_output: 10", "num_output: 1", 6, "but layer loss gets 1 scores"),
    ("top: [data, label],", "top: [data, label], loss_weight: [0, 1],", 3, "has a loss_weight, but holds labels"),
    ("top: loss}", "top: loss, loss_weight: 0}", 1, "has no loss to train with"),
    ("synthetic:2x8x8", "nosuch.npz", 3, "nosuch.npz"),
    ("type: Data, top: [data, label], data_param: {source: \"synthetic:2x8x8\", batch_size: 4}",
     "type: Input, top: [data, label], input_param: {shape: [{dim: [4, 2, 8, 8]}, {dim: 4}]}", 1, "from Input or"),
    ("top: c1,", "top: c1, include: {phase: TEST},", 5, "blob 'c1'"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "words"), CASES)
def test_a_refusal_has_its_place(folder, old, new, line, words):
    assert old in NET
    (found,) = refused(NET.replace(old, new), folder)
    assert found.startswith(f"f.yaml:{line}:") and words in found
    (found,) = refused(as_solver(NET.replace(old, new)), folder)
    assert found.startswith(f"f.yaml:{line + 1}:") and words in found


def test_a_state_of_the_solver_keeps_the_places(folder):
    net = NET.replace("top: c1,", "top: c1, exclude: {stage: deploy},")
    assert not refused(as_solver(net), folder)
    (found,) = refused(as_solver(net) + "train_state: {stage: deploy}\n", folder)
    assert found.startswith("f.yaml:6:") and "no layer before this one makes blob 'c1'" in found
    (found,) = refused(as_solver(net) + "test_state: {stage: deploy}\ntest_iter: 1\ntest_interval: 1\n", folder)
    assert found.startswith("f.yaml:6:") and "in phase TEST" in found


def test_a_parameter_of_two_shapes_has_its_place(folder):
    both = NET.replace("{name: c1,", "{name: c1, include: {phase: TRAIN},").split("\n")
    other = both[3].replace("TRAIN", "TEST").replace("num_output: 4", "num_output: 5")
    text = as_solver("\n".join([*both[:4], other, *both[4:]])) + "test_iter: 1\ntest_interval: 1\n"
    (found,) = refused(text, folder)
    assert re.match(r"f\.yaml:[56]:\d+: layer 'c1': its w is", found)


def test_the_command_says_it_too(folder, capsys):
    (folder / "s.yaml").write_text(as_solver(NET.replace("kernel_size: 3", "kernel_size: 99")))
    assert main(["plan", "s.yaml"]) == 2
    assert capsys.readouterr().err.startswith("minidnn: s.yaml:5:5: layer 'c1' (Convolution) on 'data'")


@pytest.mark.parametrize("seed", range(4))
def test_files_broken_at_random(folder, seed, record_property):
    r, lacking, count = random.Random(seed), [], 0
    for k in range(12):
        text = broken(NET, r, 1 + k % 2)
        lines = refused(as_solver(text) if k % 3 else text, folder)
        count += bool(lines)
        lacking += [line for line in lines if not PLACE.match(line)]
    record_property("refusals of broken nets", count)
    assert not lacking and count >= 6


def test_a_test_net_whose_parameters_have_other_shapes_is_refused(folder):
    (folder / "other.yaml").write_text(NET.replace("2x8x8", "2x9x9"), encoding="utf-8")
    (line,) = refused(f"{as_solver(NET)}test_net: other.yaml\ntest_iter: 1\n", folder)
    assert re.match(r"other\.yaml:5:3: layer 'ip': its w is .* in phase TEST, but .* in phase TRAIN$", line), line
