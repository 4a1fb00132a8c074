"""Every fault at every call: the lists of faults, and their verdicts counted."""

from __future__ import annotations

import errno
import os
import queue
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field

from tests.faults.power_cut import cuts
from tests.faults.shim import Action, Call, Fault
from tests.faults.survives import kept, resumes
from tests.faults.trainings import Trainer
from tests.faults.verdicts import KILLS, Verdict, trial

ERRORS = (errno.ENOSPC, errno.EIO, errno.EINTR)
Case = tuple[Fault, bool]  # a fault, and whether older snapshots lie there


@dataclass
class Part:
    """What a part of `make faults` found: rows of a table, and what must not be, in words."""

    title: str
    rows: list[dict[str, object]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class Trainers:
    """As many trainers as processors; each trial takes one that is free."""

    def __init__(self) -> None:
        self.stack = ExitStack()
        self.count = os.cpu_count() or 1
        self.free: queue.Queue[Trainer] = queue.Queue()

    def __enter__(self) -> Trainers:
        for _ in range(self.count):
            self.free.put(self.stack.enter_context(Trainer()))
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def trials(self, cases: Sequence[Case]) -> list[Verdict]:
        def one(case: Case) -> Verdict:
            trainer = self.free.get()
            try:
                return trial(trainer, *case)
            finally:
                self.free.put(trainer)

        with ThreadPoolExecutor(self.count) as pool:
            return list(pool.map(one, cases))

    def first(self) -> Trainer:
        trainer = self.free.get()
        self.free.put(trainer)
        return trainer


def errors(trainers: Trainers) -> Part:
    """Each call fails with each error: once, once over older snapshots, and together with all calls after it."""
    cases = [
        (Fault(Action.FAIL, call.number, error, times), older)
        for call, older in _calls(trainers)
        for error in ERRORS
        for times in (1, 0)
        if times or (error != errno.EINTR and not older)  # what is always interrupted is made again for ever
    ]
    cases += [(Fault(Action.SHORT, call.number), older) for call, older in _calls(trainers) if call.kind == "write"]
    return _counted("Each call fails: once, once over older snapshots, and from then on", trainers, cases)


def kills(trainers: Trainers) -> Part:
    """SIGKILL before and after each call, also over older snapshots."""
    cases = [(Fault(kill, call.number), older) for call, older in _calls(trainers) for kill in KILLS]
    return _counted("SIGKILL before and after each call", trainers, cases)


def _calls(trainers: Trainers) -> list[tuple[Call, bool]]:
    """The calls of a training in an empty folder, and those of one over older snapshots."""
    trainer = trainers.first()
    return [(call, older) for older in (False, True) for call in trainer.calls(older)]


def _counted(title: str, trainers: Trainers, cases: list[Case]) -> Part:
    """A row for each kind of call and each fault. "calls" counts both trainings, the second over older snapshots."""
    there, verdicts = Counter(call.kind for call, _ in _calls(trainers)), trainers.trials(cases)
    part = Part(title, problems=[str(v) for v in verdicts if v.lost or v.wrong])
    named = [(v.kind, _name(v.fault), v) for v in verdicts]
    for kind, what in sorted({(kind, what) for kind, what, _ in named}):
        some = [v for k, w, v in named if (k, w) == (kind, what)]
        codes = Counter(v.code for v in some)
        part.rows.append({
            "call": kind, "fault": what, "calls": there[kind], "faults": len(some),
            **{f"exit {code}": codes[code] for code in sorted(set(v.code for v in verdicts), reverse=True)},
            "lost": sum(bool(v.lost) for v in some),
            "wrong": sum(bool(v.wrong) for v in some),
        })  # fmt: skip
    total = {"call": "all", "fault": "", "calls": there.total()}
    part.rows.append(total | {name: sum(row[name] for row in part.rows) for name in list(part.rows[0])[3:]})
    return part


def _name(fault: Fault) -> str:
    return errno.errorcode[fault.errno] if fault.errno else fault.action.name.lower().replace("_", " ")


def power_cuts(trainers: Trainers) -> Part:
    """Every state that a power cut can leave of a training (power_cut.py), resumed."""
    trainer = trainers.first()
    ended, _ = trainer.undisturbed
    found = list(cuts(ended.calls, trainer.root))
    lost = [problem for said, state in found for problem in kept(trainer, said, state) + resumes(trainer, state)]
    row = {"calls": len(ended.counted), "states": len(found), "of other files": len({s for _, s in found})}
    return Part("A power cut between any two calls", [{**row, "lost": len(lost)}], sorted(set(lost)))
