"""Layrub's figures (Jin et al., TACO 2018), as far as they are known exactly or promised.

The paper's MB are MiB, its GB are GiB.
"""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import islice

import pytest

from minidnn.costs import profile
from minidnn.jobs.outcome import nearest
from minidnn.memory.execution.simulator import simulate
from minidnn_papers import layrub_process, rows
from minidnn_papers.layrub_plans import (
    CAFFE,
    HYBRID,
    INTER,
    INTRA,
    K40,
    OWN,
    TRAINING,
    arranged,
    caffes,
    data_and_diff,
    lowered,
)
from minidnn_papers.layrub_rivals import rivals
from minidnn_papers.numbers import layrub as paper
from minidnn_papers.numbers.layrub import OTHERS, RESNETS, SECONDS

MIB = 2**20


@lru_cache
def maps(name, batch, policy):
    return data_and_diff(arranged(name, batch, policy).schedules["TRAIN"]) / MIB


@pytest.mark.parametrize(
    ("name", "batch", "within"),
    [
        ("resnet50", 32, 0.001), pytest.param("resnet101", 32, 0.002, marks=pytest.mark.slow),
        pytest.param("resnet152", 32, 0.001, marks=pytest.mark.slow), ("resnet34", 32, 0.03), ("vgg16", 32, 0.001),
        ("googlenet", 32, 0.003), ("wrn_28_10", 128, 0.001), ("caffenet", 256, 0.006), ("cifar10_quick", 5000, 0.002),
        ("lenet", 5000, 0.03),
    ],
)  # fmt: skip
def test_data_and_diff_of_caffe(name, batch, within):
    paper = {**RESNETS, **OTHERS}[name, batch][0]
    assert maps(name, batch, CAFFE) == pytest.approx(paper, rel=within)


@pytest.mark.slow
def test_the_hybrid_takes_the_same_for_any_depth():
    fifty = maps("resnet50", 32, HYBRID)
    assert fifty == pytest.approx(759.5, abs=0.01), "the paper's, to the digit"
    assert maps("resnet50", 32, OWN) < 0.6 * fifty
    for depth in (101, 1001):
        assert maps(f"resnet{depth}", 32, HYBRID) == pytest.approx(fifty, rel=0.01)
    assert maps("resnet101", 32, INTER) == pytest.approx(maps("resnet50", 32, INTER), rel=0.01)
    assert maps("resnet34", 32, HYBRID) < fifty
    saved = 1 - maps("resnet1001", 32, HYBRID) / maps("resnet1001", 32, CAFFE)
    assert round(saved, 3) == 0.989, "what the paper saves"


def test_each_step_of_layrub_takes_less_where_the_paper_says_so():
    for name, batch in (("resnet50", 32), ("vgg16", 32), ("cifar10_quick", 5000)):
        caffe, intra, inter, hybrid = (maps(name, batch, policy) for policy in (CAFFE, INTRA, INTER, HYBRID))
        assert hybrid <= min(intra, inter) < max(intra, inter) < caffe
    for name, batch in (("lenet", 5000), ("cifar10_quick", 5000), ("caffenet", 256), ("vgg16", 32), ("googlenet", 32)):
        assert maps(name, batch, INTRA) == pytest.approx(OTHERS[name, batch][1], rel=0.08)


@pytest.mark.slow
def test_resnet_1517_trains_at_batch_32_within_12_gb():
    programs = lowered("resnet1517", 32, "layrub2018", TRAINING)
    one = nearest(programs, HYBRID, caffes(profile("k40")), 12 * 10**9)
    arrangement, refused = one.arrangement, one.refused
    assert refused is None and arrangement.arena <= 11239 * MIB, "the paper's"
    schedule = arrangement.schedules["TRAIN"]
    assert sum(op.kind == "convolution.forward" for op in schedule.program.ops) == 1520
    assert data_and_diff(schedule) / MIB == pytest.approx(maps("resnet50", 32, HYBRID), rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "batch"), [("caffenet", 2100), ("vgg16", 240), ("resnet34", 416), ("resnet50", 272),
                                             ("resnet56", 5000), ("wrn_28_10", 1376)])  # fmt: skip
def test_the_papers_largest_batches_fit(name, batch):
    programs = lowered(name, batch, "layrub2018", TRAINING)
    assert nearest(programs, HYBRID, caffes(profile("k40")), K40).fits


@pytest.mark.slow
def test_times_on_the_k40():
    costs = caffes(profile("k40"))

    def seconds(name, batch, policy):
        return simulate(arranged(name, batch, policy).schedules["TRAIN"], costs).seconds

    over = {}
    for (name, batch), (caffe, layrub) in SECONDS.items():
        base = seconds(name, batch, CAFFE)
        over[name] = seconds(name, batch, OWN) / base
        assert over[name] == pytest.approx(layrub / caffe, rel=0.15)
        assert seconds(name, batch, INTRA) <= 1.03 * base
    assert max(over, key=over.__getitem__) == "resnet50"


@pytest.mark.slow
def test_every_row_says_why_it_differs(monkeypatch):
    monkeypatch.setattr(layrub_process, "DRAWN", ("resnet34", "resnet50"))  # ResNet-1001 takes some seconds to plan
    monkeypatch.setattr(layrub_process, "process", cache(layrub_process.process.__wrapped__))
    found = rows("layrub", wanted=["Figure 9", "Table 5"])
    some = [next(found) for _ in range(10)]
    some += islice(rows("layrub", wanted=["Figure 12"]), 1)
    assert {r.figure for r in some} == {"Figure 9", "Figure 12", "Table 5"}
    assert all(r.said and r.ours for r in some)


def test_rivals_have_both_sides(monkeypatch):
    monkeypatch.setattr(paper, "TENSORFLOW", {("caffenet", 256): 4260})
    monkeypatch.setattr(paper, "MEMONGER", {("resnet34", 32): 1425})
    monkeypatch.setattr(paper, "MXNET", {34: 1431})
    monkeypatch.setattr(paper, "VDNN", {("alexnet", 128): (0.40, 0.75)})
    found = list(rivals(lambda what: None))
    assert [(r.figure, r.case) for r in found] == [
        ("Figure 12", "CaffeNet (256), TensorFlow"), ("Figure 12", "ResNet-34 (32), MXNet"),
        ("Table 6", "ResNet-34 (32), MXNet"), ("Figure 13", "AlexNet (128), vDNN (m)"),
        ("Figure 13", "AlexNet (128), vDNN (p)"),
    ]  # fmt: skip
    assert all(r.paper and r.ours for r in found)
    layrub = arranged("resnet34", 32, HYBRID, TRAINING).arena / MIB
    assert found[1].ours == found[2].ours != layrub, "sqrt_n's, as memonger is"
