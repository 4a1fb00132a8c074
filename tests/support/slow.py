"""Which cases of a test `make quick` leaves out, marked as slow, and which `make test` does, marked as extended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def quick_are(quick: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """Parameters of a test: those of `values` that are not among `quick` are slow."""
    return _but(quick, values, pytest.mark.slow)


def usual_are(usual: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """Parameters of a test: those of `values` that are not among `usual` are extended, as more of the same."""
    return _but(usual, values, pytest.mark.extended)


def _but(chosen: Iterable[Any], values: Iterable[Any], mark: pytest.MarkDecorator) -> list[Any]:
    chosen, values = list(chosen), list(values)
    assert set(chosen) <= set(values), "none of them is misspelt"
    return [value if value in chosen else pytest.param(value, marks=mark) for value in values]
