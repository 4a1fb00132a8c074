"""The solver: rates by hand, training that learns and repeats, snapshots under any policy, what stops a run."""

import json
import math
import re
import subprocess
import sys
import threading

import numpy as np
import pytest
from safetensors.numpy import save_file

import minidnn
from minidnn.cli.main import main
from minidnn.data import DataError
from minidnn.errors import InvalidInput
from minidnn.jobs.solver_file import understand
from minidnn.memory.policies import NoSuchPolicy
from minidnn.optimizers.rates import RATES, learning_rate
from minidnn.schema import InvalidFile, SolverParameter
from minidnn.sizes import text
from minidnn.training import snapshot
from minidnn.training.divergence import Diverged
from minidnn.training.events import Began, Ended, Saved, Step
from minidnn.training.events import Tested as Measured
from minidnn.training.feeds import Feeds
from minidnn.training.parameters import WeightsError
from minidnn.training.snapshot import SaveError
from minidnn.training.solver import Solver
from tests.support.paths import MODELS

MODEL = """
name: small
layer:
- {name: data, type: Data, top: [data, label], include: {phase: TRAIN}, transform_param: {scale: 0.0625},
   data_param: {source: digits, batch_size: 32}}
- {name: data, type: Data, top: [data, label], include: {phase: TEST}, transform_param: {scale: 0.0625},
   data_param: {source: digits, batch_size: 60}}
- {name: conv1, type: Convolution, bottom: data, top: conv1, param: [{lr_mult: 1}, {lr_mult: 2, decay_mult: 0}],
   convolution_param: {num_output: 8, kernel_size: 3, weight_filler: {type: xavier}}}
- {name: relu1, type: ReLU, bottom: conv1, top: conv1}
- {name: pool1, type: Pooling, bottom: conv1, top: pool1, pooling_param: {kernel_size: 2, stride: 2}}
- {name: drop, type: Dropout, bottom: pool1, top: pool1, dropout_param: {dropout_ratio: 0.2}}
- {name: ip1, type: InnerProduct, bottom: pool1, top: ip1,
   inner_product_param: {num_output: 10, weight_filler: {type: xavier}}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip1, label], top: loss}
- {name: accuracy, type: Accuracy, bottom: [ip1, label], top: accuracy, include: {phase: TEST}}
"""
SOLVER = """
net: model.yaml
base_lr: 0.05
momentum: 0.9
weight_decay: 0.0005
lr_policy: fixed
max_iter: 12
test_iter: 6
test_interval: 6
display: 4
average_loss: 3
random_seed: 5
snapshot: 5
snapshot_prefix: {prefix}
"""


