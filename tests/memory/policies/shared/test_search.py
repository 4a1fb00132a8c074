"""The search for a room ends near the largest one whose placed plan keeps the budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidnn.memory.policies.shared.search import Rooms
from tests.support.examples import examples

BUDGET = 1000


def searched(rooms: Rooms, over) -> list[int]:
    tried = []
    for room in rooms:
        tried.append(room)
        rooms.over = over(room)
    return tried


def test_a_plan_that_fits_the_budget_s_room_ends_the_search():
    assert searched(Rooms(BUDGET, 8, 10), lambda room: -50) == [BUDGET]


def test_it_steps_back_by_what_is_too_much_and_twice_as_far_each_time():
    assert searched(Rooms(BUDGET, 4, 10), lambda room: 60) == [1000, 940, 820, 580]


@pytest.mark.parametrize(("again", "last"), [(True, [820, 880, 860]), (False, [820, 880, 850])])
def test_behind_a_room_that_fits_it_halves_or_steps_back_again(again, last):
    rooms = Rooms(BUDGET, 5, 10, again=again)
    assert searched(rooms, lambda room: 60 if room > 900 else 20 if room > 850 else 0) == [1000, 940, *last]


def test_it_steps_to_no_room_that_is_known_to_fit():
    assert searched(Rooms(BUDGET, 3, 10, fitting=600, again=True), lambda room: 500) == [1000, 800, 700]


@given(st.integers(0, BUDGET), st.integers(1, 300), st.booleans())
@examples(60)
def test_the_largest_room_is_near(largest, much, again):
    rooms = Rooms(BUDGET, 100, 16, again=again)
    tried = searched(rooms, lambda room: 0 if room <= largest else much)
    assert len(set(tried)) == len(tried) and max(tried) == BUDGET
    assert rooms.fitting <= largest < rooms.fitting + 16 + 1 or largest == BUDGET == rooms.fitting
