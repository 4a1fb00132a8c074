"""All logs of a run, as its solver file or its options ask for them (`log`, `tensorboard`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from minidnn.errors import Failed, InvalidInput
from minidnn.results.counted import Counted
from minidnn.training.events import Event
from minidnn.training.logs import lines, tensorboard
from minidnn.training.logs.lines import LineLog
from minidnn.training.logs.record import record
from minidnn.training.logs.tensorboard import EventFile


class LogError(Failed, OSError):
    """A log could not be written; the message names the file."""


class Logs:
    """The logs of one net's runs. `opened` opens them for a run."""

    def __init__(self, files: Sequence[str], folder: str | None, epoch: int | None, snapshots: Path) -> None:
        """Nothing is written yet.

        files:  of lines; the suffix says what lines: .jsonl or .csv
        folder: of TensorBoard's event files; None: none
        epoch:  the iterations of an epoch; None: there are none
        snapshots: their folder, which need not be there yet

        Raises InvalidInput for a file that cannot be written, or that is there and is no such log."""
        self._files = tuple(dict.fromkeys(map(Path, files)))
        self._folder = None if folder is None else Path(folder)
        self._epoch = epoch
        for path in self._files:
            try:
                why = lines.problem(path, snapshots)
            except OSError as error:
                why = error.strerror or str(error)
            if why:
                raise InvalidInput(f"log {path}: {why}")
        if self._folder is not None and (why := tensorboard.problem(self._folder)):
            raise InvalidInput(f"tensorboard {self._folder}: {why}")

    @contextmanager
    def opened(
        self, iteration: int, columns: Sequence[str], samples: Callable[[str], Counted]
    ) -> Iterator[Callable[[Event], None]]:
        """A function that writes an event to all logs of a run.

        iteration: where the run begins
        columns:   the names of all its curves
        samples:   what is counted of a program's samples

        Raises LogError, as the function does, and InvalidInput for a file of a run with other curves."""
        opened: list[tuple[Path, LineLog | EventFile]] = []

        def write(event: Event) -> None:
            result = record(event, self._epoch, samples)
            for path, log in opened:
                with _log_errors(path):
                    log(result)

        try:
            for path in self._files:
                with _log_errors(path):
                    opened.append((path, LineLog(path, columns, goes_on=iteration > 0)))
            if self._folder is not None:
                with _log_errors(self._folder):
                    opened.append((self._folder, EventFile(self._folder, iteration)))
            yield write
        finally:
            for path, log in opened:
                with _log_errors(path):
                    log.close()


@contextmanager
def _log_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a LogError that names the path."""
    try:
        yield
    except OSError as error:
        raise LogError(f"log {path}: could not be written: {error.strerror or error}") from error
