"""This machine's memory: all is counted, a limit is kept, and neither start, save nor resume copies all weights."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest

import minidnn
from minidnn import L
from minidnn.cli.main import main
from minidnn.data import parse
from minidnn.jobs import ram
from minidnn.layers import rows
from minidnn.memory.budget import RamError
from minidnn.memory.execution import host
from minidnn.training.solver import Solver

WIDE = """
name: wide
layer:
- {name: data, type: Data, top: [data, label], data_param: {source: "synthetic:1x32x32", batch_size: 2}}
- name: ip1
  type: InnerProduct
  bottom: data
  top: ip1
  inner_product_param: {num_output: 1024, weight_filler: {type: xavier}}
- name: ip2
  type: InnerProduct
  bottom: ip1
  top: ip2
  inner_product_param: {num_output: 10, weight_filler: {type: xavier}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip2, label], top: loss}
"""
SOLVER = """
net: wide.yaml
base_lr: 0.01
lr_policy: fixed
momentum: 0.9
max_iter: 2
random_seed: 3
snapshot_prefix: out/wide
"""


@pytest.fixture
def wide(tmp_path, monkeypatch):
    """A net whose weights and momenta are nearly all of its memory: 2 x 4 MiB."""
    (tmp_path / "wide.yaml").write_text(WIDE)
    (tmp_path / "solver.yaml").write_text(SOLVER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rows, "PIECE", 64 * 1024)


def grown(call):
    """(the result, the most bytes that Python and NumPy held in the call beyond those before it)."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        result = call()
        return result, tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("state", ["device", "all"])
def test_no_phase_holds_a_copy_of_the_weights(wide, state):
    def opened(**more):
        return Solver("solver.yaml", device="reference", state=state, **more)

    opened().close()  # what the first one imports is not counted
    solver, start = grown(opened)
    weights = 4 * 1024 * 1024
    assert start - solver.arrangement.arena - solver.arrangement.off_device < weights / 2
    with solver:
        solver.step(1)
        saved, save = grown(solver.save)
        assert save < weights / 4
        _, close = grown(solver.close)
        assert close < weights / 4
    other, resume = grown(lambda: opened(resume=saved.path))
    with other:
        assert resume - other.arrangement.arena - other.arrangement.off_device < weights / 2


def test_what_a_run_takes_is_the_sum_of_its_parts(wide):
    with Solver("solver.yaml", device="reference") as solver:
        found, plan = solver.session.ram, solver.arrangement
    assert found.plan == plan.arena + plan.off_device and found.batches == 2 * 2 * 32 * 32 * 4
    assert found.total == found.plan + found.outside == found.row()["ram_bytes"]
    assert 0 < found.process <= host.resident_memory() + plan.arena


def test_a_limit_refuses_before_anything_is_allocated(wide, monkeypatch):
    with Solver("solver.yaml", device="reference") as solver:
        needed = solver.session.ram.total
    with Solver("solver.yaml", device="reference", ram=2 * needed):
        pass
    monkeypatch.setattr("minidnn.training.session.Machine", None)
    with pytest.raises(RamError, match=r"8\.00 MiB are allowed: .* outside the plan .*; a smaller batch") as refused:
        Solver("solver.yaml", device="reference", ram="8MiB")
    assert refused.value.needed > 8 * 2**20
    monkeypatch.setattr(ram, "physical_memory", lambda: 2**23)
    with pytest.raises(RamError, match=r"liveness would take .*; this machine, or its container, has 8\.00 MiB"):
        Solver("solver.yaml", device="reference", policy="liveness")
    with pytest.raises(RamError, match=r"best would take about .* RAM, and 8\.00 MiB are allowed"):
        Solver("solver.yaml", device="reference")


@pytest.fixture
def settled(monkeypatch):
    """A process of 64 MiB, whatever other tests have left in this one."""
    monkeypatch.setattr(ram, "resident_memory", lambda: 64 * 2**20)


class Deep(minidnn.Net):
    """Many maps of 128 KiB."""

    def define(self):
        x, label = L.Data(source="digits", batch_size=64, scale=0.0625)
        for _ in range(12):
            x = L.Convolution(x, num_output=8, kernel_size=3, pad=1, weight_filler={"type": "msra"})
            x = L.TanH(x)
        x = L.InnerProduct(x, num_output=10, weight_filler={"type": "xavier"})
        L.SoftmaxWithLoss(x, label)


def deep(**more):
    given = dict(base_lr=0.01, momentum=0.9, max_iter=2, seed=3, device="reference", snapshot_prefix="")
    return Solver(Deep(), **given | more)


