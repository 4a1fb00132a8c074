"""`minidnn reproduce`: the verb is minidnn_papers', a package beside this one, which nothing else in minidnn names."""

from __future__ import annotations

import argparse
import importlib
from types import ModuleType

from minidnn.errors import InvalidInput

PACKAGE = "minidnn_papers"


def _verb() -> ModuleType:
    """The module of the verb. Raises InvalidInput where the package is not installed."""
    try:
        return importlib.import_module(f"{PACKAGE}.verb")
    except ModuleNotFoundError as error:
        if error.name != PACKAGE:
            raise
        raise InvalidInput(f"reproduce needs the package {PACKAGE}, which minidnn's wheel contains") from error


def arguments(parser: argparse.ArgumentParser) -> None:
    _verb().arguments(parser)


def run(args: argparse.Namespace) -> int:
    return int(_verb().run(args))
