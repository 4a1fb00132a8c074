"""The looks of a kind of documents: what `minidnn.api` shows people of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Cells = tuple[Sequence[str], Sequence[Sequence[str]]]


def _nothing(document: Any) -> list[str]:
    return []


@dataclass(frozen=True)
class Look:
    """Functions of a document, which reads as a mapping.

    cells:     headings and lines of the table
    sentences: sentences below the table
    spare:     headings of columns that a narrow terminal lacks, the least useful first
    picture:   (document, title, notes) -> SVG; without a title it is part of a page
    page:      (document, title, notes, version) -> HTML; None: that of any answer (answer_page.py)
    """

    cells: Callable[[Any], Cells]
    sentences: Callable[[Any], Sequence[str]] = _nothing
    spare: Sequence[str] = ()
    picture: Callable[[Any, str, str], str] | None = None
    page: Callable[[Any, str, str, str], str] | None = None
