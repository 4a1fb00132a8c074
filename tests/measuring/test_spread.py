"""Medians and their intervals."""

from __future__ import annotations

import numpy as np
import pytest

from minidnn.measuring.spread import Spread


@pytest.mark.parametrize(
    ("count", "first", "last"),  # Conover, table A3: of so many measurements, the order statistics of 95 %
    [(1, 1, 1), (5, 1, 5), (6, 1, 6), (8, 1, 8), (9, 2, 8), (10, 2, 9), (20, 6, 15), (30, 10, 21)],
)
def test_the_interval_lies_between_order_statistics(count, first, last):
    values = np.random.default_rng(count).permutation(np.arange(1, count + 1)).tolist()
    assert Spread.of(values) == Spread((count + 1) / 2, first, last)


@pytest.mark.parametrize("count", [6, 9, 25])
def test_it_holds_the_true_median_as_often_as_it_says(count):
    random = np.random.default_rng(7)
    held = sum(s.low <= np.log(2) <= s.high for s in (Spread.of(random.exponential(1, count)) for _ in range(2000)))
    assert held / 2000 >= 0.94


def test_noise_that_lasts_makes_the_interval_wider():
    """Rounds of which a third, in a row, were disturbed: the plain interval would say that the median is certain."""
    calm, disturbed = [1.0, 1.1, 1.2] * 20, [2.0, 2.1, 2.2] * 6
    plain, in_turn = Spread.of(calm + disturbed), Spread.in_turn(calm + disturbed)
    assert plain.median == in_turn.median == 1.1 and plain.high < 2 <= in_turn.high
    assert Spread.in_turn([3.0, 1.0, 2.0]) == Spread(2, 1, 3)


def test_in_turn_holds_the_true_median_of_measurements_that_depend_on_each_other():
    random = np.random.default_rng(7)
    held = []
    for _ in range(500):
        noise = random.standard_normal(100)
        for i in range(1, 100):
            noise[i] += 0.5 * noise[i - 1]  # as the seconds of steps on two busy cores
        held.append([s.low <= 0 <= s.high for s in (Spread.of(list(noise)), Spread.in_turn(list(noise)))])
    plain, in_turn = np.mean(held, axis=0)
    assert plain < 0.85 and in_turn >= 0.93


def test_what_overlaps_is_not_ranked():
    a, b, c = Spread(1, 0.9, 1.2), Spread(1.3, 1.15, 1.4), Spread(2, 1.3, 2.1)
    assert a.overlaps(b) and b.overlaps(a) and b.overlaps(c) and not a.overlaps(c) and not c.overlaps(a)
