"""The command: it runs each item in a process of its own, within the item's and the command's time; then the table."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.gpu_check.journal import CODE, LATELY, ROOT, TIME, Journal, Record, code, commit
from benchmarks.gpu_check.place import Place, Rehearsal, card, slug
from benchmarks.gpu_check.run import BROKEN, GROUP, Run
from benchmarks.gpu_check.table import verdict, write

# letter -> (module, seconds that it may take), most important first. The sum of seconds is MINUTES, so that each item
# gets its part. Seconds that an item does not use go to later ones (SPARE).
ITEMS = {
    "s": ("start", 35),
    "a": ("operations", 45),
    "g": ("link", 12),
    "m": ("products", 10),
    "d": ("speed", 140),
    "e": ("tight", 52),
    "u": ("updates", 12),
    "l": ("brief", 10),
    "t": ("steps", 40),
    "b": ("policies", 50),
    "p": ("half", 20),
    "c": ("digits", 36),
    "f": ("foresight", 30),
    "h": ("properties", 12),
    "n": ("ranks", 6),
    "k": ("compiled", 12),
}
MINUTES = 8.7  # of all items: with the table, less than nine
UNHURRIED = 24 * 60.0  # minutes of a rehearsal: nothing is left out, however busy the machine
SPARE = ("d", "f", "e", "k")  # items that get half of the seconds that earlier ones left over; the last gets all
LEAST = 8.0  # seconds; if fewer are left, no item begins
PATIENCE = 3.0  # a case that is killed after so many times its expected seconds counts as hanging, so as failed
AGAIN = 4  # the most processes that are started for an item, if cases end them
PROGRAM = [sys.executable, "-m", "benchmarks.gpu_check"]
RESULTS = ROOT / "benchmarks" / "results"


def main() -> int:
    o = options()
    if o.item:
        return one(o)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the running item is ended, too
    place = Rehearsal() if o.rehearse else Place()
    if o.rehearse:
        name, folder = "rehearsal", Path(o.results or ROOT / "out" / "gpu_check")
    else:
        try:
            name = card()
        except ImportError as error:
            print(f"gpu-check: {error}", file=sys.stderr)
            return 2
        folder = Path(o.results or RESULTS)
    folder /= slug(name)
    journal, until = Journal(folder / "results.jsonl"), time.time() + 60 * o.minutes
    print(f"gpu-check on {name}: code {code()} ({commit() or 'no git'}), results in {folder}", flush=True)
    invocation = f"{int(time.time())}-{os.getpid()}"
    wrong: list[str] = []
    for letter in o.only:
        print(f"({letter}) {ITEMS[letter][0]}", flush=True)
        if until - time.time() < LEAST:
            print("  left out: no time is left", flush=True)
            wrong.append(letter)
            continue
        began = time.time()
        end = until if place.small else began + _share(letter, o.only, until - began)
        if not supervise(o, letter, folder, invocation, end, journal):
            wrong.append(letter)
        values = {"seconds": round(time.time() - began, 1), "limit": round(end - began, 1)}
        journal.append({"item": letter, "case": TIME, "state": "ok", "values": values, "invocation": invocation})
        bring(folder)
    print(write(folder, name, place.small), flush=True)
    bring(folder)
    print(verdict(folder))
    print(f"all of it took {time.time() - until + 60 * o.minutes:.0f} s", flush=True)
    failed = [r for r in journal.latest().values() if r["state"] == "failed" and r["item"] in o.only]
    if wrong or failed:
        items = sorted({*wrong, *(r["item"] for r in failed)})
        print(f"not well: {', '.join(items)} ({len(failed)} cases failed)", file=sys.stderr)
        return 1
    return 0


def _share(letter: str, only: list[str], left: float) -> float:
    """Seconds for an item. left: the seconds for it and all later ones together."""
    own = ITEMS[letter][1]
    later = only[only.index(letter) + 1 :]
    spare = left - own - sum(ITEMS[x][1] for x in later)
    if not later:
        return left
    more = spare / 2 if letter in SPARE or len(only) < len(ITEMS) else 0.0
    return min(left, own + max(0.0, more) if spare > 0 else own)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.gpu_check", description=__doc__)
    parser.add_argument("--only", default=",".join(ITEMS), metavar="a,b", help="these items alone, in this order")
    parser.add_argument("--again", action="store_true", help="also what this code has shown before")
    parser.add_argument("--new", action="store_true", help=f"only what no code has shown for {LATELY:.0f} hours")
    parser.add_argument("--minutes", type=float, help=f"of all items together ({MINUTES}; of a rehearsal, a day)")
    parser.add_argument("--rehearse", action="store_true", help="without a GPU, in small: does the script work?")
    parser.add_argument("--results", help="the folder in which the card's folder is")
    parser.add_argument("--item", help=argparse.SUPPRESS)  # this and the rest are for the items' processes
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--invocation", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.again and o.new:
        parser.error("--again runs all cases, and --new only some: choose one")
    if o.minutes is None:
        o.minutes = UNHURRIED if o.rehearse else MINUTES
    o.only = [letter.strip() for letter in o.only.split(",") if letter.strip()]
    if unknown := [letter for letter in o.only if letter not in ITEMS]:
        parser.error(f"there is no item {', '.join(unknown)}; there are {', '.join(ITEMS)}")
    return o


def one(o: argparse.Namespace) -> int:
    """Run an item in this process. Returns the exit code."""
    place = Rehearsal() if o.rehearse else Place()
    run = Run(o.item, place, Journal(o.folder / "results.jsonl"), o.invocation, o.until, o.again, o.new)
    importlib.import_module(f"benchmarks.gpu_check.{ITEMS[o.item][0]}").item(run)
    run.end()
    return 0


def supervise(
    o: argparse.Namespace, letter: str, folder: Path, invocation: str, until: float, journal: Journal
) -> bool:
    """Run an item in a process of its own. Returns whether the item came to its end.

    If a case ends the process, that case is recorded as failed, and a new process goes on with the next."""
    command = [*PROGRAM, "--item", letter, "--folder", str(folder.resolve())]
    command += ["--invocation", invocation, "--until", str(until)]
    command += ["--again"] * o.again + ["--new"] * o.new + ["--rehearse"] * o.rehearse
    environment = {**os.environ, CODE: code()}
    for _ in range(AGAIN):
        with subprocess.Popen(command, cwd=ROOT, env=environment, **GROUP) as child:
            try:
                status: int | None = _watched(child, until, folder)
            except BaseException:
                _kill(child)
                raise
        if status == 0:
            return True
        begun = _unfinished(journal, letter, invocation)
        why = f"no end within the item's time ({letter})" if status is None else f"its process ended with {status}"
        if begun:
            case, seconds = begun["case"], time.time() - begun["time"]
            note = {"item": letter, "case": case, "state": "failed", "why": why, "invocation": invocation}
            if status is None and seconds < PATIENCE * begun["needs"]:  # it may be right
                note = {**note, "state": "left out", "values": {"cases": [case]}}
                why = f"cut off after {seconds:.0f} s by the end of the item's time"
            journal.append(note)
            print(f"  {letter}  {case}: {'left out' if note['state'] == 'left out' else 'FAILED'}, {why}", flush=True)
        elif status not in (None, BROKEN):
            note = {"item": letter, "case": "start", "state": "failed", "why": why, "invocation": invocation}
            journal.append(note)
            print(f"  {letter}  {why} before any case began", flush=True)
            return False
        if status is None or until - time.time() < LEAST:
            return False
    return False


def _watched(child: subprocess.Popen, until: float, folder: Path) -> int | None:
    """The child's exit code; None if it had to be killed. Meanwhile results are copied to $OUT as they come."""
    while time.time() < until:
        try:
            return child.wait(min(2.0, max(0.05, until - time.time())))
        except subprocess.TimeoutExpired:
            bring(folder)
    _kill(child)
    return None


def _kill(child: subprocess.Popen) -> None:
    """Kill the child with all that it started: it leads a process group of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _unfinished(journal: Journal, letter: str, invocation: str) -> Record | None:
    """The record of the case that was begun last, if it has no result; else None."""
    begun = None
    for record in journal:
        if record["item"] == letter and record.get("invocation") == invocation:
            begun = record if record["state"] == "began" else None
    return begun


def bring(folder: Path) -> None:
    """Copy the results into one folder in $OUT, if that is set: lent machines return the files there."""
    out = os.environ.get("OUT")
    if not out or not folder.is_dir():
        return
    to = Path(out) / folder.name
    to.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.is_file() and path.suffix in (".jsonl", ".md", ".json", ".svg"):
            shutil.copyfile(path, to / path.name)


if __name__ == "__main__":
    sys.exit(main())
