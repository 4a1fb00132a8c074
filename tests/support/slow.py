"""Which cases of a test `make quick` leaves out: they are marked as slow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def quick_are(quick: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """Parameters of a test: those of `values` that are not among `quick` are slow."""
    quick, values = list(quick), list(values)
    assert set(quick) <= set(values), "none of them is misspelt"
    return [value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in values]
