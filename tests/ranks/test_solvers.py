"""Solvers of several ranks write the files that one writes."""

from __future__ import annotations

import threading

import pytest

from minidnn.ranks.threads import Group
from minidnn.training.solver import Solver

NET = """
name: small
layer:
- {name: data, type: Data, top: [data, label],
   data_param: {source: "synthetic:3x12x12:classes=10:count=100", batch_size: 5},
   transform_param: {crop_size: 10, mirror: true}}
- {name: conv1, type: Convolution, bottom: data, top: conv1,
   convolution_param: {num_output: 40, kernel_size: 3, weight_filler: {type: msra}}}
- {name: norm1, type: BatchNorm, bottom: conv1, top: norm1}
- {name: scale1, type: Scale, bottom: norm1, top: norm1, scale_param: {bias_term: true}}
- {name: relu1, type: ReLU, bottom: norm1, top: norm1}
- {name: drop, type: Dropout, bottom: norm1, top: norm1}
- {name: ip, type: InnerProduct, bottom: norm1, top: ip,
   inner_product_param: {num_output: 10, weight_filler: {type: xavier}}}
- {name: accuracy, type: Accuracy, bottom: [ip, label], top: accuracy, include: {phase: TEST}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
"""
SOLVER = """
net: net.yaml
base_lr: 0.05
lr_policy: fixed
momentum: 0.9
weight_decay: 0.001
random_seed: 7
max_iter: 6
snapshot: 3
test_iter: 2
test_interval: 3
"""


@pytest.fixture
def case(tmp_path, monkeypatch):
    (tmp_path / "net.yaml").write_text(NET)
    (tmp_path / "solver.yaml").write_text(SOLVER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(name, ranks, each, device, **options):
    """Train, on so many ranks; what each one tells."""
    options = dict(iter_size=each, device=device, snapshot_prefix=name) | options
    if ranks == 1:
        with Solver("solver.yaml", **options) as solver:
            return [[told(event) for event in solver.run()]]
    group, found = Group(ranks), [None] * ranks

    def one(rank):
        engine = group.engine(rank)
        try:
            with Solver("solver.yaml", engine=engine, **options) as solver:
                found[rank] = [told(event) for event in solver.run()]
        finally:
            if found[rank] is None:
                engine.close()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def told(event):
    return type(event).__name__, getattr(event, "loss", None), getattr(event, "outputs", None)


def files(case, name):
    return {path.name.removeprefix(name): path.read_bytes() for path in sorted(case.glob(f"{name}_iter_*"))}


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("ranks, each", [(2, 2), (4, 1)])
def test_the_files_are_those_of_one_rank(case, device, ranks, each):
    alone = run("alone", 1, 4, device)
    together = run("together", ranks, each, device)
    assert files(case, "together") == files(case, "alone") and len(files(case, "alone")) == 2
    losses = [[loss for kind, loss, _ in one if kind == "Step"] for one in (*alone, *together)]
    assert losses[0] and all(one == losses[0] for one in losses)


def test_a_run_goes_on_with_other_ranks(case):
    run("whole", 1, 4, "cpu")
    run("begun", 4, 1, "cpu", max_iter=3)
    run("begun", 2, 2, "cpu", resume="begun_iter_3.safetensors")
    assert files(case, "begun") == files(case, "whole")
