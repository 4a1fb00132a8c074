"""The largest batch or depth within a budget: against trying every size, in time, proved, and from the command line."""

import json
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import pytest

from minidnn.cli.main import main
from minidnn.costs import profile
from minidnn.jobs import search
from minidnn.jobs.search import largest
from minidnn.jobs.series import Series
from minidnn.memory.budget import BudgetError
from minidnn.memory.joint.variants import least_budget
from minidnn.memory.planning import arrange, unproved
from minidnn.memory.policies import parts
from minidnn.memory.proof.verify import ScheduleError
from minidnn.programs.autodiff import differentiate
from minidnn.zoo.cifar10 import Cifar10Quick
from tests.support.slow import usual_are

COSTS = profile("k40")
NET = Cifar10Quick()
BATCHES = Series(1, 1, 10_000)
MIB = 2**20


def programs(batch):
    return [differentiate(NET.with_batch(batch).graph("TRAIN"))]


def fits(batch, policy, budget, host_budget=None):
    try:
        arrange(programs(batch), policy, COSTS, budget, host_budget)
    except BudgetError:
        return False
    return True


@pytest.mark.parametrize("policy", ["baseline:m", "liveness:m", "vdnn_all:m", "vdnn_conv:p", "vdnn_dyn"])
@pytest.mark.parametrize("budget", [3 * MIB, 50 * MIB])
def test_no_batch_beside_the_found_one_fits(policy, budget):
    found = largest(programs, BATCHES, policy, COSTS, budget, (4, 16))
    assert not found.ended and found.refused.size == found.size + 1
    assert fits(found.size, policy, budget) and not fits(found.size + 1, policy, budget)
    assert found.arrangement.arena <= budget < found.refused.arena
    assert found.arrangement.schedules["TRAIN"].program.inputs[0].shape[0] == found.size
    assert len(found.tried) <= 12 and found.seconds > 0


def test_the_host_s_budget_is_kept_too():
    device, host = 50 * MIB, 9 * MIB
    free = largest(programs, BATCHES, "vdnn_all:m", COSTS, device, (4, 16))
    found = largest(programs, BATCHES, "vdnn_all:m", COSTS, device, (4, 16), host_budget=host)
    assert found.size < free.size and found.arrangement.host <= host
    assert fits(found.size, "vdnn_all:m", device, host) and not fits(found.size + 1, "vdnn_all:m", device, host)
    assert len(found.tried) <= 12


def test_steps_are_kept():
    found = largest(programs, Series(16, 16, 10_000), "liveness:m", COSTS, 50 * MIB, (16, 64))
    assert found.size % 16 == 0 and found.refused.size == found.size + 16
    assert fits(found.size, "liveness:m", 50 * MIB) and not fits(found.size + 16, "liveness:m", 50 * MIB)


def test_the_end_of_the_series_is_an_end():
    found = largest(programs, Series(1, 1, 20), "liveness:m", COSTS, 50 * MIB, (1, 8))
    assert found.size == 20 and found.refused is None and not found.ended


def test_nothing_fits():
    found = largest(programs, BATCHES, "liveness:m", COSTS, MIB, (4, 16))
    assert found.size is None and found.arrangement is None and found.refused.size == 1 and not found.ended


def test_out_of_time_says_so():
    found = largest(programs, BATCHES, "liveness:m", COSTS, 50 * MIB, (4, 16), seconds=0.0)
    assert found.ended and found.size is None and found.tried == ()