@pytest.fixture
def case(tmp_path, monkeypatch):
    """A folder with a model and a solver file, and in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.yaml").write_text(MODEL)
    (tmp_path / "solver.yaml").write_text(SOLVER.format(prefix=tmp_path / "out" / "small"))
    return tmp_path


def trained(case, steps, **settings):
    """All values after so many steps."""
    with Solver(case / "solver.yaml", device="reference", **settings) as solver:
        solver.step(steps)
        return solver.values()


def same(a, b):
    return a.keys() == b.keys() and all(a[name].tobytes() == b[name].tobytes() for name in a)


class TestRates:
    @pytest.mark.parametrize(
        ("fields", "iteration", "rate"),
        [
            ({"lr_policy": "fixed"}, 1000, 0.1),
            ({"lr_policy": "step", "gamma": 0.5, "stepsize": 10}, 9, 0.1),
            ({"lr_policy": "step", "gamma": 0.5, "stepsize": 10}, 20, 0.025),
            ({"lr_policy": "multistep", "gamma": 0.1, "stepvalue": [5, 8]}, 4, 0.1),
            ({"lr_policy": "multistep", "gamma": 0.1, "stepvalue": [5, 8]}, 5, 0.01),
            ({"lr_policy": "multistep", "gamma": 0.1, "stepvalue": [5, 8]}, 100, 0.001),
            ({"lr_policy": "exp", "gamma": 0.9}, 3, 0.1 * 0.9**3),
            ({"lr_policy": "inv", "gamma": 0.0001, "power": 0.75}, 500, 0.1 * 1.05**-0.75),
            ({"lr_policy": "poly", "power": 2.0, "max_iter": 100}, 50, 0.025),
            ({"lr_policy": "sigmoid", "gamma": -0.1, "stepsize": 50}, 50, 0.05),
            ({"lr_policy": "sigmoid", "gamma": -0.1, "stepsize": 50}, 60, 0.1 / (1 + math.e)),
            ({"lr_policy": "sigmoid", "gamma": -1e5, "stepsize": 50}, 60, 0.0),
            ({"lr_policy": "cosine", "max_iter": 100}, 0, 0.1),
            ({"lr_policy": "cosine", "max_iter": 100}, 50, 0.05),
            ({"lr_policy": "cosine", "max_iter": 110, "rampup_interval": 10}, 60, 0.05),
            ({"lr_policy": "cosine", "max_iter": 100}, 120, 0.0),
            ({"lr_policy": "fixed", "rampup_interval": 10}, 0, 0.0),
            ({"lr_policy": "fixed", "rampup_interval": 10, "rampup_lr": 0.02}, 0, 0.02),
            ({"lr_policy": "fixed", "rampup_interval": 10, "rampup_lr": 0.02}, 5, 0.06),
            ({"lr_policy": "step", "gamma": 0.5, "stepsize": 10, "rampup_interval": 10}, 9, 0.09),
            ({"lr_policy": "step", "gamma": 0.5, "stepsize": 10, "rampup_interval": 10}, 10, 0.05),
        ],
    )
    def test_as_caffe(self, fields, iteration, rate):
        assert learning_rate(SolverParameter(base_lr=0.1, **fields), iteration) == pytest.approx(rate, rel=1e-12)

    @pytest.mark.parametrize(
        ("fields", "iteration"),
        [
            ({"lr_policy": "fixed", "base_lr": 1e39}, 0),
            ({"lr_policy": "exp", "gamma": 1e200}, 2),
            ({"lr_policy": "inv", "gamma": -1.0, "power": 0.5}, 1),
            ({"lr_policy": "inv", "gamma": -1.0, "power": 0.5}, 2),
            ({"lr_policy": "poly", "power": 0.5, "max_iter": 10}, 11),
        ],
    )
    def test_no_number_is_said_with_the_iteration(self, fields, iteration):
        with pytest.raises(InvalidInput, match=f"at iteration {iteration} {fields['lr_policy']} with base_lr"):
            learning_rate(SolverParameter(**{"base_lr": 0.1, **fields}), iteration)

    def test_a_run_that_would_come_to_no_rate_is_refused_before_it_begins(self, case):
        text = (case / "solver.yaml").read_text().replace("lr_policy: fixed", "lr_policy: exp\ngamma: 1e30")
        (case / "solver.yaml").write_text(text)
        with pytest.raises(InvalidFile, match=r"solver\.yaml:6:12: lr_policy: at iteration 11 exp with"):
            Solver(case / "solver.yaml", device="reference")

    def test_every_policy_of_the_schema_has_one(self):
        annotation = SolverParameter.model_fields["lr_policy"].annotation
        assert set(annotation.__args__) == set(RATES)


class TestTraining:
    def test_it_learns(self, case):
        with Solver(case / "solver.yaml", device="reference", max_iter=60, test_interval=0) as solver:
            events = list(solver.run())
        steps = [e for e in events if isinstance(e, Step)]
        assert [e.iteration for e in steps] == list(range(60))
        assert steps[-1].smoothed < 0.5 * steps[0].loss
        final = events[-2]
        assert isinstance(final, Measured) and final.images == 360 and final.outputs["accuracy"] > 0.85

    def test_events_come_as_the_file_says(self, case):
        with Solver(case / "solver.yaml", device="reference") as solver:
            kinds = [(type(e).__name__, e.iteration) for e in solver.run()]
        steps = [("Step", i) for i in range(12)]
        assert kinds == [
            ("Began", 0), ("Tested", 0), *steps[:5], ("Saved", 5), steps[5], ("Tested", 6), *steps[6:10],
            ("Saved", 10), *steps[10:], ("Saved", 12), ("Tested", 12), ("Ended", 12),
        ]  # fmt: skip

    def test_the_smoothed_loss_is_a_mean(self, case):
        with Solver(case / "solver.yaml", device="reference") as solver:
            losses = [solver.step() for _ in range(5)]
        assert losses[-1].smoothed == pytest.approx(sum(e.loss for e in losses[2:]) / 3)

    def test_the_same_seed_gives_the_same_bytes(self, case):
        a = trained(case, 4)
        assert same(a, trained(case, 4))
        assert not same(a, trained(case, 4, seed=6))

    @pytest.mark.parametrize("policy", ["baseline:m", "vdnn_all:m", "vdnn_conv:m"])
    def test_policies_do_not_change_the_bytes(self, case, policy):
        assert same(trained(case, 4), trained(case, 4, policy=policy, debug=True, delays=1e-4))

    def test_iter_size_is_a_larger_batch(self, case):
        """Two batches of 16 against one of 32, up to rounding (dropout sees other numbers, so without it)."""
        (case / "model.yaml").write_text(MODEL.replace("dropout_ratio: 0.2", "dropout_ratio: 0.0"))
        whole, halves = trained(case, 3), trained(case, 3, batch=16, iter_size=2)
        for name in whole:
            np.testing.assert_allclose(halves[name], whole[name], rtol=1e-4, atol=1e-6)

    def test_keep_lets_a_blob_be_read(self, case):
        with Solver(case / "solver.yaml", device="reference", keep=["ip1", "conv1"], policy="vdnn_all:m") as solver:
            solver.step()
            assert solver.blobs["ip1"].shape == (32, 10)
            assert solver.blobs["conv1"].shape == (32, 8, 6, 6) and solver.blobs["conv1"].min() == 0
            assert solver.blobs["loss"].shape == (1,)

    def test_parameters_are_alive(self, case):
        with Solver(case / "solver.yaml", device="reference") as solver:
            before = solver.params["conv1"]["w"]
            assert before.shape == (8, 1, 3, 3) and solver.params["ip1"][0].shape == (10, 72)
            solver.step()
            assert not np.array_equal(solver.params["conv1"][0], before)
            solver.params["conv1"]["b"] = np.ones(8)
            assert (solver.params["conv1"]["b"] == 1).all()
            with pytest.raises(WeightsError, match=r"conv1\.b has shape \(8,\), got \(9,\)"):
                solver.params["conv1"]["b"] = np.ones(9)

    def test_testing_changes_nothing(self, case):
        with Solver(case / "solver.yaml", device="reference") as solver:
            solver.step(2)
            before, first = solver.values(), solver.test()
            assert same(before, solver.values()) and solver.test().outputs == first.outputs
            solver.step(2)
            assert same(solver.values(), trained(case, 4))

    def test_one_iteration_can_be_traced(self, case):
        with Solver(case / "solver.yaml", device="reference") as solver:
            assert solver.step().trace is None
            assert solver.step(2, trace=True).trace.spans

    def test_close_ends_all_threads(self, case):
        before = threading.active_count()
        with Solver(case / "solver.yaml", device="reference") as solver:
            solver.step()
        assert threading.active_count() == before


class TestTheNextBatch:
    """It is written on a thread while a step runs."""

    def test_is_there_when_its_step_begins(self, case, monkeypatch):
        written = []
        real = Feeds._write
        monkeypatch.setattr(
            Feeds, "_write", lambda *a: (written.append((threading.current_thread().name, a[3])), real(*a))
        )
        with Solver(case / "solver.yaml", device="reference", max_iter=4) as solver:
            solver.step(4)
        assert [position for _, position in written] == [0, 32, 64, 96], "and no batch beyond the last"
        assert [name.startswith("minidnn-feed") for name, _ in written] == [False, True, True, True]

    def test_that_is_another_than_expected_is_written_anew(self, case):
        with Solver(case / "solver.yaml", device="reference") as solver:
            solver.step(1)
            solver.position += 32  # a batch is skipped
            skipped = solver.step(1).loss
        with Solver(case / "solver.yaml", device="reference") as solver:
            solver.step(1)
            assert solver.step(1).loss != skipped

    def test_what_fails_on_the_thread_is_raised_by_the_step_that_needs_it(self, case, monkeypatch):
        with Solver(case / "solver.yaml", device="reference") as solver:
            (feed,) = solver.feeds["TRAIN"]
            real = feed.loader.take

            def take(position):
                if position == 64:
                    raise DataError("sample 64 cannot be read")
                return real(position)

            monkeypatch.setattr(feed.loader, "take", take)
            solver.step(2)
            with pytest.raises(DataError, match="sample 64"):
                solver.step(1)


def test_weights_that_are_all_zero_are_told_once(case):
    """Caffe's default filler is constant 0. Frozen layers and biases may be zero."""
    model = case / "model.yaml"
    assert model.read_text().count(", weight_filler: {type: xavier}") == 2
    with Solver("solver.yaml") as solver:
        assert solver.notes == []
    model.write_text(MODEL.replace(", weight_filler: {type: xavier}", ""))
    with Solver("solver.yaml", max_iter=1) as solver:
        (note,) = next(solver.run()).notes
        assert note.startswith("warning: all weights of conv1, ip1 are zero") and "weight_filler" in note
    model.write_text(MODEL.replace("lr_mult: 1}", "lr_mult: 0}").replace(", weight_filler: {type: xavier}", "", 1))
    with Solver("solver.yaml") as solver:
        assert solver.notes == []


