"""Tuning the minibatch: the search, the learning rate that goes with it, the verb."""

import json
from xml.etree import ElementTree

import pytest

from minidnn.cli.main import main
from minidnn.costs import profile
from minidnn.jobs import tune
from minidnn.jobs.solver_file import understand
from minidnn.jobs.tune import Curve, sweep
from minidnn.nets.net import Net
from minidnn.programs.build import programs
from minidnn.results.budgets import TuneRow
from minidnn.training.linear_scaling import matched
from minidnn.zoo import find
from tests.support.texts import NET

SOLVER = "net: small.yaml\nbase_lr: 0.02\nlr_policy: step\ngamma: 0.1\nstepsize: 30\nmomentum: 0.9\nmax_iter: 90\n"


@pytest.fixture
def folder(tmp_path, own_cache, monkeypatch):
    (tmp_path / "small.yaml").write_text(NET)
    (tmp_path / "solver.yaml").write_text(SOLVER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(capsys, *argv):
    assert main([*argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# ---- the search


def row(batch, seconds=0.0, moved=0, why=""):
    return TuneRow(
        batch=batch, fits=not why, step_seconds=seconds, samples_per_second=batch / seconds if seconds else 0.0,
        stall_seconds=0, moved_bytes=moved, peak_bytes=0, pinned_bytes=0, host_bytes=0, exposed_seconds=0,
        epoch_seconds=None, efficiency=None, why=why,
    )  # fmt: skip


def made_up(monkeypatch, rate, fits, free):
    """`sweep` over a curve that is given: samples/s of a batch; the largest that fits, that moves nothing."""
    asked = []

    def of_batch(programs, batch, *others):
        asked.append(batch)
        if batch > fits:
            return row(batch, why="too large")
        return row(batch, batch / rate(batch), moved=0 if batch <= free else 1)

    monkeypatch.setattr(tune, "of_batch", of_batch)
    return sweep(lambda batch: (), 16, "any", None, grid=4), asked


@pytest.mark.parametrize("top", [16, 40, 100, 116, 136, 300])
def test_finds_the_argmax_to_within_a_step(monkeypatch, top):
    curve, asked = made_up(monkeypatch, lambda b: 1000 - abs(b - top), fits=1000, free=50)
    assert abs(curve.best.batch - top) <= 4
    assert curve.unmoved.batch == 48
    assert len(asked) == len(set(asked)) < 30
    assert [r.batch for r in curve.rows] == sorted(asked)


def test_a_first_batch_that_is_too_large_is_halved(monkeypatch):
    curve, _ = made_up(monkeypatch, lambda b: b, fits=7, free=0)
    assert curve.best.batch == 4 and curve.unmoved is None
    curve, _ = made_up(monkeypatch, lambda b: b, fits=0, free=0)
    assert curve.best is None


def test_a_first_batch_that_swaps_far_too_much_says_nothing_of_the_best(monkeypatch):
    """It was searched in steps of a quarter of the first: 16 of a first of 64. The best lay between two of them."""
    asked = []

    def of_batch(programs, batch, *others):
        asked.append(batch)
        return row(batch, batch / (batch * 2.5 if batch <= 25 else 50.0), moved=int(batch > 18))

    monkeypatch.setattr(tune, "of_batch", of_batch)
    curve = sweep(lambda batch: (), 64, "any", None)
    assert 22 <= curve.best.batch <= 25 and curve.best.samples_per_second == max(
        r.samples_per_second for r in curve.rows
    )
    assert curve.grid == 2 and curve.unmoved.batch == 18
    assert min(asked) < 22 and max(asked) == 64, "it does not go on where a batch is far behind"
    assert (
        curve.enough.samples_per_second >= 0.99 * curve.best.samples_per_second
        and curve.enough.batch <= curve.best.batch
    )


def test_the_search_goes_below_and_above_the_first(monkeypatch):
    for top in (10, 700):
        curve, asked = made_up(monkeypatch, lambda b, top=top: 1000 - 10 * abs(b - top) / top, fits=10**6, free=10**6)
        assert abs(curve.best.batch - top) <= 4, top
        assert len(asked) < 60


def test_in_parts_only_their_multiples_are_tried(monkeypatch):
    """Other batches run in other parts, or as a whole: here they do not fit."""
    monkeypatch.setattr(tune, "of_batch", lambda programs, batch, *others: row(
        batch, batch / (1000 - abs(batch - 300)), moved=int(batch > 96), why="too large" if batch % 12 else ""
    ))  # fmt: skip
    for first in (5, 16, 100):
        curve = sweep(lambda batch: (), first, "any@12", None)
        assert abs(curve.best.batch - 300) <= curve.grid and curve.multiple == 12, first
        assert all(r.fits for r in curve.rows) and 84 <= curve.unmoved.batch <= 96


def test_no_plan_is_quicker_than_the_ceiling():
    """All ops once by their fastest algorithms: what endless memory gives, less what waits for the first input."""
    net = Net.from_file(find("alexnet"))
    costs = profile("k40")
    made = tuple(programs(net.with_batch(32), None, ("TRAIN",)).values())
    most = tune.ceiling(made, 32, costs)
    free = tune.of_batch(made, 32, "liveness:p", costs, 1 << 60)
    assert 0.97 * most < free.samples_per_second <= most
    for policy in ("best", "vdnn_all:m", "liveness:m"):
        assert tune.of_batch(made, 32, policy, costs, 10**9).samples_per_second <= most


def test_equal_rates_prefer_the_smaller_batch():
    assert Curve((row(8, 1.0), row(16, 2.0), row(4, 0.6)), 4).best.batch == 8


def test_on_a_network():
    """AlexNet on a K40: swapping begins where liveness no longer fits, and what is best is planned and proved."""
    net = Net.from_file(find("alexnet"))

    def make(batch):
        return tuple(programs(net.with_batch(batch), None, ("TRAIN",)).values())

    costs = profile("k40")
    curve = sweep(make, 64, "accudnn:p", costs, 10**9, grid=16)
    free = sweep(make, 64, "liveness:p", costs, 10**9, grid=16)
    assert curve.unmoved.batch == max(r.batch for r in free.rows if r.fits)
    assert curve.best.batch > curve.unmoved.batch and curve.best.samples_per_second > curve.unmoved.samples_per_second
    assert curve.best.peak_bytes <= 10**9 and curve.best.moved_bytes > 0
    fits = [r.fits for r in curve.rows]
    assert fits == sorted(fits, reverse=True)
    last = curve.rows[-1]
    assert not last.fits or (last.moved_bytes and last.samples_per_second < curve.best.samples_per_second), (
        "it ends where more is no use"
    )


# ---- the learning rate


def test_linear_scaling_and_warm_up():
    """Goyal et al., 2.1 and 2.2: 0.1 for 256 images becomes 3.2 for 8192, from 0.1 over five epochs."""
    m = matched(0.1, 256, 8192)
    assert (m.base_lr, m.rampup_lr) == (pytest.approx(3.2), 0.1)
    assert m.rampup_interval == -(-5 * 1_281_167 // 8192)
    assert matched(0.1, 256, 256).rampup_interval == 0 and matched(0.1, 256, 64).base_lr == pytest.approx(0.025)
    assert "rampup_lr" not in matched(0.1, 256, 128).fields()
    counts = {"max_iter": 900, "stepvalue": [300, 601]}
    assert matched(0.1, 64, 128, counts=counts).scaled == {"max_iter": 450, "stepvalue": [150, 300]}


def test_the_solver_takes_the_fields(folder):
    """What is printed is what a solver file may say, and means: the first rate, the last of the warm-up, the scaled."""
    from minidnn.optimizers.rates import learning_rate

    fields = matched(0.02, 4, 16, samples=160, counts={"stepsize": 400, "max_iter": 1200}).fields()
    _, _, p = understand("solver.yaml", fields, batch=16)
    assert fields["rampup_interval"] == 50 and (p.stepsize, p.max_iter) == (100, 300)
    rates = [learning_rate(p, i) for i in (0, 25, 50, 99, 100)]
    assert rates == pytest.approx([0.02, 0.05, 0.08, 0.08, 0.008])


# ---- the verb


@pytest.mark.slow
def test_tune_prints_fields_that_a_solver_runs(folder, capsys):
    free = answer(capsys, "plan", "solver.yaml", "--policy", "liveness:p", "--batch", "8")["rows"][0]["peak_bytes"]
    found = answer(capsys, "tune", "solver.yaml", "--budget", str(free), "--samples", "400", "--gpus", "2")
    assert found["largest_unswapped"] >= 4 and found["best"] >= found["largest_unswapped"]
    assert found["ratio"] == found["best"] / found["largest_unswapped"]
    assert found["policy"] == "best" and found["origin"] == "estimated" and found["measured"] == []
    best = next(r for r in found["rows"] if r["batch"] == found["best"])
    assert best["fits"] and best["peak_bytes"] <= free and 0 < best["efficiency"] < 1
    assert best["samples_per_second"] == max(r["samples_per_second"] for r in found["rows"])
    assert all("the budget is" in r["why"] for r in found["rows"] if not r["fits"])
    assert best["samples_per_second"] <= found["most_samples_per_second"] and 0 <= found["behind"] < 1
    assert found["behind"] == pytest.approx(1 - best["samples_per_second"] / found["most_samples_per_second"])
    enough = next(r for r in found["rows"] if r["batch"] == found["enough"])
    assert enough["samples_per_second"] >= 0.99 * best["samples_per_second"] and found["enough"] <= found["best"]
    fields = found["solver"]
    assert fields["batch_size"] == found["best"] and fields["iter_size"] == 2
    assert fields["base_lr"] == pytest.approx(0.02 * 2 * found["best"] / 4)
    assert fields["max_iter"] == round(90 / (2 * found["best"] / 4))
    _, _, p = understand("solver.yaml", {k: v for k, v in fields.items() if k != "batch_size"}, fields["batch_size"])
    assert p.rampup_interval == fields["rampup_interval"]


@pytest.mark.slow
def test_measured_on_this_machine(folder, capsys):
    argv = ("--budget", "150KiB", "--measure", "--device", "cpu", "--policy", "accudnn")
    found = answer(capsys, "tune", "solver.yaml", *argv)
    checked = found["measured"]
    assert {m["batch"] for m in checked} == {found["best"], found["largest_unswapped"]}
    assert all(m["measured_step_seconds"] > 0 and m["step_seconds"] > 0 for m in checked)
    assert main(["tune", "small.yaml", "--measure", "--gpu", "k40"]) == 2
    assert "leave out --gpu k40" in capsys.readouterr().err


def test_words_and_pictures(folder, capsys):
    argv = ["tune", "small.yaml", "--gpu", "k40", "--budget", "300KiB", "--policy", "accudnn", "--report"]
    assert main([*argv, "t.html"]) == 0
    text = capsys.readouterr().out
    assert "The efficiency-optimal batch is" in text and "Goyal et al. 2017" in text and "is refused: accudnn" in text
    page = (folder / "t.html").read_text()
    assert "<script" not in page and "src=" not in page and "efficiency-optimal" in page
    assert main([*argv, "t.svg"]) == 0
    root = ElementTree.fromstring((folder / "t.svg").read_text())
    assert any("small, accudnn, 300 KiB of k40" in (e.text or "") for e in root.iter())
    circles = [e for e in root.iter() if e.tag.endswith("circle")]
    kept = [line for line in text.splitlines() if " yes " in line]
    assert len(circles) == len(kept) > 2
    assert main(["tune", "small.yaml", "--budget", "1KiB"]) == 0 and "No batch size fits" in capsys.readouterr().out
    assert main(["tune", "small.yaml", "--report", "t.pdf"]) == 2


@pytest.mark.slow
def test_formats_that_the_gpu_has_are_told(folder, capsys):
    argv = ["tune", "small.yaml", "--gpu", "v100", "--budget", "64MiB", "--batch", "512", "--policy", "liveness"]
    (half,) = answer(capsys, *argv)["formats"]
    assert half["format"] == "float16" and half["samples_per_second"] > 0
    assert answer(capsys, *argv, "--format", "float16")["formats"] == []
    assert answer(capsys, *[a if a != "v100" else "k40" for a in argv])["formats"] == []


@pytest.mark.slow
def test_an_epoch_is_the_data_s(folder, capsys):
    argv = ("tune", "digits_solver", "--gpu", "k40", "--budget", "8MiB", "--grid", "64", "--policy", "accudnn")
    found = answer(capsys, *argv)
    assert found["epoch_samples"] == 1437 and found["solver"]["rampup_interval"] == -(-5 * 1437 // found["best"])
    assert answer(capsys, *argv, "--samples", "400")["epoch_samples"] == 400
    assert answer(capsys, "tune", "alexnet", *argv[2:])["epoch_samples"] == 1281167, (
        "what is made up stands for ImageNet"
    )


def test_a_budget_for_any_batch_ends_somewhere(monkeypatch):
    curve, asked = made_up(monkeypatch, lambda b: 1000.0, fits=2**40, free=2**40)
    assert max(asked) == 2**30 and curve.best.batch == 1 and curve.unmoved.batch == 2**30


def test_a_plan_file_is_of_one_batch(folder, capsys):
    assert main(["tune", "small.yaml", "--policy", "any.plan"]) == 2
    assert "any.plan is for one size of a net" in capsys.readouterr().err


@pytest.mark.slow
def test_what_is_only_predicted_needs_no_data(folder, capsys):
    argv = ("tune", "lenet", "--gpu", "k40", "--budget", "64MiB", "--grid", "256")
    assert answer(capsys, *argv)["epoch_samples"] == 1281167
    assert main([*argv]) == 0
    assert "data/mnist: there is no such folder" in capsys.readouterr().out
    assert main(["tune", "lenet", "--budget", "8MiB", "--measure"]) == 2
