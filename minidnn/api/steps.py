"""Steps to be written for other programs, and the arena of each drawn as a map."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from minidnn.errors import InvalidInput
from minidnn.files.replace import replacing, unwritable
from minidnn.report import arena, chrome, history, raster
from minidnn.report.markup import placeless
from minidnn.report.step import Step
from minidnn.version import __version__


class Steps(Sequence[Step]):
    """A step of each policy: the schedule, and the times, simulated or measured."""

    traces: ClassVar[tuple[str, ...]] = (".json", ".pickle")
    maps: ClassVar[tuple[str, ...]] = (".svg", ".html", ".png")

    def __init__(self, steps: Sequence[Step], told: Mapping[str, Any], title: str, notes: str, limit: int | None):
        """told: what `otherData` of a trace says besides. limit: bytes that were allowed; None: as many as there are"""
        self.steps, self.title, self.notes, self.limit = tuple(steps), title, placeless(notes), limit
        self.other_data = {"minidnn": __version__, **told, "budget_bytes": limit}

    def __getitem__(self, index: Any) -> Any:
        return self.steps[index]

    def __len__(self) -> int:
        return len(self.steps)

    def __repr__(self) -> str:
        return f"<Steps: {self.title}; {', '.join(s.policy for s in self.steps)}>"

    def _repr_html_(self) -> str:
        return self.arena()

    def trace(self) -> dict[str, Any]:
        """The document for Perfetto and chrome://tracing: a process for each policy."""
        return chrome.document(self.steps, self.other_data)

    def history(self) -> dict[str, Any]:
        """The snapshot for PyTorch's memory viewer: a device for each policy."""
        return history.snapshot(self.steps)

    def arena(self) -> str:
        """The maps, as SVG."""
        return arena.picture(self.steps, self.limit, self.title, self.notes)

    @classmethod
    def check(cls, path: str | Path, option: str = "save", *suffixes: str) -> None:
        """Raise InvalidInput if `save` cannot write this file. Call it before a long run."""
        if problem := unwritable(Path(path), *(suffixes or (*cls.traces, *cls.maps))):
            raise InvalidInput(f"{option} {path}: {problem}")
        if Path(path).suffix == ".png":
            raster.library()

    def save(self, path: str | Path) -> None:
        """Write a file. By its suffix: .json for Perfetto, .pickle for PyTorch's memory viewer, else a map of the arena
        (.svg, .png, .html).

        Raises as `Answer.save`."""
        self.check(path)
        suffix = Path(path).suffix
        if suffix == ".json":
            data = json.dumps(self.trace(), separators=(",", ":")).encode()
        elif suffix == ".pickle":
            data = history.pickled(self.steps)
        elif suffix == ".html":
            data = arena.page(self.steps, self.limit, self.title, self.notes, __version__).encode()
        else:
            drawn = self.arena()
            data = raster.png(drawn) if suffix == ".png" else drawn.encode()
        with replacing(Path(path), "wb") as file:
            file.write(data)
