"""Measuring: every (op, algorithm) once, what is known is not measured again, the result is kept."""

import numpy as np
import pytest

from minidnn import costs
from minidnn.backends import open_device
from minidnn.layers.convolution import ConvolutionAttrs
from minidnn.program import Op, Phase, Program, Tensor
from minidnn.study import measure as study


def program(channels=4):
    x, y = Tensor("x", (2, channels, 8, 8)), Tensor("y", (2, 4, 8, 8))
    w = Tensor("w", (4, channels, 3, 3))
    attrs = ConvolutionAttrs(kernel=(3, 3), stride=(1, 1), pad=(1, 1), dilation=(1, 1), group=1)
    passes = {"forward": ((x, w), y), "backward_filter": ((x, y), w), "backward_data": ((w, y), x)}
    ops = [
        Op(f"conv.{verb}", f"convolution.{verb}", "conv", Phase.FORWARD, reads, (write,), attrs, (), 100)
        for verb, (reads, write) in passes.items()
    ]
    return Program("TRAIN", tuple(ops), (x, y), (w,))


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_measures_each_algorithm_once_and_remembers(tmp_path, name):
    device = open_device(name)
    told = []
    known = costs.measurements(device, tmp_path)
    found = study.measure(device, [program(), program()], known, tell=lambda *what: told.append(what))
    ops = program().ops
    of = sum(len(device.algorithms(op)) for op in ops)
    assert [t[0] for t in told] == list(range(of)) and all(t[1] == of for t in told)
    assert found.measured and found.bandwidth_out > 1e8 and found.latency < 1e-3
    for op in ops:
        assert [c.algorithm for c in found.choices(op)] == list(device.algorithms(op))
        assert all(0 < c.seconds < 1 for c in found.choices(op))

    told.clear()
    again = costs.measurements(device, tmp_path)
    study.measure(device, [program()], again, tell=lambda *what: told.append(what))
    assert not told and again.seconds == known.seconds
    study.measure(device, [program(channels=2)], again, tell=lambda *what: told.append(what))
    assert len(told) == sum(len(device.algorithms(op)) for op in program(2).ops)
    told.clear()
    study.measure(device, [program()], again, again=True, tell=lambda *what: told.append(what))
    assert len(told) == of


def test_copies_move_at_a_plausible_rate():
    link = study.link(open_device("cpu"), 2**20, 3)
    assert all(1e8 < rate < 1e12 for rate in (link.out, link.back, link.out_beside, link.back_beside))
    assert 0 < link.latency < 1e-2


def test_large_tensors_repeat_ordinary_numbers(monkeypatch):
    monkeypatch.setattr(study, "REPEATED", 7)
    op = next(op for op in program().ops if op.kind == "convolution.forward")
    random = np.random.default_rng(0)
    for t in op.reads:
        values = study._filled(t, op, random).view(t.dtype)
        assert values.size == t.size and (values != 0).all() and np.isfinite(values).all()
        assert np.array_equal(values, np.resize(values[:7], values.size))
    assert not study._filled(op.writes[0], op, random).any()