class TestResume:
    @pytest.mark.parametrize("device", ["reference", "cpu"])
    @pytest.mark.parametrize("policy", ["liveness:p", "vdnn_all:p"])
    def test_going_on_gives_the_same_bytes(self, case, policy, device):
        with Solver(case / "solver.yaml", device=device) as solver:
            solver.step(5)
            path = solver.save().path
            solver.step(3)
            whole = solver.values()
        with Solver(case / "solver.yaml", device=device, policy=policy, budget=1_000_000, resume=path) as solver:
            assert solver.iteration == 5 and solver.position == 160
            solver.step(3)
            assert same(solver.values(), whole)

    def test_a_fresh_seed_is_kept(self, case):
        text = (case / "solver.yaml").read_text().replace("random_seed: 5\n", "")
        (case / "solver.yaml").write_text(text)
        with Solver(case / "solver.yaml", device="reference") as solver:
            solver.step(2)
            path = solver.save().path
            solver.step(2)
            whole, seed = solver.values(), solver.seed
        with Solver(case / "solver.yaml", device="reference", resume=path) as solver:
            solver.step(2)
            assert solver.seed == seed and same(solver.values(), whole)

    def test_latest_passes_over_a_torn_one(self, case):
        with Solver(case / "solver.yaml", device="reference") as solver:
            for _ in range(2):
                solver.step(2)
                torn = solver.save().path
        torn.write_bytes(torn.read_bytes()[:-1])
        with Solver(case / "solver.yaml", device="reference", resume="latest") as solver:
            assert solver.iteration == 2
            assert str(torn) in solver.notes[0]

    def test_latest_of_nothing_begins(self, case):
        with Solver(case / "solver.yaml", device="reference", resume="latest") as solver:
            assert solver.iteration == 0 and "starting from iteration 0" in solver.notes[0]

    def test_a_finished_run_is_left_alone(self, case):
        with Solver(case / "solver.yaml", device="reference", max_iter=5) as solver:
            solver.solve()
        with Solver(case / "solver.yaml", device="reference", max_iter=5, resume="latest") as solver:
            assert [type(e) for e in solver.run()] == [Began, Measured, Ended]

    def test_another_batch_goes_on_with_the_next_sample(self, case):
        """Samples are counted, not batches: 5 × 32 and then 7 at a time."""
        with Solver(case / "solver.yaml", device="reference") as solver:
            solver.step(5)
            path = solver.save().path
            following = solver.feeds["TRAIN"].feeds[0].loader.batch(160)[0]
        with Solver(case / "solver.yaml", device="reference", resume=path, batch=7, keep=["conv1"]) as solver:
            first = solver.feeds["TRAIN"].feeds[0].loader.take(solver.position)[0]
            assert np.array_equal(first, following[:7])
            solver.step(2)
            assert solver.position == 174

    def test_another_net_or_optimizer_is_refused(self, case):
        with Solver(case / "solver.yaml", device="reference") as solver:
            path = solver.save().path
        with pytest.raises(snapshot.SnapshotError, match=r"another optimizer: only it has conv1\.b\.momentum"):
            Solver(case / "solver.yaml", device="reference", resume=path, momentum=0.0)
        (case / "model.yaml").write_text(MODEL.replace("num_output: 8", "num_output: 9"))
        with pytest.raises(snapshot.SnapshotError, match=r"layer conv1: its w has shape \(9, 1, 3, 3\)"):
            Solver(case / "solver.yaml", device="reference", resume=path)

    def test_another_batch_is_noted(self, case):
        with Solver(case / "solver.yaml", device="reference") as solver:
            solver.step(2)
            path = solver.save().path
        for fields, notes in (({}, 0), ({"batch": 8}, 1), ({"iter_size": 2}, 1)):
            with Solver(case / "solver.yaml", device="reference", resume=path, **fields) as solver:
                said = " ".join(solver.notes).count("samples an iteration, but the snapshot's run took 32")
            assert said == notes


