"""Every error that speaks for itself says by its class whose fault it was."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import minidnn
from minidnn.cli.exit_codes import exit_code, message
from minidnn.errors import BadInput, Failed, near

# Caught where they are raised, or bugs of minidnn: no user reads them.
INNER = {
    "ScheduleError",
    "RingTooSmall",
    "OutOfMemory",
    "Unavailable",
    "NotCompiled",
    "DnnlError",
    "NotOffered",
    "Unlike",
    "Impossible",
    "NoSolver",
    "Unsolved",
    "TooLong",
    "Full",
    "Refused",
    "Ended",
}


def classes() -> list[type[Exception]]:
    """Every exception that a module of the package defines."""
    found = {}
    for module in pkgutil.walk_packages(minidnn.__path__, "minidnn."):
        if module.name.endswith("__main__"):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, Exception) and value.__module__.startswith("minidnn."):
                found[value.__qualname__] = value
    return [c for name, c in sorted(found.items()) if name not in INNER and not name.startswith("_")]


@pytest.mark.parametrize("kind", classes(), ids=lambda c: c.__name__)
def test_is_the_users_or_came_while_running(kind):
    assert issubclass(kind, BadInput) != issubclass(kind, Failed)
    error = kind.__new__(kind)
    error.args = ("layer conv1: what is wrong",)
    assert message(error) == "layer conv1: what is wrong"
    assert exit_code(error) == (2 if issubclass(kind, BadInput) else 1)


def test_what_nobody_foresaw_is_a_bug():
    assert message(KeyError("x")).startswith("internal error, please report it: KeyError: 'x'")
    assert exit_code(KeyError("x")) == 1


@pytest.mark.parametrize(
    ("word", "hint"),
    [("Convoluton", " (did you mean 'Convolution'?)"), ("relu", " (did you mean 'ReLU'?)"), ("ReLU", ""), ("x", "")],
)
def test_near(word, hint):
    assert near(word, ["Convolution", "ReLU"]) == hint
