"""One item in its process: it runs its cases in turn, and records each in the journal before the next begins."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.journal import REFUSED, Journal, Record
from benchmarks.gpu_check.place import Place

BROKEN = 3  # the exit code that asks for a new process: in this one CUDA does not work any more
# For Popen: a process group of its own, so that a process can be ended with all that it started. From Python 3.11 on
# the group stays in this session, which a lent machine ends with its command.
GROUP: dict[str, Any] = {"process_group": 0} if sys.version_info >= (3, 11) else {"start_new_session": True}
RESERVE = 3.0  # the last seconds of an item's time, in which no case begins


class Wrong(AssertionError):
    """A case ran, but its result is not as it must be. The journal keeps `values`."""

    def __init__(self, why: str, values: dict[str, Any] | None = None) -> None:
        super().__init__(why)
        self.values = values or {}


class Run:
    """The run of one item's cases.

    until: the moment (time.time()) at which the item's process is ended
    again: run all cases again that an earlier invocation of the command has done
    new:   only those that no code has done lately; else, what other code has done counts for nothing"""

    def __init__(
        self, item: str, place: Place, journal: Journal, invocation: str, until: float, again: bool, new: bool = False
    ) -> None:
        self.item, self.place, self.journal, self.invocation, self.until = item, place, journal, invocation, until
        self.folder: Path = journal.path.parent
        self.left_out: list[str] = []
        self.done: dict[str, Record] = {}
        for (of, case), record in journal.latest(any_code=new).items():
            mine = record.get("invocation") == invocation
            if of == item and (mine or (record["state"] == "ok" and not again)):
                self.done[case] = record

    def left(self) -> float:
        return self.until - time.time() - RESERVE

    def within(self, seconds: float) -> float:
        """That many seconds, or those that are left; in a rehearsal, however busy the machine, all that are left."""
        return self.left() if self.place.small else min(seconds, self.left())

    def say(self, text: str) -> None:
        print(f"  {self.item}  {text}", flush=True)

    def case(self, name: str, work: Callable[[], dict[str, Any]], needs: float = 0.0) -> dict[str, Any] | None:
        """Do `work` unless it was done before. Returns its values; None if it failed or there is no time for it.

        needs: about how many seconds it takes."""
        if name in self.done:
            return self.done[name].get("values") if self.done[name]["state"] == "ok" else None
        if self.left() < needs:
            self.left_out.append(name)
            return None
        self._note(name, "began", needs=needs)
        began, values = time.perf_counter(), {}
        try:
            values = work()
            state, why = "ok", None
        except TimeoutError as error:
            self.say(f"{name}: {error}")
            self._note(name, "left out", values={"cases": [name]})
            return None
        except Exception as error:
            state, why = "failed", f"{type(error).__name__}: {error}".strip()[:2000]
            values = getattr(error, "values", {})
            if not isinstance(error, Wrong):
                traceback.print_exc()
        seconds = time.perf_counter() - began
        self.done[name] = self._note(name, state, values=values, why=why, seconds=round(seconds, 3))
        brief = ", ".join(f"{k} {_short(v)}" for k, v in values.items() if isinstance(v, (int, float, str, bool)))
        self.say(f"{name}: {'ok' if state == 'ok' else f'FAILED, {why}'} ({seconds:.1f} s) {brief}"[:600])
        if state == "ok":
            return values
        if not self.place.answers():
            self.say("CUDA answers nothing any more: this item goes on in a new process")
            sys.stdout.flush()
            sys.exit(BROKEN)
        return None

    def end(self) -> None:
        """Record the cases that were not begun for want of time, and the plans that cuDNN refused to run; also that
        there are none, if an earlier record has some."""
        if self.left_out:
            self.say(f"left out for want of time: {', '.join(self.left_out)}")
        known = self.journal.latest(any_code=True)  # the table shows them
        if self.left_out or (self.item, "left out") in known:
            self._note("left out", "left out", values={"cases": self.left_out})
        refused = self.place.refused()
        for why in refused.values():
            self.say(f"refused: {why}")
        if refused or (self.item, REFUSED) in known:
            self._note(REFUSED, "ok", values={"refused": refused})

    def _note(self, case: str, state: str, **more: Any) -> Record:
        return self.journal.append(
            {"item": self.item, "case": case, "state": state, "invocation": self.invocation, **more}
        )


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)[:120]
