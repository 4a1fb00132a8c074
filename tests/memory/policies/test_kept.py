"""Plans that are kept: a second start finds the very plan; another net, costs or budget does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minidnn.costs import Drag
from minidnn.files import cache
from minidnn.memory.joint.planner import Planner
from minidnn.memory.planning import arrange
from minidnn.memory.policies import kept
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


def test_short_programs_are_planned_anew(monkeypatch):
    monkeypatch.setattr(kept, "LEAST", 1000)
    assert kept.place(chain(), costs(), 1 << 20) is None
