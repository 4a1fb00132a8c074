"""The watchdog of `make fuzz`: starts workers, ends those whose case hangs, and keeps the cases of those that end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from tests.fuzz import corpus
from tests.fuzz.board import Board

HANGS = 30.0  # seconds after which a case hangs; on an idle machine none takes five
OFTEN = 0.25  # seconds between looks
_FRAME = re.compile(r'File "[^"]*", line \d+ in \w+')
ENVIRONMENT = {"MALLOC_ARENA_MAX": "2"}  # glibc reserves 64 MiB of addresses for each thread's arena


class Watch:
    def __init__(self, folder: Path, kinds: list[str], workers: int, found: Path, hangs: float = HANGS) -> None:
        self.folder, self.kinds, self.found, self.hangs = folder, kinds, found, hangs
        self.board = Board(folder, workers, len(kinds))
        self.workers = workers
        self.started = 0
        self.seen: set[tuple[object, ...]] = set()  # where workers hung or died

    def run(self, seconds: float, first_seed: int, tell=lambda: None, every: float = 30.0) -> None:
        """Try cases for so many seconds; `tell` is called every so often."""
        until = time.monotonic() + seconds
        running = {number: self.start(number, first_seed, until) for number in range(self.workers)}
        try:
            self.watch(running, first_seed, until, tell, every)
        finally:
            for process in running.values():
                process.kill()
                process.wait()

    def watch(self, running, first_seed: int, until: float, tell, every: float) -> None:
        told = time.monotonic()
        while running:
            time.sleep(OFTEN)
            for number, process in list(running.items()):
                code = process.poll()
                kind, since = self.board.now[number]
                hangs = code is None and since and time.monotonic() - since > self.hangs
                if hangs:
                    process.kill()
                    process.wait()
                if hangs or code:
                    self.keep(number, int(kind), "hangs" if hangs else "signals", code)
                    self.board.now[number] = 0, 0
                if hangs or code is not None:
                    del running[number]
                    if (hangs or code) and time.monotonic() < until:
                        running[number] = self.start(number, first_seed, until)
            if time.monotonic() - told > every:
                told = time.monotonic()
                tell()

    def start(self, number: int, first_seed: int, until: float) -> subprocess.Popen[bytes]:
        self.started += 1
        seed = first_seed + 1_000_000 * self.started
        arguments = [str(self.folder), ",".join(self.kinds), str(self.workers), str(number), str(seed), str(until)]
        arguments += [str(self.found), str(max(0.1, self.hangs - 2))]
        log = (self.folder / f"log-{number}").open("ab")
        with log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz", "--worker", *arguments],
                env={**os.environ, **ENVIRONMENT}, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def keep(self, number: int, kind: int, what: str, code: int | None) -> None:
        """Count the case of a worker that hung, or that died with this exit code; keep the first of each place."""
        self.board.add(number, kind, "cases")
        self.board.add(number, kind, what)
        file = self.folder / f"stack-{number}"
        stack = file.read_text(errors="replace") if file.exists() else ""
        stack = stack[max(0, stack.rfind("Fatal Python error"), stack.rfind("Timeout (")) :][:3000]
        place = self.kinds[kind], code, *_FRAME.findall(stack)[:3]
        if place in self.seen:
            return
        self.seen.add(place)
        case = self.board.case(number)
        name = corpus.add(self.kinds[kind], case.read_bytes(), self.found).name if case.exists() else "no case"
        why = "hangs" if what == "hangs" else f"its process ended with {code}"
        log = (self.folder / f"log-{number}").read_text(errors="replace")[-3000:]
        with (self.folder / "faults").open("a") as faults:
            faults.write(f"\n== {self.kinds[kind]}: {name} {why}\n{stack}\n{log}\n")
