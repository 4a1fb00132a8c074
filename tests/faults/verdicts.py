"""One training with one fault, and what must hold after it: nothing that was saved is lost, and the user is told."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.shim import Action, Fault
from tests.faults.trainings import Ended, Trainer, files

# By POSIX or by Linux's manual these calls end with EINTR where a signal comes; the caller makes them again.
RESTARTED = ("open", "create", "write", "fsync", "truncate", "flock")
KILLS = (Action.KILL_BEFORE, Action.KILL_AFTER)


@dataclass
class Verdict:
    """What a training with a fault did. `lost` and `wrong` say in words what must not be."""

    fault: Fault
    kind: str  # of the call that the fault met
    code: int
    lost: list[str] = field(default_factory=list)  # what was saved and is not there, or does not go on
    wrong: list[str] = field(default_factory=list)  # exit codes, messages, files left behind

    def __str__(self) -> str:
        return f"{self.fault} ({self.kind}), exit code {self.code}: {'; '.join([*self.lost, *self.wrong])}"


def trial(trainer: Trainer, fault: Fault, older: bool = False) -> Verdict:
    """Train under a fault and look at the files; resume without a fault and look again.

    older: snapshots of another run lie there before, and the training replaces them. Nothing is resumed then: the
    newest snapshot may be the other run's
    """
    old = trainer.older if older else {}
    place = trainer.fresh(old)
    ended = trainer.train(place, fault=fault)
    met = ended.counted[fault.at - 1].kind if len(ended.counted) >= fault.at else "none"
    verdict = Verdict(fault, met, ended.code)
    _look(verdict, ended, files(place / "out"), trainer.whole, old)
    _ends_as_it_must(verdict, ended)
    if not older:
        _goes_on(verdict, trainer, place)
    return verdict


def _look(
    verdict: Verdict,
    ended: Ended,
    there: Mapping[str, bytes],
    whole: Mapping[str, bytes],
    old: Mapping[str, bytes],
) -> None:
    """Every snapshot is whole: the new one if it was reported as saved, else the new one or the old one."""
    for name, data in whole.items():
        if name in ended.saved and there.get(name) != data:
            verdict.lost.append(f"{name} was reported as saved, and is {'not whole' if name in there else 'absent'}")
        elif name in there and there[name] not in (data, old.get(name)):
            verdict.lost.append(f"{name} is not whole")
        elif name in old and name not in there:
            verdict.lost.append(f"{name} was there before, and is gone")
    if ended.code == 0 and any(there.get(name) != data for name, data in whole.items()):
        verdict.lost.append("the exit code is 0, and not all snapshots are there")


def _ends_as_it_must(verdict: Verdict, ended: Ended) -> None:
    fault, said = verdict.fault, ended.err.strip()
    if "Traceback" in said or "internal error" in said:
        verdict.wrong.append(f"no message for users: {said.splitlines()[-1]}")
    if fault.action in KILLS:
        return
    restarted = fault.action == Action.SHORT or (fault.errno == errno.EINTR and verdict.kind in RESTARTED)
    if restarted and fault.times and ended.code:
        verdict.wrong.append(f"it should go on after this: {said}")
    elif ended.code not in (0, 1):
        verdict.wrong.append(f"expected exit code 0 or 1: {said}")
    elif ended.code and (os.strerror(fault.errno) not in said or "out/" not in said or "None" in said):
        verdict.wrong.append(f"the message does not name file and reason: {said!r}")


def _goes_on(verdict: Verdict, trainer: Trainer, place: Path) -> None:
    """The resumed run ends with an undisturbed run's bytes, and leaves only snapshots."""
    ended, there = trainer.resume(place)
    verdict.lost += goes_on(trainer, ended, there)
    if left := sorted(there.keys() - trainer.whole.keys()):
        verdict.wrong.append(f"left behind: {', '.join(left)}")


def goes_on(trainer: Trainer, ended: Ended, there: Mapping[str, bytes]) -> list[str]:
    """What a resumed run lacks. `ended`, `there`: its end, and the files then."""
    if ended.code:
        return [f"resuming ended with exit code {ended.code}: {ended.err.strip()}"]
    if "not resumed from" in ended.out:
        return ["the resumed run had to pass over a torn snapshot"]
    last = list(trainer.whole)[-1]
    if there.get(last) != trainer.whole[last]:
        return ["the resumed run ended with other bytes"]
    other = [name for name, data in trainer.whole.items() if there.get(name, data) != data]
    return [f"after the resumed run {', '.join(other)} is not whole"] if other else []
