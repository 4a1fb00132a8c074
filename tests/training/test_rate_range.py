"""The range test of learning rates: what losses say, real training, the command, the function."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest

import minidnn
from minidnn.api.tune_rate import RateRange
from minidnn.cli.main import main
from minidnn.errors import InvalidInput
from minidnn.jobs.solver_file import understand
from minidnn.optimizers.rates import learning_rate
from minidnn.training.divergence import Diverged
from minidnn.training.rate_range import SHARE, found, ranging
from tests.support.texts import NET

SOLVER = """net: small.yaml
base_lr: 0.02
lr_policy: step
gamma: 0.1
stepsize: 30
momentum: 0.9
max_iter: 90
random_seed: 5
test_iter: 2
snapshot: 5
snapshot_prefix: run
minidnn: {device: reference, test_epochs: 2, keep_best: loss, log: run.jsonl, tensorboard: tb}
"""


@pytest.fixture
def folder(tmp_path, own_cache, monkeypatch):
    (tmp_path / "small.yaml").write_text(NET)
    (tmp_path / "solver.yaml").write_text(SOLVER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- what losses say


def made_up(turn: int, leap: float, noise: float = 0.05, count: int = 200) -> list[float]:
    """Losses that fall from 2.3 at step 60 on, and leap at step `turn`."""
    random = np.random.default_rng(0)
    fall = [2.3 - 0.012 * max(0, i - 60) if i < turn else leap for i in range(count)]
    return [*(np.array(fall) + noise * random.standard_normal(count))]


@pytest.mark.parametrize("leap", [2.3, 4.0, 1e6])
@pytest.mark.parametrize("turn", [110, 150, 190])
def test_the_least_loss_is_found_where_it_begins_to_leap(turn, leap):
    result = found(made_up(turn, leap), 200)
    assert len(result.smoothed) == 200 and turn - 8 <= result.least < turn
    assert abs(result.fallen - (60 + SHARE * (turn - 60))) < 8


def test_a_loss_that_stays_at_its_least_is_fallen_at_the_first_step_of_it():
    """The rate of the least one would be any above."""
    losses = [max(0.0, 2.3 - 0.05 * max(0, i - 60)) for i in range(200)]
    assert abs(found(losses, 200).fallen - (60 + SHARE * 46)) <= 2


def test_one_lucky_batch_is_not_the_least_loss():
    losses = made_up(150, 3.0)
    losses[20], losses[199] = 0.01, 0.01
    assert 138 <= found(losses, 200).least < 150


@pytest.mark.parametrize("fall", [0.0, -0.001, 0.0001])
def test_without_a_fall_beyond_the_noise_there_is_no_least_loss(fall):
    random = np.random.default_rng(1)
    losses = [2.3 - fall * i + 0.2 * float(random.standard_normal()) for i in range(200)]
    assert found(losses, 200).least is None and found(losses, 200).fallen is None


def test_a_test_that_ends_early_is_smoothed_as_a_whole_one():
    losses = made_up(110, 4.0)
    assert found(losses[:116], 200).smoothed[:100] == found(losses, 200).smoothed[:100]


# ---- the solver of a test


def test_the_rate_grows_by_one_factor_and_nothing_else_of_a_run_is_left(folder):
    own = understand("solver.yaml").solver
    p = ranging(own, 1e-4, 1.0, 41)
    rates = [learning_rate(p, i) for i in range(p.max_iter)]
    assert rates[0] == 1e-4 and math.isclose(rates[-1], 1.0) and len(rates) == 41
    assert np.allclose(np.diff(np.log10(rates)), 0.1)
    assert (p.momentum, p.type, own.base_lr) == (0.9, "SGD", 0.02)
    kept = {name: value for name, value in p.minidnn if value != type(p.minidnn).model_fields[name].default}
    assert kept == {"device": "reference"}


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        (dict(lowest=0.1, highest=0.1), "rates from 0.1 to 0.1: the first has to be above 0, the last above that"),
        (dict(lowest=0.0), "the first has to be above 0"),
        (dict(iterations=5), "5 iterations: a range test takes at least 20"),
        (dict(ranks=2), "a range test trains one rank: leave out ranks=2"),
    ],
)
def test_a_range_that_is_none_is_refused(folder, keywords, says):
    with pytest.raises(InvalidInput, match=says):
        minidnn.tune_rate("solver.yaml", **keywords)


# ---- training


def answer(capsys, *argv):
    assert main([*argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_it_trains_from_the_solver_s_own_start_and_writes_nothing(folder, capsys):
    before = sorted(folder.rglob("*"))
    range_ = "--iterations", "30", "--lowest", "1e-5", "--highest", "10"
    document = answer(capsys, "tune", "solver.yaml", "--rate", *range_)
    assert sorted(folder.rglob("*")) == before
    rows = document["rows"]
    with minidnn.Solver("solver.yaml", base_lr=1e-5, snapshot_prefix="elsewhere") as solver:
        assert solver.step().loss == rows[0]["loss"] and document["seed"] == solver.seed == 5
    growth = [b["lr"] / a["lr"] for a, b in pairwise(rows)]
    assert document["kind"] == "tune_rate" and np.allclose(growth, 1e6 ** (1 / 29))
    assert (document["base_lr"], document["policy"], document["device"]) == (0.02, "liveness", "reference")
    assert answer(capsys, "tune", "solver.yaml", "--rate", *range_) == document, "it is a function of the seed"


def test_a_rate_at_which_training_diverges_ends_it(folder):
    result = minidnn.tune_rate("solver.yaml", iterations=20, lowest=1e-3, highest=1e8, momentum=0.99)
    assert len(result) < 20 and result.document.diverged_lr == result[-1].lr
    assert all(math.isfinite(row.loss) for row in result)
    assert any("training diverges, and the test ends" in sentence for sentence in result.remarks())


def test_a_loss_that_is_bad_from_the_first_is_no_matter_of_the_rate(folder):
    x, y = np.full((8, 3, 12, 12), 3e38, np.float32), np.zeros(8, int)
    with pytest.raises(Diverged, match="iteration 0"):
        minidnn.tune_rate(fed(), iterations=20, data=(x, y), device="reference")


def fed() -> minidnn.Net:
    """The net of NET with its data from Python, and no solver."""
    inputs = "{name: data, type: Input, top: [data, label], input_param: {shape: [{dim: [4, 3, 12, 12]}, {dim: [4]}]}}"
    lines = NET.splitlines()
    return minidnn.Net.from_text("\n".join([*lines[:2], f"- {inputs}", *lines[3:]]))


def test_a_net_needs_no_solver(folder):
    random = np.random.default_rng(0)
    y = random.integers(0, 5, 32)
    x = (np.eye(5, dtype=np.float32)[y] @ random.standard_normal((5, 432), np.float32)).reshape(32, 3, 12, 12)
    result = minidnn.tune_rate(fed(), iterations=60, lowest=1e-5, data=(x, y), device="reference", momentum=0.9)
    document = result.document
    assert document.base_lr is None and document.batch == 4
    assert result.suggested == document.suggested_lr <= document.least_loss_lr
    with minidnn.Solver(fed(), data=(x, y), device="reference", momentum=0.9, base_lr=result.suggested) as solver:
        first = solver.step().loss
        assert solver.step(40).loss < first / 2, "the rate that is suggested trains"


# ---- how it is shown


def test_it_is_drawn_with_the_rates_it_tells_of(folder, capsys):
    argv = "tune", "solver.yaml", "--rate", "--iterations", "40", "--lowest", "1e-4", "--highest", "1"
    for name in ("rates.svg", "rates.html", "rates.csv"):
        assert main([*argv, "--report", name]) == 0
        assert f"report: {name}" in capsys.readouterr().out
    picture, page = (folder / "rates.svg").read_text(), (folder / "rates.html").read_text()
    assert "the solver&#x27;s own: 0.02" in picture and picture.count("<path") == 2
    assert page.startswith("<!doctype html>") and "<svg" in page and "smoothed loss" in page
    assert len((folder / "rates.csv").read_text().splitlines()) == 41


def test_words_of_a_test_without_a_fall():
    rows = [dict(iteration=i, lr=10.0 ** (i - 6), loss=2.3, smoothed_loss=2.3) for i in range(7)]
    document = dict(rows=rows, suggested_lr=None, least_loss_lr=None, diverged_lr=None, base_lr=0.1)
    assert RateRange.look.sentences(document) == [
        "The smoothed loss does not fall between 1e-06 and 1, so no rate is suggested."
    ]
    assert "<svg" in RateRange.look.picture(document, "flat", "")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--rate", "--gpu", "k40"), "--rate takes no --gpu: leave it out"),
        (("--rate", "--grid", "4"), "--rate takes no --grid: leave it out"),
        (("--iterations", "30"), "--iterations goes with --rate"),
    ],
)
def test_options_of_the_other_search_are_refused(folder, capsys, argv, says):
    assert main(["tune", "solver.yaml", *argv]) == 2
    assert says in capsys.readouterr().err
