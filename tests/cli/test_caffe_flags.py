"""Caffe's own command lines: each is answered by the command to run here."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from minidnn.cli.main import main

LINES = {
    "train --solver=s.prototxt": "minidnn train s.prototxt",
    "train -solver s.prototxt -gpu 0": "minidnn train s.prototxt --device cuda",
    "train --solver s.prototxt --gpu 2 --json": "minidnn train s.prototxt --device cuda:2 --json",
    "train --solver=s.prototxt --gpu 0,1,2": "mpiexec -n 3 minidnn train s.prototxt --device cuda",
    "train --solver=s.prototxt --gpu=all": "mpiexec -n N minidnn train s.prototxt --device cuda",
    "train -solver=s.prototxt -snapshot x.solverstate": "minidnn train s.prototxt --resume x.solverstate",
    "train s.prototxt --snapshot x.solverstate": "minidnn train s.prototxt --resume x.solverstate",
    "train -solver s.prototxt -weights a.caffemodel": "minidnn train s.prototxt --weights a.caffemodel",
    "train --solver s.prototxt --weights a.caffemodel": "minidnn train s.prototxt --weights a.caffemodel",
    "train --solver s --level 1 --stage a,b": "minidnn train s --set train_state.level=1 --set 'train_state.stage=[a,b",
    "train --solver s --sighup_effect=none --sigint_effect stop": "minidnn train s; Ctrl-C and SIGTERM end a run",
    "train --solver s --iterations 50": "minidnn train s --max-iter 50",
    "train s.prototxt --phase TEST": "minidnn train s.prototxt; a run trains",
    "test -model m -weights w -gpu 0 -iterations 50": "minidnn test m --weights w --device cuda --iterations 50",
    "test --model=m --weights=w --gpu all": "minidnn test m --weights=w --device cuda",
    "test m --stage a": "minidnn test m; the net's file sets level and stages",
    "time --model=m --gpu 1 --iterations 5": "minidnn time m --device cuda:1 --iterations 5",
    "time m --weights w --phase TRAIN": "minidnn time m; seconds do not depend on weights; time runs a training step",
    "time -model m -gpu titan_x": "minidnn time m --gpu titan_x",
    "plan m --gpu 0": "minidnn plan m --device cuda",
    "train --solver=s --logtostderr=1 -v 2 -alsologtostderr --json": "minidnn train s --json; log lines go to standard",
    "device_query": "minidnn devices",
    "device_query --gpu 0": "minidnn devices; all devices are listed",
}


@pytest.mark.parametrize("line", LINES)
def test_the_command_is_named(line, capsys):
    assert main(line.split()) == 2
    assert f"; the command here is: {LINES[line]}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("train --solver", "there is no option '--solver'"),
        ("train s.prototxt --gpu titan_x", "there is no option '--gpu'"),
        ("plan lenet --gpu nothing", "no GPU profile is called 'nothing'"),
        ("time nothing --gpu titan_x --iterations 2", "there is no file or model nothing"),
    ],
)
def test_what_is_ours_stays_ours(line, told, capsys):
    with pytest.raises(SystemExit) if "there is no option" in told else nullcontext():
        assert main(line.split()) == 2
    message = capsys.readouterr().err
    assert told in message and "Caffe" not in message