class TestWeights:
    def test_by_layer_name(self, case):
        with Solver(case / "solver.yaml", device="reference") as solver:
            path, there = solver.save().path, solver.params["conv1"]["w"]
        (case / "model.yaml").write_text(MODEL.replace("ip1", "ip2"))
        with Solver(case / "solver.yaml", device="reference", seed=77, weights=path) as solver:
            assert np.array_equal(solver.params["conv1"]["w"], there)
            assert solver.loaded.missing == ("ip2/b", "ip2/w") and solver.loaded.unused == ("ip1/b", "ip1/w")
            assert solver.iteration == 0

    def test_another_shape_is_an_error_with_both(self, case):
        with Solver(case / "solver.yaml", device="reference") as solver:
            weights = solver.session.weights()
        weights["ip1/w"] = weights["ip1/w"][:5]
        with pytest.raises(WeightsError, match=r"layer ip1: its w has shape \(10, 72\), but is given with \(5, 72\)"):
            Solver(case / "solver.yaml", device="reference", weights=weights)

    def test_they_are_finite_floating_point_numbers(self, case):
        with Solver(case / "solver.yaml", device="reference") as solver:
            weights = solver.session.weights()
        save_file({**weights, "ip1/b": np.zeros(10, np.int32)}, "w.safetensors")
        with pytest.raises(WeightsError, match=r"^w\.safetensors: layer ip1: its b is given as int32"):
            Solver(case / "solver.yaml", device="reference", weights="w.safetensors")
        with pytest.raises(WeightsError, match=r"layer ip1: its b .* not finite in float32"):
            Solver(case / "solver.yaml", device="reference", weights={"ip1/b": np.full(10, 1e300)})


