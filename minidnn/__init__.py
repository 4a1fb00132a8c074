"""minidnn: train networks larger than the device's memory. Importing it imports neither CuPy nor a backend."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from minidnn import notebook as _notebook
from minidnn.version import __version__ as __version__

if TYPE_CHECKING:  # for editors and type checkers; at run time a name is imported when it is first used
    from minidnn.api.board import board as board
    from minidnn.api.cards import cards as cards
    from minidnn.api.compare import compare as compare
    from minidnn.api.frontier import frontier as frontier
    from minidnn.api.plan import plan as plan
    from minidnn.api.scaling import scaling as scaling
    from minidnn.api.search import search as search
    from minidnn.api.show import show as show
    from minidnn.api.time import algorithms as algorithms
    from minidnn.api.time import time as time
    from minidnn.api.tune import tune as tune
    from minidnn.api.tune_rate import tune_rate as tune_rate
    from minidnn.nets.define import L as L
    from minidnn.nets.net import Net as Net
    from minidnn.torch.modules import from_torch as from_torch
    from minidnn.training.session import Session as Session
    from minidnn.training.solver import Solver as Solver
    from minidnn.zoo import load as load

# The names `minidnn.<name>`, and the modules that they come from.
_EXPORTS = {
    "L": "nets.define", "Net": "nets.net", "Session": "training.session", "Solver": "training.solver", "load": "zoo",
    "algorithms": "api.time", "board": "api.board", "cards": "api.cards", "compare": "api.compare",
    "frontier": "api.frontier", "plan": "api.plan", "scaling": "api.scaling",
    "from_torch": "torch.modules", "search": "api.search", "show": "api.show", "time": "api.time", "tune": "api.tune",
    "tune_rate": "api.tune_rate",
}  # fmt: skip


if not TYPE_CHECKING:  # a type checker would take every name for one that is here

    def __getattr__(name: str) -> Any:
        if name in _EXPORTS:
            return getattr(importlib.import_module(f"minidnn.{_EXPORTS[name]}"), name)
        raise AttributeError(f"module 'minidnn' has no attribute {name!r}")


def _html(net: Any) -> str:
    from minidnn.api.show import show

    return show(net)._repr_html_()


_notebook.html = _html


def __dir__() -> list[str]:
    return [*globals(), *_EXPORTS]
