"""The snapshots of a run: those that it writes, and the one that it continues from.

Of several ranks the first one writes. All take part, since each has a part of the optimizer's state.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minidnn.errors import InvalidInput
from minidnn.layers.rows import Rows
from minidnn.memory.parts.whole import as_whole, name_by_numbers
from minidnn.nets.net import Net
from minidnn.programs.fusion import kinds
from minidnn.schema import SolverParameter
from minidnn.spoken import option
from minidnn.training import snapshot, solverstate
from minidnn.training.divergence import Diverged
from minidnn.training.session import Session


class Saving:
    """Writes the snapshots of a run."""

    def __init__(self, net: Net, session: Session, seed: int, caffes: bool, names: Sequence[str]) -> None:
        """caffes: whether snapshots are Caffe's own files; names: of classes, for who predicts by them"""
        self._session, self._seed, self._names = session, seed, tuple(names)
        self._model = solverstate.Model(net.parameter, session.params.layout) if caffes else None

    def now(self, iteration: int, position: int, loss: float, best: dict[str, Any] | None) -> snapshot.Snapshot:
        """The content of a snapshot of this iteration. Reading its weights raises Diverged if one is not finite.

        position: training samples consumed; loss: the last one"""
        session = self._session
        session.machine.all_gather()  # before anything else that all ranks do together
        weights = {name: _finite(name, values, iteration, loss) for name, values in session.weight_rows().items()}
        state, text = session.state_rows(), facts(session)
        return snapshot.Snapshot(weights, state, iteration, position, self._seed, text, best, self._names)

    def write(self, prefix: str | Path, now: snapshot.Snapshot, best: bool = False) -> Path:
        """Write a snapshot; its path. Raises SaveError and Diverged, on all ranks alike."""
        path: Path = self._on_first(lambda: snapshot.save(prefix, now, self._model, best=best))
        return path

    def check_writable(self, prefix: str, last: int, now: snapshot.Snapshot, best: bool) -> None:
        """Raise SaveError if the snapshot of iteration `last`, as large as this one, could not be written now.

        best: whether the best one is kept, too"""
        suffix, size = solverstate.SUFFIX if self._model else snapshot.SUFFIX, now.nbytes
        self._on_first(lambda: snapshot.check_writable(prefix, last, size, suffix, best))

    def _on_first(self, work: Callable[[], Any]) -> Any:
        """The result of `work`, or the error that it raises. Among several ranks the first one runs it, and all of them
        get its result."""
        engine = self._session.setting.engine
        if engine is None:
            return work()
        failed: Exception | None = None
        result = None
        if not engine.rank:
            try:
                result = work()
            except (snapshot.SaveError, Diverged) as error:
                failed = error
        result, failed = engine.share((result, failed))[0]
        if failed is not None:
            raise failed
        return result


def _finite(key: str, values: Rows, iteration: int, loss: float) -> Rows:
    """These rows; the last update may have spoiled them, and no loss has shown that yet."""

    def pieces() -> Iterator[np.ndarray]:
        for piece in values.pieces():
            if not np.isfinite(piece).all():
                layer, name = key.rsplit("/", 1)
                why = f"layer {layer}: its {name} is not finite; no snapshot is written"
                raise Diverged(iteration, loss, layer, why)
            yield piece

    return Rows(values.shape, values.dtype, pieces)


def facts(session: Session) -> dict[str, object]:
    """The facts that the last bits of the numbers depend on. The policy and the budget are not among them: under any of
    them a run's snapshots are the same files, byte for byte."""
    device = session.device
    chosen = as_whole(session.arrangement.schedules["TRAIN"].plan.algorithm)
    names = {op: name_by_numbers(op, a) for op, a in chosen.items() if not op.on_net}
    unusual = {op.name: name for op, name in names.items() if name != device.usual(op).name}
    return {
        "device": device.numerics,
        "format": session.setting.format,
        "algorithms": unusual,
        "fused": kinds(session.programs["TRAIN"]),
    }


def find(resume: str | Path | None, prefix: str) -> tuple[Path | None, snapshot.Snapshot | None, list[str]]:
    """The snapshot that `resume` asks for, its path, and what to note; None without one. Raises SnapshotError."""
    if resume is None:
        return None, None, []
    if str(resume) != "latest":
        return Path(resume), snapshot.load(resume), []
    path, result, rejected = snapshot.latest(prefix)
    notes = [f"not resumed from {reason}" for reason in rejected]
    if result is None:
        notes.append(f"no snapshot {prefix}_iter_* to resume: starting from iteration 0")
    return path, result, notes


def restore(
    session: Session, before: snapshot.Snapshot, path: Path | None, samples: int, seed: int
) -> tuple[int, list[str]]:
    """Load a snapshot. Returns the position to go on from, and a note for each fact that may change the numbers.

    samples: those of an iteration. Raises SnapshotError if it is of another net or optimizer."""
    try:
        session.restore(before.weights, before.state)
    except ValueError as error:
        raise snapshot.SnapshotError(f"{path}: {error}") from error
    notes = []
    position = before.iteration * samples if before.position is None else before.position
    if before.seed is None:
        notes.append(f"the state is Caffe's own: it has no seed, so that of dropout and data is {seed}")
    if position != before.iteration * samples:
        what = f"the snapshot's run took {position / max(before.iteration, 1):g}: the results will differ"
        notes.append(f"{samples} samples an iteration, but {what}")
    for name, now in facts(session).items():
        then = before.facts.get(name, now)
        if then != now:
            notes.append(f"{name}: {now}, but the snapshot's run had {then}: last bits may differ")
    return position, notes


def seed_of(seed: int | None, before: snapshot.Snapshot | None, p: SolverParameter) -> int:
    """The seed of the snapshot, else the given one, else the file's; if that is negative, a fresh one, as in Caffe.

    Raises InvalidInput if the given seed differs from the snapshot's or does not fit 64 bits."""
    if before and before.seed is not None:
        if seed not in (None, before.seed):
            raise InvalidInput(
                f"{option('seed', seed)}: the snapshot's run had seed {before.seed}, and continues with it"
            )
        return before.seed
    if seed is not None:
        if not 0 <= seed < 2**64:
            raise InvalidInput(f"{option('seed', seed)}: expected a whole number from 0 to 2^64 - 1")
        return seed
    return p.random_seed if p.random_seed >= 0 else int.from_bytes(os.urandom(4), "little")
