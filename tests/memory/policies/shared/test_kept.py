"""Plans that are kept: a second start finds the very plan; another net, costs or budget does not."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace

import pytest

from minidnn.costs import Drag, profile
from minidnn.files import cache
from minidnn.memory.joint.planner import Planner
from minidnn.memory.planning import arrange, unproved
from minidnn.memory.policies.shared import kept
from minidnn.programs.autodiff import differentiate
from minidnn.visible import say_once
from minidnn.zoo.cifar10 import Cifar10Quick
from tests.support.programs import PROGRAMS, chain, costs


@pytest.fixture(autouse=True)
def any_length(monkeypatch, own_cache):
    monkeypatch.setattr(kept, "LEAST", 0)


def planned(program, device, budget) -> str:
    return str(arrange([program], "best", device, budget).schedules["TRAIN"])


def test_a_second_start_plans_nothing_and_has_the_same_schedule(monkeypatch):
    program, device = PROGRAMS["inception"](), costs(bandwidth=1e9)
    budget = arrange([program], "liveness:p", device).arena * 3 // 4
    first = planned(program, device, budget)
    bound = arrange([program], "best", device, budget).schedules["TRAIN"].plan.bound
    monkeypatch.setattr(Planner, "within", lambda self, budget: pytest.fail("planned again"))
    again = arrange([program], "best", device, budget)
    assert str(again.schedules["TRAIN"]) == first
    assert bound is not None and again.schedules["TRAIN"].plan.bound == bound


def test_what_a_plan_depends_on_is_in_its_name():
    program, device = chain(), costs()
    places = {
        kept.place(program, device, 1 << 20),
        kept.place(program, device, 1 << 21),
        kept.place(chain(5), device, 1 << 20),
        kept.place(chain(size=32), device, 1 << 20),
        kept.place(program, costs(bandwidth=2e9), 1 << 20),
        kept.place(program, replace(device, drag=Drag((0.1, 0.1), (0.1, 0.1))), 1 << 20),
        kept.place(program, replace(device, choices=lambda op: device.choices(op)[:1]), 1 << 20),
    }
    assert len(places) == 7 and kept.place(chain(), costs(), 1 << 20) in places


def test_the_oldest_go(monkeypatch):
    monkeypatch.setattr(kept, "MOST", 3)
    program, device = chain(), costs()
    whole = arrange([program], "liveness:p", device).arena
    for k in range(5):
        arrange([program], "best", device, whole + k)
    assert len(list((cache.home() / "plans").iterdir())) == 3


def test_a_damaged_file_is_as_if_it_were_not_there():
    program, device = chain(), costs()
    budget = arrange([program], "liveness:p", device).arena
    first = planned(program, device, budget)
    (file,) = (cache.home() / "plans").iterdir()
    file.write_bytes(file.read_bytes()[:-7])
    assert planned(program, device, budget) == first


def test_a_program_in_parts_is_found_again(monkeypatch):
    """The plan is of the program that @N has made: its parts are not made a second time."""
    program, device = differentiate(Cifar10Quick().with_batch(8).graph("TRAIN")), profile("k40")
    budget = arrange([program], "liveness@2", device).arena * 9 // 10
    first = arrange([program], "best@2", device, budget).schedules["TRAIN"]
    assert first.program.parts
    monkeypatch.setattr(Planner, "within", lambda self, budget: pytest.fail("planned again"))
    again = arrange([program], "best@2", device, budget).schedules["TRAIN"]
    assert str(again) == str(first) and again.program.parts == first.program.parts


def _without(name):
    return lambda plan: {key: value for key, value in plan.items() if key != name}


def _offloads(**changed):
    return lambda plan: plan | {"offloads": [offload | changed for offload in plan["offloads"]]}


WRONG = {
    "no plan": lambda plan: None,
    "no order": _without("order"),
    "a field of another version": lambda plan: plan | {"version": 2},
    "an unknown op": lambda plan: plan | {"order": ["nobody.forward", *plan["order"]]},
    "an unknown algorithm": lambda plan: plan | {"algorithm": {op: ["magic", 7] for op in plan["algorithm"]}},
    "parts of another program": lambda plan: plan | {"parts": [{"count": 2, "ops": ["nobody.forward"]}]},
    "offload intervals at no point": _offloads(prefetch_at="nobody.forward"),
    "offload intervals that end before they begin": _offloads(
        prefetch_at=None, needed_at=None
    ),  # this is found by the lowering
    "an op too few": lambda plan: plan | {"order": plan["order"][:-1]},  # and these by the proof
    "another order": lambda plan: plan | {"order": [*plan["order"][1:], plan["order"][0]]},
    "shared bytes": lambda plan: plan | {"share": {name: next(iter(plan["tensors"])) for name in plan["tensors"]}},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_kept_plan_that_cannot_be_used_is_made_anew(capsys, wrong):
    program, device = chain(), costs()
    budget = arrange([program], "liveness:p", device).arena * 3 // 4
    first = planned(program, device, budget)
    (file,) = (cache.home() / "plans").iterdir()
    found = json.loads(zlib.decompress(cache.kept(file)))
    assert found["plan"]["offloads"]
    cache.keep(file, zlib.compress(json.dumps({**found, "plan": WRONG[wrong](found["plan"])}).encode()), "")
    damaged = file.read_bytes()
    say_once.cache_clear()
    assert planned(program, device, budget) == first
    assert f"the kept plan {file.name} cannot be used, and is made again: " in capsys.readouterr().err
    assert file.read_bytes() != damaged


def test_a_study_that_proves_nothing_makes_it_anew_too(monkeypatch):
    program, device = chain(), costs()
    first = unproved([program], "best", device, 1 << 19)["TRAIN"]
    monkeypatch.setattr(
        kept.plan_file, "plan_of", lambda *args: replace(first.plan, offloads=first.plan.offloads[:1] * 2)
    )
    assert str(unproved([program], "best", device, 1 << 19)["TRAIN"]) == str(first)


def test_an_error_that_no_kept_plan_has_to_do_with_is_raised(monkeypatch):
    def failing(*args):
        raise ZeroDivisionError

    monkeypatch.setattr("minidnn.memory.planning.verify_all", failing)
    with pytest.raises(ZeroDivisionError):
        planned(chain(), costs(), 1 << 20)
    with pytest.raises(ZeroDivisionError):  # now one was taken: it is not to blame
        planned(chain(), costs(), 1 << 20)


def test_short_programs_are_planned_anew(monkeypatch):
    monkeypatch.setattr(kept, "LEAST", 1000)
    assert kept.place(chain(), costs(), 1 << 20) is None


def test_nothing_is_kept_where_planning_is_measured(monkeypatch):
    assert kept.place(chain(), costs(), 1 << 20) is not None
    monkeypatch.setattr(kept, "KEEPS", False)
    assert kept.place(chain(), costs(), 1 << 20) is None
