"""Solvers of several ranks write the files that one writes."""

from __future__ import annotations

import math
import pickle
import signal
import threading

import pytest

from minidnn.errors import InvalidInput
from minidnn.ranks.threads import Group
from minidnn.training import alike
from minidnn.training.divergence import Diverged
from minidnn.training.events import Step
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
test_iter: 3
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

    together(one, ranks)
    return found


def together(one, ranks):
    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def told(event):
    """What an event says of the whole iteration; a step's outputs are those of its last micro-batch."""
    outputs = getattr(event, "outputs", None)
    return type(event).__name__, getattr(event, "loss", None), None if isinstance(event, Step) else outputs


def files(case, name):
    return {path.name.removeprefix(name): path.read_bytes() for path in sorted(case.glob(f"{name}_iter_*"))}


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("ranks, each", [(2, 2), (4, 1)])
def test_the_files_are_those_of_one_rank(case, device, ranks, each):
    alone = run("alone", 1, 4, device)
    together = run("together", ranks, each, device)
    assert files(case, "together") == files(case, "alone") and len(files(case, "alone")) == 2
    assert {kind for kind, _, _ in alone[0]} >= {"Step", "Tested", "Saved"}
    assert all(one == alone[0] for one in together)


def test_a_run_goes_on_with_other_ranks(case):
    run("whole", 1, 4, "cpu")
    run("begun", 4, 1, "cpu", max_iter=3)
    run("begun", 2, 2, "cpu", resume="begun_iter_3.safetensors")
    assert files(case, "begun") == files(case, "whole")


def test_ranks_share_a_test_and_have_its_counts(case):
    """Three batches among four ranks: one of them has none."""

    def tested(solver):
        found = solver.test(confusion=True)
        return found.outputs, found.images, found.confusion.counts.tolist()

    with Solver("solver.yaml", device="reference", snapshot_prefix="x") as solver:
        alone = tested(solver)
    group, found = Group(4), [None] * 4

    def one(rank):
        with Solver("solver.yaml", device="reference", snapshot_prefix="x", engine=group.engine(rank)) as solver:
            found[rank] = tested(solver)

    together(one, 4)
    assert found == [alone] * 4


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_one_rank_is_one_to_all(case, number):
    """Rank 1 hears it after its second step. All ranks then end, or take a snapshot, after the same step."""
    group, found = Group(2), [[], []]

    def one(rank):
        with Solver("solver.yaml", device="reference", snapshot_prefix="x", engine=group.engine(rank), snapshot=0,
                    test_interval=0) as solver:  # fmt: skip
            for event in solver.run():
                found[rank].append((type(event).__name__, event.iteration))
                if rank == 1 and found[rank][-1] == ("Step", 1):
                    solver._interrupt._hear(number if number == signal.SIGTERM else None)

    together(one, 2)
    assert found[0] == found[1]
    ends = found[0][-1][1] if number == signal.SIGTERM else 6
    assert ("Saved", 2 if number == signal.SIGTERM else 3) in found[0] and found[0][-1] == ("Ended", ends)
    assert ends == (2 if number == signal.SIGTERM else 6)


def test_a_loss_that_is_not_finite_ends_all_ranks_with_one_message(case):
    """A rate so large that the scores overflow."""
    group, found = Group(2), [None, None]

    def one(rank):
        with (
            Solver("solver.yaml", device="reference", snapshot_prefix="x", engine=group.engine(rank), base_lr=1e30,
                   test_interval=0, snapshot=0) as solver,
            pytest.raises(Diverged) as error,
        ):  # fmt: skip
            solver.solve()
        found[rank] = str(error.value)

    together(one, 2)
    assert found[0] == found[1] and ": rank 0 has it; a run of one rank" in found[0]
    sent = Diverged(3, math.inf, "ip", "why")
    assert str(pickle.loads(pickle.dumps(sent))) == str(sent)


