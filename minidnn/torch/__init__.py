"""PyTorch: its modules planned, and run within a budget of bytes; and as nets, with their state back.

    minidnn.torch.plan(module, args, loss=..., ...)     and frontier, cards, search, board, compare: nothing runs
    minidnn.torch.compile(module, args, loss=..., ...)  a step for the user's own loop
    minidnn.torch.planned_addresses()                   before CUDA is used: what a step reserves is what was planned

PyTorch is imported only where it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for editors and type checkers; at run time a name is imported when it is first used
    from minidnn.torch.addresses.api import planned_addresses as planned_addresses
    from minidnn.torch.addresses.api import reserved as reserved
    from minidnn.torch.planning import board as board
    from minidnn.torch.planning import cards as cards
    from minidnn.torch.planning import compare as compare
    from minidnn.torch.planning import frontier as frontier
    from minidnn.torch.planning import plan as plan
    from minidnn.torch.planning import search as search
    from minidnn.torch.step import compile as compile

# The names `minidnn.torch.<name>`, and the modules that they come from.
_EXPORTS = {
    "compile": "step",
    **dict.fromkeys(("planned_addresses", "reserved"), "addresses.api"),
    **dict.fromkeys(("board", "cards", "compare", "frontier", "plan", "search"), "planning"),
}

if not TYPE_CHECKING:  # a type checker would take every name for one that is here

    def __getattr__(name: str) -> Any:
        if name in _EXPORTS:
            return getattr(importlib.import_module(f"minidnn.torch.{_EXPORTS[name]}"), name)
        raise AttributeError(f"module 'minidnn.torch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_EXPORTS]
