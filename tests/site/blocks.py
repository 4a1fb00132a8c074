"""The fenced blocks of a document that can be run, and whether their output is the one shown.

A block whose first line begins with `$ ` is a transcript. Each such line is a command. The lines below it are its whole
output, standard error included. A block whose first line is a comment with a file's name
(`# net.yaml`) is that file. Commands run in their order, in one folder. The blocks of Python without a name are one
program, which runs at the end.

Printed text is compared word by word, so that long lines may be folded. A line `...` stands for any text. A comment
before the block may say more:

    <!-- ends with 2 -->            the last command's exit code; 0 without it
    <!-- MiB, images vary -->       numbers before these words depend on the machine: not compared
    <!-- seconds vary -->           likewise times, whatever their unit
    <!-- numbers vary -->           no number is compared, nor a table's · for 0; the words between them are
    <!-- needs torch, onnx -->      packages without which the block is only shown
    <!-- not run: ITS REASON -->    the block is only shown
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.peers import installed

_BLOCK = re.compile(r"(?:<!-- ([^\n]*) -->\n\n?)?^(`{3,})([^\n`]*)\n(.*?)^\2$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# (\w[\w.-]*\.(?:py|yaml|prototxt|csv|plan))\n")
_NUMBER = r"(?<![\w.])[-+]?\d[\d.,]*(?:e[-+]?\d+)?"
_TIME = rf"{_NUMBER}\s?(?:µs|ms|s|min|h)(?!\w)"
_GLOG = re.compile(r"^I\d{4} [\d:.]+ \d+ ", re.MULTILINE)  # day, time and process of a line of Caffe's log


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int  # of its fence in the document
    told: str = ""  # the comment before it

    @property
    def file(self) -> str | None:
        found = _FILE.match(self.text)
        return found[1] if found else None

    @property
    def not_run(self) -> str | None:
        """Why the block is only shown; None if it is run."""
        if self.told.startswith("not run: "):
            return self.told.removeprefix("not run: ")
        missing = [name for name in self._list(r"needs ([^;]+)") if not installed(name)]
        return f"it needs {', '.join(missing)}" if missing else None

    @property
    def code(self) -> int:
        found = re.search(r"ends with (\d+)", self.told)
        return int(found[1]) if found else 0

    @property
    def varying(self) -> list[str]:
        """Numbers that are not compared: the words behind them, "seconds" for all times, "numbers" for all numbers."""
        return self._list(r"([^;]+) vary")

    def _list(self, pattern: str) -> list[str]:
        found = re.search(pattern, self.told)
        return [word.strip() for word in found[1].split(",")] if found else []

    def commands(self) -> Iterator[tuple[str, str]]:
        """(command, the output below it) of a transcript."""
        if not self.text.startswith("$ "):
            return
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            lines = part.split("\n")
            length = next(i for i, line in enumerate(lines, 1) if not line.endswith("\\"))
            yield "\n".join(lines[:length]), "\n".join(lines[length:])


def blocks(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    return [
        Block(found[3], found[4], text[: found.start(2)].count("\n") + 1, (found[1] or "").strip())
        for found in _BLOCK.finditer(text)
    ]


def same(shown: str, printed: str, varying: list[str]) -> bool:
    """Whether the printed text is the shown one, as far as the two are compared."""
    parts = re.split(r"^\.\.\.$", shown, flags=re.MULTILINE)
    pattern = r"\s.*?".join(r"\s+".join(re.escape(word) for word in words(part, varying)) for part in parts)
    text = " ".join(words(printed, varying))
    return re.fullmatch(rf"\s*{pattern}\s*", f" {text}" if len(parts) > 1 else text, re.DOTALL) is not None


def words(text: str, varying: list[str]) -> list[str]:
    """The compared part of a text: its words, lines of tables as one, and N for numbers that vary."""
    text = re.sub(r"─+", "─", _GLOG.sub("", text))
    if "seconds" in varying:
        text = re.sub(_TIME, "TIME", text)
    if "numbers" in varying:
        text = re.sub(rf"{_NUMBER}|(?<!\S)·(?!\S)", "N", text)
    elif units := "|".join(re.escape(unit) for unit in varying if unit != "seconds"):
        text = re.sub(rf"{_NUMBER}(\s?)(?=(?:{units})(?!\w))", r"N\1", text)
    return text.split()
