"""Work in a child of this process: its answers, its errors, and its end."""

from __future__ import annotations

import os
import signal

import pytest

from minidnn.child import ChildEnded, in_child
from minidnn.memory.budget import BudgetError, RamError


def test_what_it_returns_and_leaves():
    kept = []
    assert in_child(lambda: (kept.append(1), os.getpid(), kept)[1:]) != (os.getpid(), [1])
    assert kept == []


@pytest.mark.parametrize("kind", [BudgetError, RamError])
def test_an_error_comes_with_all_that_it_knows(kind):
    def fail():
        raise kind("too little", 7, 5, host=True)

    with pytest.raises(kind, match=r"^too little$") as refused:
        in_child(fail)
    assert (refused.value.needed, refused.value.smallest, refused.value.host) == (7, 5, True)


def test_a_child_that_is_killed_is_told():
    with pytest.raises(ChildEnded, match="exit code -9"):
        in_child(lambda: os.kill(os.getpid(), signal.SIGKILL))
