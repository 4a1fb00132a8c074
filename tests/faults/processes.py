"""Real processes of `minidnn train`: killed at random moments, and twenty at once on one prefix."""

from __future__ import annotations

import os
import random
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks import kill9
from minidnn.training import snapshot
from tests.faults.product import Part
from tests.support.paths import ROOT

ITERATIONS = 60
DEVICE = "cpu"


def random_kills(folder: Path, kills: int, seed: int) -> Part:
    """SIGKILL at random moments of training; each killed run is resumed to its end."""
    part = Part(f"{kills} SIGKILLs at random moments of training, seed {seed}")
    (folder / "whole").mkdir()
    whole = kill9.undisturbed(folder / "whole", ITERATIONS, DEVICE)

    def one(k: int) -> kill9.Row | str:
        place = folder / f"kill{k}"
        place.mkdir()
        try:
            return kill9.trial(place, "run", ITERATIONS, DEVICE, random.Random(f"{seed} {k}"), whole)
        except subprocess.CalledProcessError as error:
            return f"kill {k}: the resumed run ended with {error.returncode}: {error.stderr.strip()}"

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = list(pool.map(one, range(kills)))
    good = [row for row in rows if isinstance(row, kill9.Row)]
    part.problems += [row for row in rows if isinstance(row, str)]
    part.problems += [f"other bytes in the end: {row}" for row in good if not row.equal]
    part.rows.append({
        "kills": kills, "resumed from a snapshot": sum(row.resumed_from > 0 for row in good),
        "within a save": sum(row.half_written > 0 for row in good),
        "ended with the same bytes": sum(row.equal for row in good), "lost": len(part.problems),
    })  # fmt: skip
    return part


def many_trainers(folder: Path, trainers: int, seeds: int = 4) -> Part:
    """Trainers of several seeds save at once under the same names. Every file must be whole, and go on to the end that
    its own seed has."""
    part = Part(f"{trainers} trainers at once on one prefix, {seeds} seeds")
    together, iterations = folder / "together", 24
    (folder / "model.yaml").write_text(kill9.MODEL)

    def command(seed: int, prefix: Path, *more: str) -> list[str]:
        solver = folder / f"seed{seed}.yaml"
        text = kill9.SOLVER.replace("random_seed: 7", f"random_seed: {seed}")
        solver.write_text(text.format(prefix=folder / f"alone{seed}" / "run", iterations=iterations))
        return kill9.command(solver, "liveness:m", DEVICE, "--snapshot-prefix", str(prefix), *more)

    def run(words: list[str]) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True)

    alone = {}
    for seed in range(seeds):
        run(command(seed, folder / f"alone{seed}" / "run"))
        alone[seed] = snapshot.load(snapshot.path_of(folder / f"alone{seed}" / "run", iterations))
    words = [command(k % seeds, together / "run") for k in range(trainers)]
    with ThreadPoolExecutor(trainers) as pool:
        ended = list(pool.map(run, words))
    for done in ended:
        if done.returncode:
            part.problems.append(f"exit code {done.returncode}: {done.stderr.strip()}")
    names = [snapshot.path_of("run", k).name for k in range(3, iterations + 1, 3)]
    there = sorted(path.name for path in together.iterdir())
    if there != sorted(names):
        part.problems.append(f"expected {sorted(names)}, found {there}")
    equal = 0
    for k, name in enumerate(names):
        seed = snapshot.load(together / name).seed
        prefix = folder / f"on{k}" / "run"
        done = run(command(seed, prefix, "--resume", str(together / name)))
        if done.returncode:
            part.problems.append(f"{name} does not go on: {done.stderr.strip()}")
            continue
        end = prefix if snapshot.path_of(prefix, iterations).exists() else together / "run"
        if kill9.equal(alone[seed], snapshot.load(snapshot.path_of(end, iterations))):
            equal += 1
        else:
            part.problems.append(f"{name} goes on to other bytes")
    codes = Counter(done.returncode for done in ended)
    part.rows.append({
        "trainers": trainers, **{f"exit {code}": codes[code] for code in sorted(codes)}, "files": len(there),
        "whole": sum(name in there for name in names), "went on to the same bytes": equal,
        "lost": len(part.problems),
    })  # fmt: skip
    return part
