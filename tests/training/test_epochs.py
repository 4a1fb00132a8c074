"""Epochs beside iterations: what an epoch is, which fields count them, and what they cannot be."""

from __future__ import annotations

import pytest

from minidnn.errors import InvalidInput
from minidnn.jobs.solver_file import understand
from minidnn.nets.net import Net
from minidnn.schema import InvalidFile
from minidnn.training.epochs import in_iterations
from minidnn.training.events import Saved, Step
from minidnn.training.events import Tested as Measured
from minidnn.training.solver import Solver
from tests.support.tiny import BATCH, SAMPLES, samples, tiny

EPOCH = -(-SAMPLES // BATCH)  # 4 batches of 6 show 20 samples


def solver(**fields) -> Solver:
    return Solver(tiny(), device="reference", data=samples(), test_data=samples(), **fields)


def test_an_epoch_shows_each_sample():
    with solver(epochs=3) as one:
        assert (one.epoch, one.parameters.max_iter) == (EPOCH, 3 * EPOCH)
        assert one.solve().iteration == 12
    with solver(epochs=3, iter_size=2) as two:
        assert (two.epoch, two.parameters.max_iter) == (2, 6)


def test_tests_displays_and_snapshots_by_epoch(tmp_path):
    with solver(
        epochs=3, test_epochs=1, display_epochs=2, snapshot_epochs=2, snapshot_prefix=str(tmp_path / "run")
    ) as run:  # fmt: skip
        events = list(run.run())
        assert run.parameters.display == 2 * EPOCH
    assert [e.iteration for e in events if isinstance(e, Measured)] == [0, 4, 8, 12]
    assert [e.iteration for e in events if isinstance(e, Saved)] == [8, 12]
    assert all(e.images == SAMPLES + 4 for e in events if isinstance(e, Measured))  # four batches show all twenty


def test_solve_takes_the_number_of_epochs():
    with solver(max_iter=100) as run:
        assert run.solve(epochs=1).iteration == EPOCH
        assert run.solve(epochs=2).iteration == 2 * EPOCH
        steps = [e for e in run.run(epochs=2) if isinstance(e, Step)]
        assert not steps
        for wrong in (0, -1, 1.5, True):
            with pytest.raises(InvalidInput, match="is not a whole number of at least 1"):
                run.solve(epochs=wrong)


def test_rates_that_end_know_the_last_iteration():
    with solver(epochs=2, lr_policy="cosine") as run:
        rates = [e.rate for e in run.run() if isinstance(e, Step)]
    assert rates[0] == 0.01 and rates == sorted(rates, reverse=True) and 0 < rates[-1] < 0.001


def file(folder, text: str) -> str:
    path = folder / "solver.yaml"
    path.write_text(f"net: lenet\nbase_lr: 0.1\nlr_policy: fixed\n{text}")
    return str(path)


def test_what_counts_iterations_overrules_what_counts_epochs_and_the_other_way(tmp_path):
    counted = file(tmp_path, "max_iter: 9\ntest_iter: 2\ntest_interval: 4\ndisplay: 3")
    _, _, p = understand(counted, {"epochs": 2, "test_epochs": 1})
    assert not p.has("max_iter") and not p.has("test_interval") and p.display == 3
    q = in_iterations(p, 10)
    assert (q.max_iter, q.test_interval, q.display) == (20, 10, 3) and q.has("max_iter")
    by_epoch = file(tmp_path, "minidnn: {epochs: 2, policy: vdnn_all}")
    _, _, p = understand(by_epoch, {"max_iter": 7})
    assert (p.max_iter, p.minidnn.epochs, p.minidnn.policy) == (7, None, "vdnn_all")
    _, tests, p = understand(by_epoch, {"test_epochs": 1})
    assert (p.minidnn.epochs, p.minidnn.test_epochs) == (2, 1) and len(tests) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_iter: 9\nminidnn: {epochs: 2}", r"yaml:5:11: minidnn.epochs: expected max_iter or minidnn's epochs"),
        ("minidnn: {epochs: 0}", "minidnn.epochs: expected at least 1"),
        ("minidnn: {epochs: two}", "minidnn.epochs: expected an integer"),
        ("display: 1\nminidnn: {display_epochs: 2}", "expected display or minidnn's display_epochs; got both"),
    ],
)  # fmt: skip
def test_files_that_contradict_themselves(tmp_path, text, said):
    with pytest.raises(InvalidFile, match=said):
        understand(file(tmp_path, text))


def test_samples_without_an_end_have_no_epochs():
    net = Net.from_text(
        """
layer:
- {name: data, type: DummyData, top: [x, label], dummy_data_param: {shape: [{dim: [4, 3]}, {dim: 4}]}}
- {name: ip, type: InnerProduct, bottom: x, top: ip, inner_product_param: {num_output: 2}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
"""
    )
    with pytest.raises(InvalidInput, match=r"no end, so there are no epochs to count for epochs \(give max_iter\)"):
        Solver(net, device="reference", epochs=2)
    with Solver(net, device="reference", max_iter=2) as run:
        assert run.epoch is None


def test_too_many_epochs():
    with pytest.raises(InvalidInput, match="epochs: 2000000000 epochs of 4 iterations are more than 2147483647"):
        solver(epochs=2_000_000_000)