def trained(solver):
    with solver:
        solver.step(2)
        assert solver.session.ram.total >= solver.arrangement.arena + solver.arrangement.off_device
        return solver.session.ram, solver.arrangement, {k: v.tobytes() for k, v in solver.values().items()}


@pytest.mark.slow
@pytest.mark.parametrize("part", [0.7, 0.4])
def test_a_limit_is_planned_for(settled, part):
    """The arena and the host's part share what the rest of the process leaves, and nothing is copied within it."""
    whole, plain, values = trained(deep(policy="liveness:p"))
    limit = whole.outside + int(part * whole.plan)
    found, a, same = trained(deep(ram=limit))
    assert a.policy == "best" and found.total <= limit and same == values
    assert a.off_device == plain.off_device and a.arena < plain.arena


@pytest.mark.extended
def test_what_does_not_fit_the_machine_is_planned_so_that_it_does(settled, monkeypatch):
    whole, plain, values = trained(deep())
    assert plain.policy == "liveness"
    monkeypatch.setattr(ram, "physical_memory", lambda: whole.total - whole.plan // 2)
    assert any("planned with best to fit" in note for note in deep().notes)
    found, a, same = trained(deep())
    assert a.policy == "best" and found.total <= whole.total - whole.plan // 2 and same == values
    with pytest.raises(RamError, match="liveness would take"):
        deep(policy="liveness")


def test_a_policy_that_copies_to_the_host_is_held_to_both_parts_together(settled):
    whole, a, _ = trained(deep(policy="vdnn_all:m"))
    assert a.off_device > a.arena / 4
    again, same, _ = trained(deep(policy="vdnn_all:m", ram=whole.total))
    assert (again.total, same.arena) == (whole.total, a.arena)
    with pytest.raises(RamError, match=r"vdnn_all:m would take about .* of RAM"):
        deep(policy="vdnn_all:m", ram=whole.total - 2**20)


@pytest.mark.extended
def test_a_disk_is_used_where_that_is_quicker(settled, tmp_path):
    whole, _, values = trained(deep(policy="liveness:p"))
    limit = whole.total - whole.plan // 2
    for ring, used in (("256KiB", True), ("2MiB", False)):  # a ring takes bytes of the same memory
        found, a, same = trained(deep(ram=limit, disk=tmp_path, host_ring=ring))
        assert bool(a.on_disk) is used and found.total <= limit and same == values


def test_plan_says_it_and_refuses(wide, capsys):
    assert main(["plan", "solver.yaml", "--device", "reference"]) == 0
    assert "a run takes RAM of about" in capsys.readouterr().out
    assert main(["plan", "solver.yaml", "--device", "reference", "--ram", "8MiB", "--json"]) == 2
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["ram_bytes"] > 8 * 2**20 and "8.00 MiB are allowed" in row["why"] and not row["fits"]
    assert row["smallest_budget_bytes"] is row["smallest_host_budget_bytes"] is None
    assert main(["train", "solver.yaml", "--device", "reference", "--ram", "8MiB"]) == 2
    assert "8.00 MiB are allowed" in capsys.readouterr().err


def test_a_device_with_memory_of_its_own_takes_none_of_this_for_its_arena(wide, capsys):
    def planned(*more):
        main(["plan", "solver.yaml", "--ram", "1TiB", "--policy", "baseline", "--json", *more])
        (row,) = json.loads(capsys.readouterr().out)["rows"]
        return row["ram_plan_bytes"] - row["host_bytes"] - row["peak_bytes"], row["peak_bytes"]

    assert planned("--device", "reference")[0] == 0
    beyond, peak = planned("--gpu", "titan_x")
    assert beyond == -peak


def test_of_an_npz_only_the_samples_are_read_and_counted(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    images, labels = np.zeros((6, 1, 8, 8), np.float32), np.zeros(6, np.int64)
    np.savez(path, x=images, y=labels, never=np.zeros(2**22, np.float32))
    source = parse(str(path))
    assert source.resident() == images.nbytes + labels.nbytes
    dataset, most = grown(source.open)
    assert len(dataset) == 6 and most < 2**20


def test_of_mnist_the_images_are_counted(tmp_path):
    source = parse(f"mnist:{tmp_path}")
    assert source.resident() == 0, "no file yet"
    header = bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (5, 7, 6))
    (tmp_path / "train-images-idx3-ubyte").write_bytes(header + bytes(5 * 7 * 6))
    assert source.resident() == 5 * 7 * 6 and source.sample_shape() == (1, 7, 6)
