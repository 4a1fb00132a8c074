"""The result of a function of minidnn.api: rows, with the document of `--json`, a table, and files to write."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from minidnn.errors import InvalidInput
from minidnn.files.replace import replacing, unwritable
from minidnn.report import answer_page, raster, table
from minidnn.report.html import tabled
from minidnn.report.look import Cells, Look
from minidnn.results import Document, Record
from minidnn.spoken import many
from minidnn.version import __version__
from minidnn.visible import visible

if TYPE_CHECKING:
    import pandas

D = TypeVar("D", bound=Document)
R = TypeVar("R", bound=Record)
Tell = Callable[[str], None]
TOLD, WIDE = 3, 110  # lines below the title of a repr, and the characters of each


def silent(text: str) -> None:
    """Tell nobody of the work in progress."""


class Answer(Sequence[R], Generic[D, R]):
    """The rows of a result, as a sequence. `document` is the whole result; docs/results.md explains its fields.

    look:  how it is shown to people. Without a picture there are no .svg and .png files
    notes: where its numbers come from, in sentences
    """

    look: Look

    def __init__(self, document: D, title: str, notes: str = "") -> None:
        self.document, self.title, self.notes = document, title, notes

    # ---- as a sequence

    @property
    def rows(self) -> list[R]:
        result: list[R] = self.document["rows"]
        return result

    @overload
    def __getitem__(self, index: int) -> R: ...
    @overload
    def __getitem__(self, index: slice) -> list[R]: ...
    def __getitem__(self, index: int | slice) -> R | list[R]:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[R]:
        return iter(self.rows)

    # ---- in other forms

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a DataFrame with a column for each field. Raises InvalidInput without the package pandas."""
        try:
            import pandas
        except ImportError:
            raise InvalidInput("to_pandas() takes the package pandas: pip install 'minidnn[pandas]'") from None
        return pandas.DataFrame([row.plain() for row in self.rows])

    def to_json(self) -> str:
        """The document that `--json` prints."""
        return json.dumps(self.document.plain(), indent=1) + "\n"

    def to_csv(self) -> str:
        """The rows, below a line with the names of the fields. Lists and objects are written as JSON."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        rows = [row.plain() for row in self.rows]
        if rows:
            writer.writerow(rows[0])
        for row in rows:
            writer.writerow(json.dumps(v) if isinstance(v, dict | list) else v for v in row.values())
        return out.getvalue()

    def cells(self) -> Cells:
        """Headings and lines of the table for people."""
        return self.look.cells(self.document)

    def remarks(self) -> list[str]:
        """Sentences below the table."""
        return [*([self.notes] if self.notes else []), *self.look.sentences(self.document)]

    def show(self) -> None:
        """Print the title, the notes, the table and the sentences below it."""
        title = f"{self.title}. {self.notes}" if self.notes else self.title
        table.plain(*self.cells(), title, spare=self.look.spare)
        for sentence in self.remarks()[bool(self.notes) :]:
            table.prose(sentence)

    def picture(self) -> str:
        """The picture, as SVG. Raises NotImplementedError if there is none."""
        if self.look.picture is None:
            raise NotImplementedError
        return self.look.picture(self.document, self.title, self.notes)

    def page(self) -> str:
        """The page, as HTML: one of its own, or else the picture, the sentences and the table."""
        if self.look.page is not None:
            return self.look.page(self.document, self.title, self.notes, __version__)
        drawn = "" if self.look.picture is None else self.look.picture(self.document, "", "")
        said = self.remarks()[bool(self.notes) :]
        return answer_page.page(self.title, self.notes, drawn, *self.cells(), said, __version__)

    def _heading(self) -> str:
        """The title, with what was asked for."""
        return self.title

    def brief(self) -> list[str]:
        """What the answer comes to, in sentences, the most important first."""
        return self.remarks()[bool(self.notes) :]

    def __repr__(self) -> str:
        """The title, and the first of `brief`: at most five lines."""
        told, rows = self.brief(), many(len(self), "row")
        lines = [f"{type(self).__name__}: {visible(self._heading())}; {rows}", *map(visible, told[:TOLD])]
        lines += [f"and {len(told) - TOLD} more"] if len(told) > TOLD else []
        text = "\n ".join(shorten(line, WIDE, placeholder=" …") for line in lines)
        return f"<{text}>"

    def _repr_html_(self) -> str:
        """The table, and the picture if there is one, for a notebook."""
        return tabled(self._heading(), *self.cells(), self.remarks()) + (
            self.picture() if ".svg" in self.suffixes() else ""
        )

    # ---- as a file

    @classmethod
    def suffixes(cls) -> list[str]:
        """The suffixes of files that `save` writes."""
        look = cls.look
        return [".html", *([".svg", ".png"] if look.picture else []), ".csv", ".json"]

    @classmethod
    def check(cls, path: str | Path, option: str = "") -> None:
        """Raise InvalidInput if `save` cannot write this file. Call it before a long run."""
        if problem := unwritable(Path(path), *cls.suffixes()):
            lacks = "it is drawn as a table alone: " if Path(path).suffix in raster.PICTURES else ""
            raise InvalidInput(f"{option or 'save'} {path}: {lacks}{problem}")
        if Path(path).suffix == ".png":
            raster.library()

    def save(self, path: str | Path) -> None:
        """Write a file. Its suffix chooses the content: .csv the rows, .json the document, .svg or .png the picture,
        .html a page.

        If the disk is full, an older file of that name is kept. Raises InvalidInput if the file cannot be written,
        and for a .png without the package cairosvg."""
        self.check(path)
        suffix = Path(path).suffix
        if suffix == ".png":
            data = raster.png(self.picture())
        else:
            made = {".csv": self.to_csv, ".json": self.to_json, ".svg": self.picture, ".html": self.page}
            data = made[suffix]().encode()
        with replacing(Path(path), "wb") as file:
            file.write(data)
