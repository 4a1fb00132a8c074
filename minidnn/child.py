"""Work in a fork of this process, whose memory goes with it."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TypeVar

from minidnn.errors import Failed

T = TypeVar("T")


class ChildEnded(Failed, RuntimeError):
    """The child ended without an answer."""


def in_child(work: Callable[[], T]) -> T:
    """Compute `work` in a fork of this process, and return its result. Results and errors are pickled.

    So the caches, heaps and libraries that `work` leaves in memory go with the fork: they count against no limit of
    this process. Raises the errors of `work`, and ChildEnded if the fork is killed."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_answer, args=(work, theirs), daemon=True)
    child.start()
    theirs.close()
    try:
        result, error = ours.recv()
    except EOFError:
        child.join()
        raise ChildEnded(f"a child process ended during its work, with exit code {child.exitcode}") from None
    finally:
        ours.close()
        child.terminate()
        child.join()
    if error is not None:
        raise error
    return result


def _answer(work: Callable[[], T], parent: Connection) -> None:
    answer: tuple[T | None, Exception | None]
    try:
        answer = work(), None
    except KeyboardInterrupt:  # the parent has had it, too
        os._exit(130)
    except Exception as error:
        answer = None, error
    parent.send(answer)