class TestPython:
    """Without files: a net of Input layers, arrays, and the net as the user's handle."""

    TEXT = """
layer:
- {name: data, type: Input, top: [data, label], input_param: {shape: [{dim: [8, 1, 4, 4]}, {dim: 8}]}}
- {name: ip, type: InnerProduct, bottom: data, top: ip,
   inner_product_param: {num_output: 3, weight_filler: {type: xavier}}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss, include: {phase: TRAIN}}
- {name: prob, type: Softmax, bottom: ip, top: prob, include: {phase: TEST}}
"""

    @pytest.fixture
    def arrays(self):
        rng = np.random.default_rng(1)
        y = rng.integers(0, 3, 40)
        x = rng.normal(size=(40, 1, 4, 4)).astype(np.float32)
        x[:, 0, 0, :3] += 4 * np.eye(3)[y]
        return x, y

    def test_train_and_forward(self, arrays):
        net = minidnn.Net.from_text(self.TEXT)
        with minidnn.Solver(net, data=arrays, device="reference", seed=1, base_lr=0.1, momentum=0.9) as solver:
            solver.step(60)
            probabilities = solver.forward(arrays[0])["prob"]
            assert probabilities.shape == (40, 3)
            np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
            assert (probabilities.argmax(1) == arrays[1]).mean() > 0.9
        assert solver.params["ip"]["w"].shape == (3, 16)  # readable when all is closed
        with pytest.raises(InvalidInput, match="closed"):
            solver.forward(arrays[0])

    def test_a_net_that_was_never_trained(self, arrays):
        net = minidnn.Net.from_text(self.TEXT)
        with minidnn.Session(net) as session:
            assert session.forward(arrays[0][:3])["prob"].shape == (3, 3)
            assert session.params["ip"]["b"].shape == (3,)
            with pytest.raises(InvalidInput, match=r"data: a sample has shape \(1, 4, 4\), got \(1, 5, 4\)"):
                session.forward(np.zeros((2, 1, 5, 4)))

    def test_a_net_that_ends_in_a_loss_gives_the_scores(self):
        net = minidnn.load(MODELS / "digits_lenet.yaml")
        with minidnn.Session(net) as session:
            says = session.forward(np.ones((5, 1, 8, 8)))
        assert {name: scores.shape for name, scores in says.items()} == {"ip2": (5, 10)}
        assert np.ptp(says["ip2"][0]) > 0 and np.array_equal(says["ip2"][0], says["ip2"][4])

    def test_scores_of_one_class_are_no_loss(self):
        text = """
layer:
- {name: in, type: Input, top: [data, label], input_param: {shape: [{dim: [1, 4]}, {dim: 1}]}}
- {name: ip, type: InnerProduct, bottom: data, top: ip, inner_product_param: {num_output: 1}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
"""
        net = minidnn.Net.from_text(text)
        with minidnn.Session(net) as session:
            assert session.forward(np.ones((3, 4)))["ip"].shape == (3, 1)
            assert set(session.scalars("TEST")) == {"loss"}

    def test_arrays_must_be_given_and_fit(self, arrays):
        net = minidnn.Net.from_text(self.TEXT)
        with pytest.raises(
            DataError, match=r"data, label come from Input or MemoryData layers: a Solver needs data=\(x, y\)"
        ):
            minidnn.Solver(net, device="reference")
        with pytest.raises(DataError, match=r"a batch has shape \(8, 1, 3, 4\), but data \(8, 1, 4, 4\)"):
            minidnn.Solver(net, device="reference", data=(arrays[0][:, :, 1:], arrays[1]))

    def test_fields_are_checked_like_a_file(self, arrays):
        net = minidnn.Net.from_text(self.TEXT)
        with pytest.raises(InvalidFile, match=r"there is no field 'momentun' .did you mean 'momentum'"):
            minidnn.Solver(net, device="reference", data=arrays, momentun=0.9)

    def test_a_rate_that_nobody_names_is_told_with_what_names_one(self, arrays):
        net = minidnn.Net.from_text(self.TEXT)
        with minidnn.Solver(net, device="reference", data=arrays) as solver:
            (note,) = (note for note in solver.notes if "learning rate" in note)
            assert "it is 0.01: base_lr=RATE sets another, and minidnn.tune_rate(net) finds one" in note
            with pytest.raises(InvalidInput, match=r"use solve\(epochs=10\), or Solver\(..., max_iter=1000\)"):
                solver.solve()
        with minidnn.Solver(net, device="reference", data=arrays, base_lr=0.1) as solver:
            assert not any("learning rate" in note for note in solver.notes)

    def test_a_net_s_file_is_told_the_keywords_of_its_solver(self, arrays, tmp_path):
        (tmp_path / "net.yaml").write_text(self.TEXT)
        with pytest.raises(InvalidInput, match=r"or solver fields \(base_lr=0.01, max_iter=100\)"):
            minidnn.Solver(tmp_path / "net.yaml", device="reference", data=arrays)

    def test_its_repr_says_how_far_it_is(self, arrays):
        net = minidnn.Net.from_text(self.TEXT)
        with minidnn.Solver(net, device="reference", data=arrays, max_iter=3, base_lr=0.1, seed=4) as solver:
            solver.step(2)
            first, how, where = repr(solver).splitlines()
            assert re.fullmatch(r"<Solver of .*: iteration 2 of 3, loss [\d.]+", first)
            assert how == " SGD, base_lr 0.1, batch 8, seed 4"
            assert where.startswith(" reference, liveness, ") and where.endswith(" off it>")
        assert repr(solver.session).endswith(" off it, closed>")

    def test_its_peak_is_that_of_its_plan_within_the_budget(self, arrays):
        net = minidnn.Net.from_text(self.TEXT)
        with minidnn.Solver(net, device="reference", data=arrays, base_lr=0.1) as free:
            budget = free.peak_bytes + 64
        with minidnn.Solver(net, device="reference", data=arrays, base_lr=0.1, budget=budget) as solver:
            assert 0 < solver.peak_bytes == solver.session.peak_bytes <= budget
            assert f" {text(solver.peak_bytes)} on the device" in repr(solver)

    def test_without_a_prefix_there_are_no_snapshots(self, arrays, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        net = minidnn.Net.from_text(self.TEXT)
        with minidnn.Solver(net, device="reference", data=arrays, max_iter=3, lr_policy="fixed") as solver:
            assert [type(e) for e in solver.run()] == [Began, Step, Step, Step, Ended]
            with pytest.raises(InvalidInput, match="no snapshot_prefix"):
                solver.save()
        assert not list(tmp_path.iterdir())


class TestStopping:
    @pytest.mark.parametrize("layer", ["conv1", "ip1"])
    def test_a_loss_that_is_not_finite_names_the_layer(self, case, layer):
        with Solver(case / "solver.yaml", device="reference") as solver:
            solver.step(3)
            solver.params[layer]["w"] = solver.params[layer]["w"] * np.float32(1e38)
            solver.params[layer]["b"] = np.full_like(solver.params[layer]["b"], 3e38)
            with pytest.raises(
                Diverged, match=f"iteration 3: the loss is (nan|inf): layer {layer} is the first"
            ) as found:
                solver.step()
        assert found.value.iteration == 3 and found.value.layer == layer

    def test_a_parameter_that_is_not_finite(self, case):
        with Solver(case / "solver.yaml", device="reference") as solver:
            solver.params["ip1"]["b"] = np.full(10, np.nan)
            with pytest.raises(Diverged, match="layer ip1: its b is not finite"):
                solver.step()

    def test_parameters_that_are_not_finite_are_not_saved(self, case):
        """What the last update spoiled, no loss has seen."""
        with Solver(case / "solver.yaml", device="cpu", resume=None) as solver:
            before = solver.save().path.read_bytes()
            solver.params["conv1"]["w"] = np.full((8, 1, 3, 3), np.nan)
            with pytest.raises(Diverged, match="layer conv1: its w is not finite; no snapshot is written"):
                solver.save()
            assert [p.read_bytes() for p in (case / "out").iterdir()] == [before]

    def test_data_that_are_not_finite(self, case):
        with Solver(case / "solver.yaml", device="reference") as solver:
            images = solver.feeds["TRAIN"].feeds[0].loader.dataset.images
            images[:] = np.nan
            with pytest.raises(Diverged, match="data: sample 0 of digits"):
                solver.step()

    @pytest.mark.filterwarnings("error")  # NumPy's would say less, and on a screen
    def test_a_test_that_is_not_finite_names_the_layer_and_keeps_what_was_trained(self, case):
        with Solver(case / "solver.yaml", device="reference") as solver:
            solver.feeds["TEST"].feeds[0].loader.dataset.images[:] = 3e38
            solver.params["conv1"]["w"] = solver.params["conv1"]["w"] * 900
            events = []
            what = "iteration 6: loss of test batch 0 is (nan|inf): layer conv1 is the first to produce"
            with pytest.raises(Diverged, match=what):
                solver.step(6)
                solver._saved = 5
                for event in solver.run():
                    events.append(event)
        assert [type(e) for e in events] == [Began, Saved] and events[1].iteration == 6

    def test_running_statistics_are_not_blamed_for_the_step_that_spoils_them(self, case):
        norm = "- {name: bn, type: BatchNorm, bottom: conv1, top: conv1}\n- {name: relu1"
        (case / "model.yaml").write_text((case / "model.yaml").read_text().replace("- {name: relu1", norm))
        with Solver(case / "solver.yaml", device="reference") as solver:
            solver.params["conv1"]["w"] = np.full((8, 1, 3, 3), 3e38)
            with pytest.raises(Diverged, match="iteration 0: the loss is nan: layer conv1 is the first"):
                solver.step()

    def test_the_snapshot_before_stays(self, case):
        with Solver(case / "solver.yaml", device="reference", base_lr=1e30, clip_gradients=-1.0) as solver:
            path = solver.save().path
            with pytest.raises(Diverged):
                solver.step(9)
        assert snapshot.load(path).iteration == 0


class TestRefused:
    def test_fields_that_a_policy_of_rates_needs(self, case):
        with pytest.raises(InvalidFile, match=r"solver\.yaml:\d+:\d+: lr_policy: step needs gamma"):
            Solver(case / "solver.yaml", device="reference", lr_policy="step")

    def test_a_run_without_an_end(self, case):
        (case / "solver.yaml").write_text((case / "solver.yaml").read_text().replace("max_iter: 12", ""))
        with Solver(case / "solver.yaml", device="reference") as solver:
            solver.step(1)
            with pytest.raises(InvalidInput, match="give max_iter or epochs"):
                solver.solve()

    @pytest.mark.parametrize("seed", [-7, 2**64])
    def test_seeds_of_no_64_bits(self, case, seed):
        with pytest.raises(InvalidInput, match=f"seed={seed}: expected a whole number from 0"):
            Solver(case / "solver.yaml", device="reference", seed=seed)

    def test_names_are_listed_with_the_files_other_errors(self, case):
        text = (case / "solver.yaml").read_text().replace("momentum: 0.9", "momentun: 0.9")
        (case / "solver.yaml").write_text(text + "minidnn: {policy: vdnn_al, device: cpuu}\n")
        with pytest.raises(InvalidFile) as found:
            Solver(case / "solver.yaml")
        assert len(found.value.errors) == 3
        assert re.search(r"solver.yaml:\d+:\d+: minidnn.policy: .*did you mean 'vdnn_all'", str(found.value))
        assert re.search(r"solver.yaml:\d+:\d+: minidnn.device: .*did you mean 'cpu'", str(found.value))

    def test_which_gpu_is_said_by_its_number(self, case):
        text = (case / "solver.yaml").read_text()
        (case / "solver.yaml").write_text(text + "minidnn: {device: cuda:x}\n")
        with pytest.raises(InvalidFile, match=r"minidnn.device: .*as in cuda:1"):
            understand(case / "solver.yaml")
        (case / "solver.yaml").write_text(text + "device_id: 1\n")
        with pytest.raises(InvalidFile, match=r"device_id.*`minidnn: \{device: cuda:1\}`"):
            understand(case / "solver.yaml")
        (case / "solver.yaml").write_text(text + "minidnn: {device: cuda:1}\n")
        assert understand(case / "solver.yaml")[2].minidnn.device == "cuda:1"

    @pytest.mark.slow
    def test_a_prefix_that_cannot_be_written_to_before_training(self, case):
        (case / "file").write_text("")
        with Solver(case / "solver.yaml", device="reference", snapshot_prefix=str(case / "file" / "x")) as solver:
            with pytest.raises(SaveError, match="File exists; name another prefix"):
                solver.solve()
            assert solver.iteration == 0

    def test_an_unknown_memory_policy(self, case):
        with pytest.raises(NoSuchPolicy, match="vdnn_all"):
            Solver(case / "solver.yaml", device="reference", policy="vdnn_al")

    def test_labels_that_the_net_has_no_scores_for(self, case):
        (case / "model.yaml").write_text(MODEL.replace("num_output: 10", "num_output: 7"))
        with pytest.raises(ValueError, match="label 9 occurs, but layer loss gets 7 scores"):
            Solver(case / "solver.yaml", device="reference")


class TestCommands:
    """Through the command line, as a user does it."""

    def test_train_test_predict(self, case, capsys):
        train = ["train", "solver.yaml", "--device", "reference", "--max-iter", "40", "--json"]
        assert main(train) == 0
        out, err = capsys.readouterr()
        document = json.loads(out)
        assert document["iterations"] == 40 and len(document["history"]) == 40 and document["peak_bytes"] > 0
        assert "] Solving small" in err and "Test net output #0: " in err and "lr = 0.05" in err
        weights = document["snapshots"][-1]["path"]

        assert main(["test", "model.yaml", "--weights", weights, "--device", "reference", "--json"]) == 0
        tested = json.loads(capsys.readouterr().out)
        assert tested["samples"] == 360
        assert tested["outputs"]["accuracy"] == pytest.approx(document["tests"][-1]["outputs"]["accuracy"])

        from minidnn.data import digits

        data = digits.read("test")
        np.savez(case / "some.npz", x=data.images[:70])
        predict = ["predict", "model.yaml", "some.npz", "--weights", weights, "--device", "reference", "--json"]
        assert main(predict) == 0
        rows = json.loads(capsys.readouterr().out)["predictions"]
        right = np.mean([row["classes"][0] == label for row, label in zip(rows, data.labels, strict=False)])
        assert len(rows) == 70 and right > 0.7
        assert all(0 < row["probabilities"][0] <= 1 for row in rows)

    @pytest.mark.parametrize("x", [np.array(["a"]), np.float32(3), np.full((2, 1, 8, 8), np.nan), np.zeros((0, 8, 8))])
    def test_predict_of_what_is_no_image(self, case, capsys, x):
        np.savez(case / "in.npz", x=x)
        with Solver(case / "solver.yaml", device="reference") as solver:
            weights = solver.save().path
        assert main(["predict", "model.yaml", "in.npz", "--weights", str(weights)]) == 2
        assert "minidnn: in.npz: " in capsys.readouterr().err

    @pytest.mark.filterwarnings("error")
    def test_predict_of_values_too_large(self, case, capsys):
        np.savez(case / "in.npz", x=np.stack([np.zeros((1, 8, 8)), np.full((1, 8, 8), 3e38)]).astype(np.float32))
        with Solver(case / "solver.yaml", device="reference") as solver:
            solver.params["conv1"]["w"] = np.full((8, 1, 3, 3), 99)
            weights = solver.save().path
        assert main(["predict", "model.yaml", "in.npz", "--weights", str(weights), "--device", "reference"]) == 2
        assert "in.npz: the net's scores of sample 1 are not finite" in capsys.readouterr().err

    @pytest.mark.slow
    def test_an_output_that_cannot_be_written_costs_no_training(self, case):
        """/dev/full is a disk that is full."""
        command = [sys.executable, "-m", "minidnn.cli.main", "train", "solver.yaml", "--device", "reference"]
        with open("/dev/full", "w") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1 and "No space left on device" in done.stderr and "Traceback" not in done.stderr
        assert [p.name for p in (case / "out").iterdir()] == ["small_iter_0.safetensors"]

    def test_log_lines_are_those_that_caffes_tools_look_for(self, case, capsys):
        """The expressions are parse_log.py's and extract_seconds.py's."""
        assert main(["train", "solver.yaml", "--device", "reference"]) == 0
        lines = capsys.readouterr().out.splitlines()
        text = "\n".join(lines)
        assert [float(x) for x in re.findall(r"Iteration (\d+), lr = ([-+]?[0-9]*\.?[0-9]+)", text)[1]] == [4, 0.05]
        assert re.findall(r"Train net output #(\d+): (\S+) = ([\.\deE+-]+)", text)[0][:2] == ("0", "loss")
        found = re.findall(r"Test net output #(\d+): (\S+) = ([\.\deE+-]+)", text)
        assert [f[1] for f in found[:2]] == ["loss", "accuracy"]
        assert any("Solving " in line for line in lines)
        for line in lines:
            date, time = line.split()[:2]
            assert 1 <= int(date[1:3]) <= 12 and 1 <= int(date[3:]) <= 31
            at = time.rfind(".")
            assert len(time[:at].split(":")) == 3 and int(time[at + 1 :]) >= 0

    @pytest.mark.parametrize(
        ("arguments", "code", "said"),
        [
            (["train", "nowhere.yaml"], 2, "nowhere.yaml"),
            (["train", "solver.yaml", "--resume", "no.safetensors"], 2, "no.safetensors: No such file"),
            (
                ["train", "solver.yaml", "--weights", "model.yaml"],
                2,
                "model.yaml: truncated, or not a safetensors file",
            ),
            (["train", "solver.yaml", "--policy", "vdn"], 2, "there is no policy 'vdn'"),
            (["train", "solver.yaml", "--budget", "10kB"], 2, "best needs"),
            (["train", "solver.yaml", "--snapshot-prefix", "model.yaml/x"], 1, "cannot write a snapshot there"),
        ],
    )
    def test_errors_are_one_message(self, case, capsys, arguments, code, said):
        assert main([*arguments, "--device", "reference"]) == code
        err = capsys.readouterr().err
        assert said in err and err.count("minidnn: ") == 1 and "Traceback" not in err

    def test_a_net_that_is_not_there_is_said_with_its_place(self, case, capsys):
        (case / "solver.yaml").write_text((case / "solver.yaml").read_text().replace("model.yaml", "modl.yaml"))
        assert main(["train", "solver.yaml"]) == 2
        assert "minidnn: solver.yaml:2:6: net: there is no net modl.yaml" in capsys.readouterr().err

    @pytest.mark.parametrize("text", ["net: nowhere.yaml", 'snapshot_prefix: "a\\0b"'])
    def test_what_the_schema_lets_through_has_its_place_too(self, case, capsys, text):
        lines = (case / "solver.yaml").read_text().splitlines()
        lines = [text if line.startswith(text.split(":")[0]) else line for line in lines]
        (case / "solver.yaml").write_text("\n".join(lines))
        assert main(["train", "solver.yaml"]) == 2
        line = lines.index(text) + 1
        assert f"solver.yaml:{line}:{len(text.split()[0]) + 2}: {text.split(':')[0]}: " in capsys.readouterr().err

    def test_a_name_that_is_too_long_is_bad_input(self, case, capsys):
        (case / "model.yaml").write_text((case / "model.yaml").read_text().replace("digits", "x" * 300 + ".npz"))
        assert main(["train", "solver.yaml"]) == 2
        assert "File name too long" in capsys.readouterr().err

    def test_divergence_is_code_1(self, case, capsys):
        text = (case / "solver.yaml").read_text().replace("base_lr: 0.05", "base_lr: 1.0e+30")
        (case / "solver.yaml").write_text(text)
        assert main(["train", "solver.yaml", "--device", "reference"]) == 1
        assert "minidnn: iteration" in capsys.readouterr().err

    def test_usage_errors(self, capsys):
        for arguments in (["trai"], ["train"], ["train", "a", "--budget", "12XB"]):
            with pytest.raises(SystemExit) as stopped:
                main(arguments)
            assert stopped.value.code == 2
        assert "is not a size" in capsys.readouterr().err


def test_the_room_for_the_end_is_looked_at_until_the_end_is_saved(case, monkeypatch):
    """A run that has saved its last snapshot needs no room for another."""
    looked = []
    monkeypatch.setattr(snapshot, "check_writable", lambda *_: looked.append(solver.iteration))
    with Solver("solver.yaml", device="reference", max_iter=10) as solver:
        solver.solve()
    assert looked == [0, 5]


def test_arrays_are_saved_as_what_the_session_gives(case):
    with Solver("solver.yaml", device="reference") as solver:
        weights, state = solver.session.weights(), solver.session.state()
        path = snapshot.save(case / "arrays", snapshot.Snapshot(weights, state, 1, 2, 3))
    assert all(np.array_equal(np.asarray(v), weights[k]) for k, v in snapshot.load(path).weights.items())