def test_ends_between_tries_with_what_it_has(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(search.time, "monotonic", lambda: clock.now)

    def slow(batch):
        clock.now += 10.0
        return programs(batch)

    found = largest(slow, BATCHES, "liveness:m", COSTS, 50 * MIB, (4, 16), seconds=25.0)
    assert len(found.tried) == 3 and found.seconds == 30.0 and found.ended
    assert found.size is not None and found.refused is None and fits(found.size, "liveness:m", 50 * MIB)


def test_what_is_found_is_proved(monkeypatch):
    def overlapping(*args):
        return {name: replace(s, offset=dict.fromkeys(s.offset, 0)) for name, s in unproved(*args).items()}

    monkeypatch.setattr(search, "unproved", overlapping)
    with pytest.raises(ScheduleError):
        largest(programs, BATCHES, "liveness:m", COSTS, 50 * MIB, (4, 16))


@pytest.mark.parametrize("wave", [0, 40, 4000])
def test_bytes_need_not_grow_evenly(monkeypatch, wave):
    """Whatever a policy makes of a size, the found one fits, its neighbour does not, and few are tried."""

    def plan(size, policy, costs, told):
        arena = 7000 + 100 * size + (size * 7919) % 101 * wave // 100 + (size // 500) ** 2 * wave
        return {"TRAIN": SimpleNamespace(arena=arena, host_bytes=0, host_shared=0, ring=0, store_bytes=0, disk_bytes=0)}

    monkeypatch.setattr(search, "unproved", plan)
    monkeypatch.setattr(search, "verify_all", lambda schedules, budget: None)
    found = largest(lambda size: size, Series(1, 1, 10**6), "any", COSTS, 400_000, (10, 40))
    assert found.refused.size == found.size + 1 and found.arrangement.arena <= 400_000 < found.refused.arena
    assert len(found.tried) <= 30


def test_a_policy_that_uses_what_there_is(monkeypatch):
    """Told more, it takes more: only what it takes at its leanest tells how far it goes."""

    def plan(size, policy, costs, told):
        lean, easy = 1000 + 10 * size, 1000 + 90 * size
        return {
            "TRAIN": SimpleNamespace(
                arena=max(lean, min(easy, told)), host_bytes=0, host_shared=0, ring=0, store_bytes=0, disk_bytes=0
            )
        }

    monkeypatch.setattr(search, "unproved", plan)
    monkeypatch.setattr(search, "verify_all", lambda schedules, budget: None)
    found = largest(lambda size: size, Series(1, 1, 10**6), "any", COSTS, 100_000, (10, 40))
    assert found.size == 9900 and len(found.tried) <= 6


@pytest.mark.parametrize("name, paper", [("superneurons_alexnet", 1792), ("vgg16", 224)])
def test_superneurons_reaches_the_paper_s_batches(capsys, unbounded, name, paper):
    """Its Table 5, on 12 GB: of the nets that take a second."""
    argv = ("--max", "batch", "--budget", "12GB", "--policy", "superneurons", "--step", "16")
    (row,) = json.loads(answer(capsys, name, *argv).out)["rows"]
    assert row["batch"] >= paper and row["peak_bytes"] <= 12 * 10**9 < row["next_peak_bytes"]


@pytest.mark.parametrize("policy, count", [("vdnn_all:m@8", 8), ("liveness:m@3", 3)])
def test_in_parts_no_multiple_beyond_the_found_one_fits(policy, count):
    """A batch that no number from 8 to 15 divides runs as a whole: what halving made of that was called the largest."""
    budget, series = 12 * MIB, replace(BATCHES, batches=True)
    found = largest(programs, series, policy, COSTS, budget, (4, 16))
    assert found.multiple == count and found.size % count == 0 and found.refused.size == found.size + count
    for beyond in range(found.size, 2 * found.size, count):
        assert fits(beyond, policy, budget) == (beyond == found.size), beyond


def test_a_policy_that_chooses_parts_is_tried_at_rounder_batches(monkeypatch):
    """Batches of multiples of 8 need an eighth of the bytes."""

    def plan(size, policy, costs, told):
        arena = size * (1 if size % 8 == 0 else 8)
        return {"TRAIN": SimpleNamespace(arena=arena, host_bytes=0, host_shared=0, ring=0, store_bytes=0, disk_bytes=0)}

    monkeypatch.setattr(search, "unproved", plan)
    monkeypatch.setattr(search, "verify_all", lambda schedules, budget: None)
    odd = largest(lambda size: size, BATCHES, "best", COSTS, 1007, (3, 5))
    assert odd.size == 125, "depths have no parts"
    found = largest(lambda size: size, replace(BATCHES, batches=True), "best", COSTS, 1007, (3, 5))
    assert found.size == 1000 and not found.ended and found.refused.size > found.size


def test_multiples_of_a_series():
    assert Series(6, 6, 100).multiples(8) == Series(24, 24, 100)
    assert Series(1, 1, 7).multiples(8).top == -1
    found = largest(programs, Series(1, 1, 7, batches=True), "liveness:m@8", COSTS, 50 * MIB, (1, 7))
    assert found.size is None and not found.tried and not found.ended
    assert [parts(name) for name in ("best", "best@4", "liveness:m@8", "liveness", "a@b.plan")] == [None, 4, 8, 1, 1]


@pytest.fixture
def unbounded(monkeypatch):
    """The size that no plan places is not looked for: that takes longest, and has tests of its own."""
    monkeypatch.setattr("minidnn.api.search.excluded", lambda *args: None)


def test_series_have_numbers():
    series = Series(137, 3, 99_999)
    assert [series[0], series[1], series.number(137), series.number(141), series.number(-5)] == [137, 140, 0, 1, 0]
    assert series.number(1e30) == series.top and series[series.top] <= 99_999 < series[series.top + 1]


@cache
def placed(budget):
    """The largest batch that a policy places."""
    return largest(programs, BATCHES, "vdnn_dyn", COSTS, budget, (1, 4)).size


@pytest.mark.parametrize("found", usual_are([None, 400], [None, 1, 40, 400]))
def test_the_bound_excludes_the_size_that_it_names_and_not_the_one_before(found):
    budget, asked = 12 * MIB, []
    beyond = search.excluded(programs, replace(BATCHES, batches=True), COSTS, budget, found, "batch", asked.append)
    needs = [least_budget(programs(size), COSTS, parts=False) for size in (beyond.batch - 1, beyond.batch)]
    assert needs[0] <= budget < needs[1] == beyond.least_bytes and len(asked) < 20
    assert placed(budget) < beyond.batch
    assert search.excluded(programs, Series(1, 1, 2), COSTS, budget, 1, "batch", asked.append) is None


# -- from the command line


def answer(capsys, *argv, code=0):
    assert main(["search", *argv, "--gpu", "k40", "--json"]) == code
    return capsys.readouterr()


def test_batches_of_a_model(capsys):
    out = answer(capsys, "cifar10_quick", "--max", "batch", "--budget", "50MiB", "--policies", "baseline:m,vdnn_all:m")
    base, vdnn = json.loads(out.out)["rows"]
    assert (base["policy"], base["net"], base["depth"]) == ("baseline:m", "cifar10_quick", None)
    assert 0 < base["batch"] < vdnn["batch"] == vdnn["next"] - 1
    for row in (base, vdnn):
        assert row["live_peak_bytes"] <= row["arena_bytes"] <= row["peak_bytes"] <= row["budget_bytes"] == 50 * MIB
        assert (
            row["next_peak_bytes"] > row["budget_bytes"]
            and row["plans"] >= 4
            and row["search_seconds"] > 0
            and not row["ended"]
        )
    excluded = json.loads(out.out)["excluded"]
    assert excluded["batch"] > vdnn["batch"] and excluded["least_bytes"] > 50 * MIB
    assert f"vdnn_all:m: batch {vdnn['batch']} fits" in out.err and "at its leanest" in out.err


def test_sizes_of_images(capsys, unbounded):
    argv = (
        "--max",
        "size",
        "--batch",
        "100",
        "--step",
        "8",
        "--budget",
        "50MiB",
        "--policies",
        "baseline:m,vdnn_all:m",
    )
    base, moved = json.loads(answer(capsys, "cifar10_quick", *argv).out)["rows"]
    assert (base["batch"], base["depth"]) == (100, None) and 32 <= base["size"] < moved["size"]
    for row in (base, moved):
        assert row["size"] % 8 == 0 and row["next"] == row["size"] + 8 and row["next_peak_bytes"] > row["budget_bytes"]


def test_sizes_of_images_want_images(tmp_path, capsys):
    inputs = "- {name: x, type: Input, top: [x, y], input_param: {shape: [{dim: [2, 3]}, {dim: [2]}]}}\n"
    loss = "- {name: z, type: SoftmaxWithLoss, bottom: [x, y], top: z}\n"
    (tmp_path / "flat.yaml").write_text(f"name: flat\nlayer:\n{inputs}{loss}")
    said = answer(capsys, str(tmp_path / "flat.yaml"), "--max", "size", code=2).err
    assert "--max size: no input of flat is a batch of images, (N, C, H, W)" in said


def test_no_image_is_smaller_than_its_net(capsys):
    argv = ("--max", "size", "--batch", "1", "--policies", "liveness:m", "--budget", "1MiB")
    (row,) = json.loads(answer(capsys, "alexnet", *argv).out)["rows"]
    assert row["size"] is None and row["next"] == 64, "the last pooling of images of 32x32 has nothing to pool"


def test_a_solver_s_momentum_counts(tmp_path, capsys):
    def most(solver: str) -> int:
        (tmp_path / "solver.yaml").write_text(
            f"net: cifar10_quick\nbase_lr: 0.01\nlr_policy: fixed\nmax_iter: 1\n{solver}"
        )
        argv = ("--max", "batch", "--budget", "8MiB", "--policy", "liveness:m")
        (row,) = json.loads(answer(capsys, str(tmp_path / "solver.yaml"), *argv).out)["rows"]
        return row["batch"]

    assert most("momentum: 0.9") < most("momentum: 0")


@pytest.mark.slow
def test_depths_of_a_family(capsys, monkeypatch):
    monkeypatch.setattr("minidnn.api.search.excluded", lambda *_: None)  # the bound allows depths of thousands here
    argv = ("--max", "depth", "--batch", "1", "--budget", "720MB", "--policy", "liveness:m")
    (row,) = json.loads(answer(capsys, "superneurons_resnet", *argv).out)["rows"]
    assert (
        (row["net"], row["batch"]) == ("superneurons_resnet", 1)
        and row["depth"] >= 137
        and (row["depth"] - 137) % 3 == 0
    )
    assert row["next"] == row["depth"] + 3


def test_a_table_says_what_it_means(capsys):
    argv = ["search", "cifar10_quick", "--max", "batch", "--gpu", "k40", "--policies", "liveness:m"]
    assert main([*argv, "--budget", "100KiB"]) == 0
    out = capsys.readouterr().out
    assert "none" in out and "largest size tried" in out and "stopped" not in out
    assert "No plan that runs each op whole fits batch 1: the bound is" in out
    assert main([*argv, "--budget", "10MiB", "--step", "16"]) == 0
    assert "cifar10_quick, 10.0 MiB" in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv, says",
    [
        (("cifar10_quick", "--max", "batch", "--batch", "3"), "leave out --batch"),
        (("alexnet", "--max", "depth"), "not a family of nets with a free depth"),
        (("superneuron_resnet", "--max", "depth"), "did you mean 'superneurons_resnet'"),
        (("resnet", "--max", "depth", "--step", "4"), "3 apart"),
        (("cifar10_quick", "--max", "batch", "--policies", "livenes"), "did you mean 'liveness'"),
        (("cifar10_quick", "--max", "batch", "--policies", "liveness:m,some.plan"), "is for one size of a net"),
        (
            ("cifar10_quick", "--max", "batch", "--policies", "liveness:m", "--policy", "baseline:m"),
            "exclude each other",
        ),
        (("cifar10_quick", "--max", "batch", "--step", "99999999999"), "there is no batch of more than 2147483647"),
        (("cifar10_quick", "--max", "size", "--step", "65537"), "no image has a side of more than 65536 pixels"),
    ],
)
def test_what_cannot_be_searched(capsys, argv, says):
    assert says in answer(capsys, *argv, code=2).err


def test_what_the_host_s_budget_refuses_says_so(capsys, unbounded):
    argv = [
        "search",
        "cifar10_quick",
        "--max",
        "batch",
        "--gpu",
        "k40",
        "--policies",
        "vdnn_all:m",
        "--host-budget",
        "1KB",
    ]
    assert main(argv) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("vdnn_all:m")]
    assert "none" in line and "on the host" in line


def test_ctrl_c_shows_what_was_found(capsys, monkeypatch):
    def interrupted(make, series, policy, *others):
        if policy == "vdnn_all:m":
            raise KeyboardInterrupt
        return largest(make, series, policy, *others)

    monkeypatch.setattr("minidnn.api.search.largest", interrupted)
    argv = ("cifar10_quick", "--max", "batch", "--budget", "50MiB", "--policies", "baseline:m,vdnn_all:m")
    out = answer(capsys, *argv, code=130)
    (row,) = json.loads(out.out)["rows"]
    assert row["policy"] == "baseline:m" and row["batch"] > 0 and "interrupted" in out.err