@pytest.mark.parametrize(
    "other, what",
    [
        ({"base_lr": 0.06}, "the solver's fields: it has base_lr: 0.06 where rank 0 has 0.05; all ranks need"),
        ({"momentum": 0.8, "max_iter": 9}, "the solver's fields: it has max_iter: 9 where rank 0 has 6, and 1 more"),
        (
            {"solver": "patient.yaml"},
            "the solver's fields: it has minidnn.keep_best: 'accuracy' where rank 0 has nothing",
        ),
        ({"batch": 4}, "the net: it has layer[data].data_param.batch_size: 4 where rank 0 has 5; all ranks need"),
        ({"solver": "wide.yaml"}, "the net: it has layer[conv1].convolution_param.num_output: 41 where rank 0 has 40"),
        ({"solver": "short.yaml"}, "the net: it has layer[drop].name: nothing where rank 0 has 'drop', and "),
        ({"policy": "vdnn_all:m"}, "the plan: it has policy: 'vdnn_all:m' where rank 0 has 'liveness:m'; all ranks"),
        ({"budget": "4MiB"}, "the plan: it has budget: 4194304 where rank 0 has nothing"),
        ({"format": "bfloat16"}, "the plan: it has format: 'bfloat16' where rank 0 has 'float32'"),
        ({"state": "all"}, "the plan: it has state: 'all' where rank 0 has 'device'"),
        ({"costs": "measured"}, "the plan: it has measured: true where rank 0 has false"),
        ({"device": "cpu"}, "the device: it has device: 'cpu' where rank 0 has 'reference'"),
        ({"solver": "few.yaml"}, "the net: it has layer[data].data_param.source: 'synthetic:3x12x12:classes=10:count"),
        (
            {"lr_policy": "multistep", "gamma": 0.1, "stepvalue": [2, 5]},
            "the solver's fields: it has lr_policy: 'multi",
        ),
        ({"stepvalue": [2, 5]}, "the solver's fields: it has stepvalue: [2, 5] where rank 0 has []"),
    ],
)
def test_ranks_that_differ_are_refused_before_the_first_step(case, other, what):
    """The words name the first field that differs, with both values, on each of them."""
    best = "test_interval: 3\nminidnn: {keep_best: accuracy, patience: 3}"
    (case / "patient.yaml").write_text(SOLVER.replace("test_interval: 3", best))
    drop = NET.index("- {name: drop"), NET.index("- {name: ip")
    nets = {
        "wide": NET.replace("num_output: 40", "num_output: 41"), "short": NET[: drop[0]] + NET[drop[1] :],
        "few": NET.replace("count=100", "count=90"),
    }  # fmt: skip
    for name, net in nets.items():
        (case / f"{name}_net.yaml").write_text(net)
        (case / f"{name}.yaml").write_text(SOLVER.replace("net.yaml", f"{name}_net.yaml"))
    group, found = Group(2), [None, None]

    def one(rank):
        options = {"device": "reference", "policy": "liveness:m"} | (other if rank else {})
        file = options.pop("solver", "solver.yaml")
        with pytest.raises(InvalidInput) as error:
            Solver(file, snapshot_prefix="x", engine=group.engine(rank), **options)
        found[rank] = str(error.value)

    together(one, 2)
    assert found[0] == found[1] and found[0].startswith(f"rank 1 differs from rank 0 in {what}")


def test_versions_and_numbers_of_samples_that_differ_are_named():
    group, found = Group(3), [None] * 3
    parts = [{"minidnn's version": {"version": v}, "the data": {"samples": n}} for v, n in ((1, 5), (1, 5), (1, 4))]

    def one(rank):
        with pytest.raises(InvalidInput) as error:
            alike.compare(group.engine(rank), parts[rank])
        found[rank] = str(error.value)

    together(one, 3)
    assert len(set(found)) == 1
    assert found[0].startswith("rank 2 differs from rank 0 in the data: it has samples: 4 where rank 0 has 5; all")
    parts[1]["minidnn's version"] = {"version": 2}
    together(one, 3)
    assert found[0].startswith("rank 1 differs from rank 0 in minidnn's version: it has version: 2 where rank 0 has 1")
