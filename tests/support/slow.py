"""Which cases of a test `make quick` leaves out, marked as slow, and which `make test` does, marked as extended."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest


def quick_are(quick: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """Parameters of a test: those of `values` that are not among `quick` are slow."""
    return _but(quick, values, pytest.mark.slow)


def usual_are(usual: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """Parameters of a test: those of `values` that are not among `usual` are extended, as more of the same."""
    return _but(usual, values, pytest.mark.extended)


def extended_are(extended: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """Parameters of a test: those of `values` that are among `extended` take long, and are extended."""
    extended, values = set(extended), list(values)
    return usual_are([value for value in values if value not in extended], values)


def usual_pairs(*of: Iterable[Any]) -> list[Any]:
    """Parameters of a test: every choice of a value from each of `of`. Usual are as few as there are values in the
    longest, in which every value is at least once; the others are extended. Several parameters that belong together
    are a `pytest.param`."""
    lists = [[_param(value) for value in values] for values in of]
    usual = {tuple(k % len(values) for values in lists) for k in range(max(map(len, lists)))}
    found = []
    for chosen in product(*(range(len(values)) for values in lists)):
        each = [values[k] for values, k in zip(lists, chosen, strict=True)]
        marks = [mark for one in each for mark in one.marks] + [pytest.mark.extended] * (chosen not in usual)
        found.append(pytest.param(*(value for one in each for value in one.values), marks=marks))
    return found


def _param(value: Any) -> Any:
    return value if isinstance(value, type(pytest.param())) else pytest.param(value)


def _but(chosen: Iterable[Any], values: Iterable[Any], mark: pytest.MarkDecorator) -> list[Any]:
    chosen, values = list(chosen), list(values)
    assert set(chosen) <= set(values), "none of them is misspelt"
    return [value if value in chosen else pytest.param(value, marks=mark) for value in values]
