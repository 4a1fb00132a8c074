"""How a net is run, as one value: what is given goes before a solver file, which goes before the defaults."""

from __future__ import annotations

from dataclasses import fields

import pytest

from minidnn.costs import Heuristic, Staging, profile
from minidnn.errors import InvalidInput
from minidnn.formats import InvalidFormat
from minidnn.jobs.keywords import Course, SolverFields, apart
from minidnn.jobs.options import OPTIONS
from minidnn.jobs.setting import Given, Setting
from minidnn.layers.facts import FACTS
from minidnn.programs.host_residents import STATES
from minidnn.schema import SolverParameter
from minidnn.schema.solver import Minidnn


def solver(**own) -> SolverParameter:
    return SolverParameter.model_validate({"base_lr": 0.1, "lr_policy": "fixed", "minidnn": own})


def test_nothing_said_is_the_default():
    assert Setting.of({}) == Setting() == Setting.of({}, solver())
    assert Setting.of(dict.fromkeys(("device", "policy", "budget", "format", "facts", "seed"))) == Setting()


def test_what_is_given_goes_before_the_file():
    file = solver(
        policy="vdnn_all:m", budget="64MiB", device="reference", format="float16", host_ring="1MiB", compress=True
    )
    found = Setting.of({}, file)
    assert (found.policy, found.budget, found.device, found.format) == ("vdnn_all:m", 64 << 20, "reference", "float16")
    assert found.staging == Staging(1 << 20, True)
    found = Setting.of({"policy": "liveness:p", "budget": "2GB", "device": "cpu", "host_ring": 1 << 21}, file)
    assert (found.policy, found.budget, found.device, found.format) == ("liveness:p", 2 * 10**9, "cpu", "float16")
    assert found.staging == Staging(1 << 21, True)


def test_of_the_ways_to_pin_the_one_that_is_given_replaces_the_file_s():
    on_demand = Staging(0, on_demand=True)
    assert Setting.of({}, solver(pin_on_demand=True)).staging == on_demand
    assert Setting.of({"host_ring": "1MiB"}, solver(pin_on_demand=True)).staging == Staging(1 << 20)
    assert Setting.of({"pin_on_demand": True}, solver(host_ring="1MiB")).staging == on_demand
    with pytest.raises(InvalidInput, match="give one"):
        Setting.of({}, solver(host_ring="1MiB", pin_on_demand=True))


def test_a_placement_is_a_heuristic_in_parts_of_which_each_may_be_left_out():
    assert Setting.of({}).placement is None
    assert Setting.of({"placement": "two_ended"}).placement == Heuristic("best", True, "start")
    assert Setting.of({"placement": "size:worst:two_ended"}).placement == Heuristic("worst", True, "size")


def test_given_costs_say_how_bytes_lie_on_the_host():
    file = solver(host_ring="1MiB", compress=True)
    assert Setting.of({"costs": profile("k40")}, file).staging is None
    assert Setting.of({"costs": profile("k40"), "host_ring": "2MiB"}, file).staging == Staging(2 << 20)


def test_facts_by_name_and_as_a_value():
    assert Setting.of({"facts": "layrub"}).facts is Setting.of({"facts": FACTS["layrub"]}).facts is FACTS["layrub"]


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"budget": "64 MB of it"}, InvalidInput, "budget: '64 MB of it' is not a size"),
        ({"host_budget": -1}, InvalidInput, "host_budget: -1 is not a size: it must be at least one byte"),
        ({"host_ring": "much"}, InvalidInput, "host_ring: 'much' is not a size"),
        ({"compress": True}, InvalidInput, 'host_ring="64MiB", or pin_on_demand=True'),
        ({"pin_on_demand": True, "host_ring": "1MiB"}, InvalidInput, "host_ring 1.00 MiB at most: give one"),
        ({"peer": "nvlink4"}, InvalidInput, 'peer="nvlink4": expected a link and the bytes behind it'),
        ({"peer": ["8xnvlink4+ib100:1GiB"]}, InvalidInput, "one link leads to a peer"),
        ({"peer": "nvlink4:much"}, InvalidInput, "peer: 'much' is not a size"),
        ({"placement": "bets"}, InvalidInput, "did you mean 'best'"),
        ({"placement": "best:worst"}, InvalidInput, "one of first, best, worst, and one order of size"),
        ({"keep": "ip1"}, InvalidInput, r"use keep=\['ip1'\]"),
        ({"facts": "layrubb"}, InvalidInput, "did you mean 'layrub'"),
        ({"format": "float61"}, InvalidFormat, "did you mean 'float16'"),
    ],
)
def test_what_it_cannot_be(given, kind, said):
    with pytest.raises(kind, match=said):
        Setting.of(given)


def test_every_field_can_be_given_and_every_solver_field_is_a_keyword():
    """The typed keywords that editors complete are those that there are."""
    staging, derived = (
        {"host_ring", "pin_on_demand", "compress", "peer"},
        {"staging", "peers", "named", "measured", "estimated"},
    )
    assert set(Given.__annotations__) - staging == {f.name for f in fields(Setting)} - derived
    today = {name for name, info in SolverParameter.model_fields.items() if not info.json_schema_extra["old"]}
    assert set(SolverFields.__annotations__) - set(Given.__annotations__) == today | set(Course.__annotations__)
    assert set(Course.__annotations__) == set(Minidnn.model_fields) - set(Given.__annotations__) - {"loss_scale"}
    assert next(option for option in OPTIONS if option.name == "state").choices == STATES
    assert set(Given.__annotations__) == {option.name for option in OPTIONS if option.keyword}
    assert apart({"policy": "layrub", "max_iter": 3}) == ({"policy": "layrub"}, {"max_iter": 3})
