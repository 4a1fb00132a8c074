"""A progress line on the terminal: the work at hand, and how much of it is done. Without a terminal, nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from benchmarks.turns import Tell

T = TypeVar("T")


@contextmanager
def watched() -> Iterator[tuple[Any, Tell]]:
    """(a console that prints above the progress line, a function that updates the line)"""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False, markup=False)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None)
        yield console, lambda done, of, text: progress.update(task, completed=done, total=of, description=text)


def one_by_one(nets: Iterable[T]) -> Iterator[tuple[T, Tell]]:
    """(a net, a function that updates the progress line, which begins with the net), one after another."""
    with watched() as (_, say):
        for net in nets:

            def tell(done: int, of: int, text: str, net: T = net) -> None:
                say(done, of, f"{net}: {text}")

            yield net, tell
