"""Packages that tests compare with and that a user who runs `make test` need not have.

A test that imports one has the mark `peer` with its name, and imports it where it runs. Any other import of it fails,
also where the package is installed (tests/conftest.py), so that no test needs it without saying so.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.paths import ROOT

PEERS = (
    "accelerate", "cairosvg", "cv2", "diffusers", "onnxscript", "pandas", "playwright", "tensorboard", "torch",
    "transformers", "viztracer",
)  # fmt: skip


class Later:
    """A package that is imported when one of its names is first asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


torch = Later("torch")
F = Later("torch.nn.functional")


def of(item: pytest.Item) -> list[str]:
    """The peers that a test says it needs."""
    return [name for mark in item.iter_markers("peer") for name in mark.args]


@cache
def installed(package: str) -> bool:
    """Also told while imports of it are refused."""
    return PathFinder.find_spec(package) is not None


def _peer(module: str) -> str | None:
    package = module.partition(".")[0]
    return package if package in PEERS else None


class _Refusal:
    """The first finder to be asked: our own import of a peer is a test's failure, a package's finds none."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if not (peer := _peer(name)):
            return
        if _importer().is_relative_to(ROOT):
            pytest.fail(f"imports {peer}, which a user need not have: import it in a test marked peer({peer!r})")
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _importer() -> Path:
    """The file that imports: no machinery of Python or pytest. One of an installed package is only its name."""
    frame = sys._getframe(2)
    while frame and any(part in frame.f_code.co_filename for part in ("importlib", "_pytest")):
        frame = frame.f_back
    file = Path(frame.f_code.co_filename)
    return Path(file.name) if "site-packages" in file.parts else file


@contextmanager
def refused() -> Iterator[None]:
    """No peer can be imported, also one that was before."""
    # a package's modules are there only with the package: to look at thousands of names for each test takes a while
    imported = any(package in sys.modules for package in PEERS)
    hidden = {name: module for name, module in sys.modules.items() if _peer(name)} if imported else {}
    _drop(hidden)
    sys.meta_path.insert(0, _Refusal)
    try:
        yield
    finally:
        sys.meta_path.remove(_Refusal)
        sys.modules.update(hidden)


def _drop(modules: dict[str, ModuleType]) -> None:
    for name in modules:
        del sys.modules[name]
