"""A plan has a host budget although nobody named one: what is assumed beside a GPU, or this machine's memory."""

from __future__ import annotations

import pytest

import minidnn
from minidnn.api import header
from minidnn.cli.main import main
from minidnn.jobs import gpus
from minidnn.jobs.job import read
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.host import physical_memory

GiB = 2**30


@pytest.mark.parametrize(
    ("gpu", "bytes_"), [("k40", 64 * GiB), ("orin", 30 * GiB), (None, physical_memory()), ("RTX 3060:tf32", 64 * GiB)]
)
def test_what_is_assumed(gpu, bytes_):
    job = read("lenet", {}, 1, gpu)
    assert job.setting.host_budget == bytes_ and job.host_assumed


def test_who_names_a_host_budget_keeps_it():
    job = read("lenet", {"host_budget": "1GiB"}, 1, "k40")
    assert job.setting.host_budget == GiB and not job.host_assumed
    assert "of the host" not in header.notes(job, job.costs())


@pytest.fixture
def small_host(monkeypatch):
    monkeypatch.setattr(gpus, "HOST", 600 * 1024)


def test_a_plan_that_takes_more_of_the_host_is_refused(small_host, capsys, own_cache):
    """vdnn_all of LeNet at 64 keeps 1.09 MiB there."""
    argv = ["plan", "lenet", "--batch", "64", "--gpu", "k40", "--policy", "vdnn_all"]
    assert main(argv) == 2
    said = " ".join(capsys.readouterr().out.split())
    assert "Assumed: 600 KiB of host memory (--host-budget)." in said
    assert "vdnn_all keeps 1.09 MiB on the host, the host budget is 600 KiB" in said
    assert "--host-budget 11" in said, "the option, and the bytes that would do"
    assert main([*argv, "--host-budget", "2MiB"]) == 0
    assert "Assumed" not in capsys.readouterr().out


@pytest.mark.slow
def test_every_answer_says_which_host_budget_held(small_host, own_cache):
    net = {"net": "lenet", "batch": 64, "gpu": "k40"}
    rows = minidnn.compare(policies=["liveness", "vdnn_all"], **net)
    assert [row.fits for row in rows] == [True, False] and rows.document.host_budget_bytes == 600 * 1024
    assert rows[1].host_bytes > 600 * 1024 > rows[0].host_bytes > 0
    found = minidnn.tune(policy="vdnn_all", grid=32, samples=1000, **net)
    assert found.document.host_budget_bytes == 600 * 1024 and found.best.host_bytes <= 600 * 1024
    assert any("on the host, the host budget is 600 KiB" in row.why for row in found)
    assert minidnn.time(**net).document.host_budget_bytes == 600 * 1024
    with pytest.raises(BudgetError, match="the host budget is 600 KiB"):
        minidnn.time(policy="vdnn_all", **net)
    cards = minidnn.cards("lenet", ["k40", "orin"], batch=256)
    by = {row.gpu: row for row in cards}
    assert by["k40"].host_budget_bytes == 600 * 1024 and by["orin"].host_budget_bytes == 30 * GiB
    assert not by["k40"].fits and by["orin"].fits and by["orin"].host_bytes > 600 * 1024


@pytest.mark.slow
def test_a_frontier_has_no_plan_beyond_the_host(own_cache):
    net = {"net": "lenet", "batch": 64, "gpu": "k40", "points": 3}
    loose = minidnn.frontier(**net)
    assert loose.document.host_budget_bytes == 64 * GiB
    most = max(row.host_bytes for row in loose)
    tight = minidnn.frontier(host_budget=most - 1, **net)
    assert tight.document.host_budget_bytes == most - 1
    assert 0 < len(tight) <= len(loose) and max(row.host_bytes for row in tight) < most
