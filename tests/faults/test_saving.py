"""Each call that changes a file, in a training with three snapshots, goes wrong once: nothing that was saved is lost.

Here each call fails with one of the errors, and kills and full disks begin at every second call. `make faults` has the
whole product, and real kills.
"""

from __future__ import annotations

import errno

import pytest

from minidnn.compiled import NotCompiled
from tests.faults.power_cut import cuts
from tests.faults.shim import Action, Fault
from tests.faults.survives import kept, promised, resumes, snapshots
from tests.faults.trainings import Trainer
from tests.faults.verdicts import trial

ERRORS = (errno.ENOSPC, errno.EIO, errno.EINTR)


@pytest.fixture(scope="module")
def trainer():
    try:
        with Trainer() as trainer:
            yield trainer
    except NotCompiled as reason:
        pytest.skip(f"needs a C compiler: {reason}")


def numbers(trainer: Trainer, *kinds: str, older: bool = False) -> list[int]:
    return [call.number for call in trainer.calls(older) if not kinds or call.kind in kinds]


def bad(trainer: Trainer, faults: list[Fault], older: bool = False) -> list[str]:
    """What went wrong after any of these faults."""
    assert faults
    return [str(verdict) for fault in faults if (verdict := trial(trainer, fault, older)).lost or verdict.wrong]


def test_a_training_saves_by_writing_flushing_and_renaming(trainer):
    """Else the shim does not see what it is there for."""
    assert len(trainer.whole) == 3
    for kind in ("write", "fsync", "rename"):
        assert len(numbers(trainer, kind)) >= 3


@pytest.mark.parametrize("first", range(3))
def test_a_call_that_fails_loses_nothing(trainer, first):
    """Each call once: one test has the calls of which another does not have the errors."""
    errors = {n: ERRORS[(n + n // 3) % 3] for n in numbers(trainer)}
    assert not bad(trainer, [Fault(Action.FAIL, n, e) for n, e in errors.items() if e == ERRORS[first]])


def test_a_disk_that_is_full_from_then_on_loses_nothing(trainer):
    some = numbers(trainer, "create", "write", "fsync")[::2]
    assert not bad(trainer, [Fault(Action.FAIL, n, errno.ENOSPC, times=0) for n in some])


def test_a_short_write_and_a_signal_in_it_are_gone_on_after(trainer):
    writes = numbers(trainer, "write")[:8]
    assert not bad(trainer, [Fault(Action.SHORT, n) for n in writes])
    assert not bad(trainer, [Fault(Action.FAIL, n, errno.EINTR) for n in writes])


def test_a_snapshot_that_is_replaced_is_the_old_one_or_the_new_one(trainer):
    of_the_first = numbers(trainer, older=True)[: len(trainer.calls(older=True)) // 2]
    assert not bad(trainer, [Fault(Action.FAIL, n, errno.EIO) for n in of_the_first], older=True)


def test_a_kill_at_any_second_call_loses_nothing(trainer):
    assert not bad(trainer, [Fault(Action.KILL_AFTER, n) for n in numbers(trainer)[1::2]])


def test_a_power_cut_at_any_call_loses_nothing_that_was_reported_as_saved(trainer):
    ended, _ = trainer.undisturbed
    found = list(cuts(ended.calls, trainer.root))
    assert len(found) > 50 and {len(promised(said)) for said, _ in found} == {0, 1, 2, 3}
    assert not [problem for said, state in found for problem in kept(trainer, said, state)]
    by_snapshots = {tuple(snapshots(trainer, state)): state for _, state in found}  # the last of each
    assert len(by_snapshots) == 4
    assert not [problem for state in by_snapshots.values() for problem in resumes(trainer, state)]
