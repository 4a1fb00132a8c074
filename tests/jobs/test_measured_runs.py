"""A comparison that runs on the host plans by measured costs: measured once, kept, told. Nothing else does unasked."""

from __future__ import annotations

import json

import pytest

import minidnn
from minidnn.cli.main import main
from minidnn.costs import NotKept, cache, estimate, measurements
from minidnn.jobs import profile
from minidnn.jobs.job import read
from minidnn.measuring import bench
from minidnn.measuring import ops as study
from tests.support.cuda.fake import fake_device

NET = """
name: small
layer:
- {name: data, type: DummyData, top: data, dummy_data_param: {shape: {dim: [4, 3, 8, 8]}}}
- {name: label, type: DummyData, top: label, dummy_data_param: {shape: {dim: [4]}}}
- {name: conv, type: Convolution, bottom: data, top: conv,
   convolution_param: {num_output: 4, kernel_size: 3, weight_filler: {type: msra}}}
- {name: relu, type: ReLU, bottom: conv, top: relu}
- {name: ip, type: InnerProduct, bottom: relu, top: ip,
   inner_product_param: {num_output: 5, weight_filler: {type: xavier}}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
"""
ARGV = ["compare", "small.yaml", "--device", "reference", "--policies", "liveness:m,vdnn_all:m", "--steps", "2"]


@pytest.fixture
def small(tmp_path, own_cache, monkeypatch):
    """The net, with a cache of its own, and measurements that take no time."""
    (tmp_path / "small.yaml").write_text(NET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench, "timed", lambda *_: 1e-3)
    monkeypatch.setattr(study, "within_steps", lambda *_: {})
    monkeypatch.setattr(study, "copies_within", lambda *_: (1.0, 0.25))


def test_what_is_run_is_measured_first_once_and_told(small, capsys):
    assert main(ARGV) == 0
    out, err = capsys.readouterr()
    assert "minidnn: measured " in err and " costs of reference in " in err and "--costs estimated" in err
    assert "Planned with measured costs." in " ".join(out.split())
    assert main(ARGV) == 0
    out, err = capsys.readouterr()
    assert "measured" not in err and "Planned with measured costs." in " ".join(out.split())


def test_what_would_fit_is_asked_of_the_same_costs(small, capsys):
    assert main([*ARGV, "--budget", "1KiB"]) == 0
    *_, line = capsys.readouterr().out.splitlines()
    assert line.startswith("`minidnn plan small.yaml --budget 1KiB") and " --costs measured " in line
    assert main([*ARGV, "--budget", "1KiB", "--costs", "estimated"]) == 0
    assert " --costs estimated " in capsys.readouterr().out.splitlines()[-1]


def test_estimates_are_taken_where_they_are_asked_for(small, capsys, monkeypatch):
    monkeypatch.setattr(profile, "profiled", None)
    assert main([*ARGV, "--costs", "estimated"]) == 0
    assert "Planned with estimated costs." in " ".join(capsys.readouterr().out.split())
    mine = estimate(profile.open_device("reference"))
    assert minidnn.compare("small.yaml", "liveness:m", steps=1, device="reference", costs=mine).rows


def test_what_cannot_be_kept_is_not_measured(small, capsys, monkeypatch):
    def never(self):
        raise NotKept("costs cannot be kept: the disk is full")

    monkeypatch.setattr(cache.Measurements, "check_writable", never)
    assert main(ARGV) == 0
    out, err = capsys.readouterr()
    assert "costs cannot be kept: the disk is full; plans are made with estimated costs" in err
    assert "Planned with estimated costs." in " ".join(out.split())
    assert main([*ARGV, "--costs", "measured"]) == 2 and "the disk is full" in capsys.readouterr().err


def test_measured_costs_are_those_of_the_cache_with_their_doubt(small):
    job = read("small.yaml", {"device": "reference"})
    found = profile.run_here(job)
    assert found.origin == "measured" and found.doubt == 0.25
    assert profile.run_here(read("small.yaml", {"device": "reference", "costs": "measured"})).origin == "measured"
    assert {c.seconds for op in job.train.ops for c in found.choices(op)} == {1e-3}
    staged = read("small.yaml", {"device": "reference", "host_ring": "1MiB"})
    assert profile.run_here(staged).staging.ring == 1 << 20


def test_what_trains_or_plans_measures_nothing(small, capsys):
    assert main(["plan", *ARGV[1:-2], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["origin"] == "estimated"
    with minidnn.Solver(minidnn.Net.from_file("small.yaml"), base_lr=0.01, max_iter=1, device="reference") as solver:
        solver.step(1)
    assert not measurements(profile.open_device("reference")).seconds


def test_a_run_measures_what_it_is_asked_for(small, capsys):
    """What is planned without a run is not measured for it."""
    net = minidnn.Net.from_file("small.yaml")
    for told in (True, False):
        with minidnn.Solver(net, base_lr=0.01, max_iter=1, device="reference", costs="measured") as solver:
            assert solver.session.costs.origin == "measured" and solver.session.costs.doubt == 0.25
            solver.step(1)
        assert ("minidnn: measured " in capsys.readouterr().err) is told, "once"


def test_a_device_with_memory_of_its_own_is_not_measured_unasked(small, monkeypatch):
    monkeypatch.setattr(profile, "profiled", None)
    job = read("small.yaml", {"device": fake_device()})
    assert profile.run_here(job).origin == "estimated"
