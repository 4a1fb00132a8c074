"""Ranks that are simulated: their speed, what of their communication shows, and curves over many of them."""

import json

import pytest

import minidnn
from minidnn.cli.main import main
from minidnn.errors import InvalidInput
from minidnn.report import ranks as report
from minidnn.spoken import many
from tests.support.texts import NET

SOLVER = "net: small.yaml\nbase_lr: 0.02\nlr_policy: fixed\nmomentum: 0.9\nmax_iter: 90\niter_size: {}\n"
SLOW, QUICK = "100MB,1us", "100GB,1ns"


@pytest.fixture
def folder(tmp_path, own_cache, monkeypatch):
    (tmp_path / "small.yaml").write_text(NET)
    (tmp_path / "solver.yaml").write_text(SOLVER.format(1))
    (tmp_path / "several.yaml").write_text(SOLVER.format(4))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def answer(capsys, *argv):
    assert main([*argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def planned(solver="solver.yaml", policies="liveness", **given):
    return minidnn.plan(solver, policies, gpu="k40", **given)


def test_a_row_says_how_quick_the_ranks_are(folder):
    found = planned(ranks=4, link=SLOW)
    (row,), (one,) = found, planned(ranks=1)
    assert (found.document.ranks, found.document.link) == (4, "0.1 GB/s and 1 µs")
    assert row.samples_per_second == pytest.approx(4 * 4 / row.step_seconds)
    assert row.efficiency == pytest.approx(row.samples_per_second / (4 * one.samples_per_second))
    assert one.efficiency == 1 and one.exposed_seconds == 0 and one.sent_bytes == 0
    assert 0 < row.exposed_seconds <= row.net_seconds and row.efficiency < 1
    learned = 4 * (8 * 3 * 9 + 8 + 2 * (8 * 8 * 9 + 8) + 5 * 8 * 36 + 5)
    assert row.sent_bytes == 2 * 3 * learned + 3 * 4, "small tensors are the first rank's; and one objective"
    (quick,) = planned(ranks=4, link=QUICK)
    assert quick.exposed_seconds < row.exposed_seconds and quick.samples_per_second > row.samples_per_second
    assert "Ranks are linked by 0.1 GB/s and 1 µs." in found.notes


def test_an_iteration_has_all_micro_batches(folder):
    (row,) = planned("several.yaml", ranks=2, link=SLOW)
    assert row.samples_per_second > 2 * 4 / row.step_seconds, "the last of four has the exchange"
    (single,) = planned("several.yaml", ranks=1)
    assert row.efficiency == pytest.approx(row.samples_per_second / 2 / single.samples_per_second)


@pytest.mark.parametrize("policy", ["best", "vdnn_all:m", "layrub:p", "accudnn:p", "baseline:p"])
def test_policies_plan_ranks(folder, policy):
    (row,) = planned(policies=policy, ranks=2, link=SLOW, budget="1MiB")
    assert row.fits and row.exposed_seconds > 0 and row.step_seconds >= (row.bound_seconds or 0)


def test_other_studies_simulate_ranks(folder, capsys):
    argv = ("--ranks", "2", "--link", SLOW, "--gpu", "k40")
    rows = answer(capsys, "compare", "solver.yaml", "--policies", "baseline,liveness", *argv)["rows"]
    assert all(row["exposed_seconds"] > 0 for row in rows)
    assert main(["compare", "solver.yaml", "--policies", "liveness", *argv[:4]]) == 0, (
        "on a device, too, it runs nothing"
    )
    assert "efficiency" in capsys.readouterr().out
    layers = answer(capsys, "time", "solver.yaml", *argv)["rows"]
    assert next(row for row in layers if row["layer"] == "net")["update_seconds"] > 0
    found = answer(capsys, "search", "solver.yaml", "--max", "batch", "--policy", "liveness", "--budget", "1MiB", *argv)
    assert found["ranks"] == 2 and found["rows"][0]["batch"] > 4
    alone = answer(
        capsys, "search", "solver.yaml", "--max", "batch", "--policy", "liveness", "--budget", "1MiB", *argv[4:]
    )
    assert alone["rows"][0]["batch"] > found["rows"][0]["batch"], "rows of gradients take bytes"


# ---- curves


def test_a_curve_says_where_it_stops_paying(folder, capsys):
    argv = ("plan", "small.yaml", "--gpu", "k40", "--ranks", "1,2,4,...,64", "--link", "10GB,20us")
    found = answer(capsys, *argv)
    rows = found["rows"]
    assert found["kind"] == "scaling" and [row["ranks"] for row in rows] == [1, 2, 4, 8, 16, 32, 64]
    assert rows[0]["efficiency"] == 1 and rows[-1]["efficiency"] < 0.5
    last, beyond = report.pays(rows)
    assert beyond["saved_without_latency_seconds"] > beyond["saved_without_bytes_seconds"]
    for name in ("t.svg", "t.html", "t.csv"):
        assert main([*argv, "--report", name]) == 0
    said = capsys.readouterr().out
    assert f"liveness pays off up to {many(last['ranks'], 'rank')}." in said and "The reason is latency" in said
    assert "so compute cannot hide all of it" in said
    picture, page = (folder / "t.svg").read_text(), (folder / "t.html").read_text()
    assert picture.count("<circle") == 7 + 1 and f"liveness pays off up to {last['ranks']}" in picture
    assert "Where more ranks stop paying off" in page and "<script" not in page


def test_the_reason_may_be_bandwidth(folder):
    found = minidnn.scaling("small.yaml", (1, 2, 4, 8), gpu="k40", link="10MB,1ns")
    assert any("The reason is bandwidth" in sentence for sentence in found.remarks())
    quick = minidnn.scaling("small.yaml", (1, 2, 4), gpu="k40", batch=1024, link=QUICK)
    assert "liveness pays off up to 4 ranks, the most that were asked for." in quick.remarks()
    assert all(row.efficiency > 0.9 for row in quick)


def test_a_refused_number_has_a_row(folder):
    (one, two) = minidnn.scaling("small.yaml", (1, 64), gpu="k40", budget="300KiB", policies="liveness")
    assert one.fits and not two.fits and "budget" in two.why and two.efficiency is None


def test_rows_of_a_batch_that_is_divided(folder):
    rows = minidnn.scaling("small.yaml", (1, 2, 4, 8), gpu="k40", global_batch=16, link=SLOW)
    assert [row.batch for row in rows] == [16, 8, 4, 2]
    with pytest.raises(InvalidInput, match="16 does not divide among 3 ranks, 3 equal parts; 15 and 18 do"):
        minidnn.scaling("small.yaml", (1, 3), gpu="k40", global_batch=16)


def test_tune_plans_its_ranks(folder, capsys):
    argv = ("tune", "solver.yaml", "--gpu", "k40", "--budget", "1MiB", "--policy", "liveness", "--link", SLOW)
    several = answer(capsys, *argv, "--ranks", "1,2,4")
    best = next(row for row in several["rows"] if row["batch"] == several["best"])
    assert several["ranks"] == 4 and 0 < best["efficiency"] < 1 and best["exposed_seconds"] > 0
    last = several["scaling"][-1]
    assert last["ranks"] == 4 and last["batch"] == several["best"]
    assert last["samples_per_second"] == pytest.approx(best["samples_per_second"])
    assert last["efficiency"] == pytest.approx(best["efficiency"])
    assert several["solver"]["iter_size"] == 4
    assert main([*argv, "--gpus", "2"]) == 0
    assert "2 ranks, linked by 0.1 GB/s and 1 µs:" in capsys.readouterr().out
    assert main([*argv[:2], "--measure", "--ranks", "2"]) == 2
    assert "leave out --ranks 2" in capsys.readouterr().err


# ---- what is asked wrongly


@pytest.mark.parametrize(
    "argv, says",
    [
        (["plan", "solver.yaml", "--link", "pcie4"], "give their number (--ranks N)"),
        (["plan", "solver.yaml", "--ranks", "2", "--link", "pcie"], "did you mean 'pcie"),
        (["plan", "solver.yaml", "--ranks", "2,x"], "'x' is not a whole number"),
        (["plan", "solver.yaml", "--ranks", "...,4"], "stands between rising numbers"),
        (["plan", "solver.yaml", "--ranks", "1,2", "--listing"], "--listing takes one plan"),
        (["plan", "solver.yaml", "--ranks", "100000,2"], "from 1 to 65536"),
        (
            ["plan", "several.yaml", "--ranks", "2", "--global-batch", "12"],
            "2 ranks x iter_size 4, 8 equal parts; 8 and 16",
        ),
        (["plan", "solver.yaml", "--ranks", "2", "--global-batch", "8", "--batch", "4"], "give one"),
        (["compare", "solver.yaml", "--ranks", "1,2"], "not a whole number"),
        (["train", "solver.yaml", "--ranks", "2"], "mpiexec -n 2 minidnn train"),
    ],
)
def test_wrong_numbers_are_told(folder, capsys, argv, says):
    try:
        assert main(argv) == 2
    except SystemExit as refused:
        assert refused.code == 2
    assert says in capsys.readouterr().err


def test_ranks_are_simulated_only(folder):
    with pytest.raises(InvalidInput, match="mpiexec -n 2"):
        minidnn.Solver("solver.yaml", ranks=2)
    with pytest.raises(InvalidInput, match="mpiexec -n 2"):
        minidnn.Session("small.yaml", ranks=2)
    with pytest.raises(InvalidInput, match="ranks 0"):
        minidnn.plan("small.yaml", ranks=0)


def test_a_batch_is_divided(folder):
    with minidnn.Solver("several.yaml", global_batch=8, max_iter=1) as solver:
        assert solver.net.graph("TRAIN").layers[0].tops[0].tensor.shape[0] == 2
        (step,) = [event for event in solver.run() if type(event).__name__ == "Step"]
        assert step.images == 8


def test_pictures_and_traces_have_a_lane_for_the_net(folder):
    argv = ["plan", "solver.yaml", "--gpu", "k40", "--ranks", "2", "--link", SLOW, "--report"]
    assert main([*argv, "t.svg", "--trace", "t.json"]) == 0 and main([*argv, "t.html"]) == 0
    picture, page = (folder / "t.svg").read_text(), (folder / "t.html").read_text()
    assert "between ranks" in picture and "net.all_to_all" in picture and "net.all_to_all" in page
    events = json.loads((folder / "t.json").read_text())["traceEvents"]
    (track,) = {e["tid"] for e in events if e["name"] == "thread_name" and e["args"]["name"] == "between ranks"}
    assert {e["name"] for e in events if e.get("tid") == track and e["ph"] == "X"} >= {
        "net.all_to_all",
        "net.all_gather",
    }
    alone = ["plan", "solver.yaml", "--gpu", "k40", "--report", "t.svg"]
    assert main(alone) == 0 and "between ranks" not in (folder / "t.svg").read_text()


@pytest.mark.slow
def test_measured_costs_serve_ranks(folder, capsys):
    found = answer(capsys, "profile", "solver.yaml", "--ranks", "2", "--device", "reference")
    assert any(row["op_kind"] == "gradient.merge" for row in found["rows"]) and found["ranks"] == 2
    (row,) = (
        told := answer(capsys, "plan", "solver.yaml", "--ranks", "2", "--device", "reference", "--costs", "measured")
    )["rows"]
    assert told["origin"] == "measured" and row["exposed_seconds"] > 0
    assert answer(capsys, "time", "solver.yaml", "--algorithms", "--ranks", "2", "--device", "reference")["rows"]


@pytest.mark.slow
def test_a_frontier_of_ranks(folder):
    found = minidnn.frontier("small.yaml", gpu="k40", ranks=2, link=SLOW, points=2)
    alone = minidnn.frontier("small.yaml", gpu="k40", ranks=1, points=2)
    assert found[-1].step_seconds > alone[-1].step_seconds and found.document.least_bytes > alone.document.least_bytes
