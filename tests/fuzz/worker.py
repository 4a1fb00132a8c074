"""A worker: tries cases of each kind in turn until its time is over. Its watchdog (watch.py) ends it when one hangs."""

from __future__ import annotations

import faulthandler
import re
import time
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import HypothesisException

from tests.fuzz import corpus
from tests.fuzz.attempt import attempt
from tests.fuzz.board import Board
from tests.fuzz.kind import Kind, Misread, frames
from tests.fuzz.known import known

SLICE = 3.0  # seconds that a kind gets before the next one's turn
AT_ONCE = 200  # cases of one round of hypothesis at most: as many as a slice has time for
WORDS = re.compile(r"[^A-Za-z ]+|[0-9A-Fa-f]{6,}")  # what is left of an error without these tells faults apart
SHRINKING = 15.0  # seconds spent on making a failing case smaller


class Worker:
    """Tries cases of some kinds in turn. Use it in a `with` statement: it holds a file."""

    def __init__(
        self, number: int, kinds: list[Kind], board: Board, found: Path, until: float, stack_after: float
    ) -> None:
        """found: the folder for failing cases; until: when to end (time.monotonic)"""
        self.number, self.kinds, self.board, self.found, self.until = number, kinds, board, found, until
        self.stack_after = stack_after  # seconds after which a case's stack is written: it seems to hang
        self.stack = (board.folder / f"stack-{number}").open("w")
        faulthandler.enable(self.stack)  # a signal's stack goes there, too
        self.seen: set[str] = set()  # faults that were kept already

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        faulthandler.disable()
        self.stack.close()

    def run(self, first: int) -> None:
        """first: the seed of the first round; each round has its own"""
        rounds = first
        while time.monotonic() < self.until:
            spent = self.board.counts[self.number, :, -1]
            turn = int(spent.argmin())
            end = min(self.until, time.monotonic() + SLICE)
            while time.monotonic() < end:
                began = time.monotonic()
                self.round(turn, rounds, end)
                spent[turn] += time.monotonic() - began
                rounds += 1

    def round(self, turn: int, number: int, end: float) -> None:
        kind = self.kinds[turn]
        fault: list[tuple[int, bytes, str]] = []  # the failing cases of this round
        signature = ""
        give_up = 0.0
        with TemporaryDirectory(prefix="case-", dir=self.board.folder) as folder:

            def property(case: bytes) -> None:
                nonlocal signature, give_up
                now = time.monotonic()
                if now > (give_up or end):
                    return
                try:
                    self.once(turn, kind, case, Path(folder), counted=not fault)
                except Exception as error:
                    mine = f"{type(error).__name__} {frames(error)} {WORDS.sub('', str(error))[:120]}"
                    is_known = known(kind.name, error) is not None
                    if not fault:
                        self.board.add(self.number, turn, "known" if is_known else self.column(error))
                    if is_known or mine in self.seen:
                        return
                    if not fault:
                        signature, give_up = mine, now + SHRINKING
                    if mine == signature:
                        fault.append((len(case), case, "".join(traceback.format_exception(error))))
                        raise

            test = given(kind.cases)(property)
            try:
                seed(number)(settings(SETTINGS, max_examples=self.many(turn))(test))()
            except Exception as error:
                if not fault and not isinstance(error, HypothesisException):
                    raise
        if fault:
            self.seen.add(signature)
            _, case, text = min(fault)
            path = corpus.add(kind.name, case, self.found)
            with (self.board.folder / "faults").open("a") as log:
                log.write(f"\n== {kind.name}: {path.name}\n{case[:1000]!r}\n{text}\n")

    def once(self, turn: int, kind: Kind, case: bytes, folder: Path, counted: bool) -> None:
        board, me = self.board, self.number
        board.case(me).write_bytes(case)
        began = time.monotonic()
        board.now[me] = turn, began
        faulthandler.dump_traceback_later(self.stack_after, file=self.stack)
        try:
            accepted = attempt(kind, case, folder)
            if counted:
                board.add(me, turn, "accepted" if accepted else "refused")
        finally:
            faulthandler.cancel_dump_traceback_later()
            board.now[me] = turn, 0
            if counted:
                board.add(me, turn, "cases")
                slowest = board.counts[me, turn, -2]
                board.counts[me, turn, -2] = max(slowest, time.monotonic() - began)

    def many(self, turn: int) -> int:
        counts = self.board.counts[self.number, turn]
        return int(min(AT_ONCE, max(5, SLICE * counts[0] / counts[-1]))) if counts[-1] else 10

    def column(self, error: Exception) -> str:
        if isinstance(error, MemoryError):
            return "over 1 GiB"
        return "misread" if isinstance(error, Misread) else "tracebacks"


SETTINGS = settings(
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink],
    report_multiple_bugs=False,
    print_blob=False,
)
