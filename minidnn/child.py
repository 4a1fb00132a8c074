"""Work in a child of this process, whose memory goes with it."""

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
    """What `work` returns, computed in a fork of this process. What it returns, or raises, is pickled.

    So what it leaves in memory is not this process's: caches, pieces of heaps, libraries. Raises what it raises, and
    ChildEnded where the child is killed."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_answer, args=(work, theirs), daemon=True)
    child.start()
    theirs.close()
    try:
        result, error = ours.recv()
    except EOFError:
        child.join()
        raise ChildEnded(f"a process of this one ended at its work, with exit code {child.exitcode}") from None
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
