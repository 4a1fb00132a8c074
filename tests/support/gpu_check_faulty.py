"""`python -m benchmarks.gpu_check` with one faulty item: its second case ends the process, its fourth never ends."""

from __future__ import annotations

import os
import sys
import time
from types import SimpleNamespace

from benchmarks.gpu_check import __main__ as command


def item(run) -> None:
    run.case("first", lambda: {"value": 1})
    run.case("second", lambda: os._exit(9))
    run.case("third", lambda: {"value": 3})
    run.case("fourth", lambda: time.sleep(600))


if __name__ == "__main__":
    command.importlib = SimpleNamespace(import_module=lambda name: sys.modules[__name__])
    sys.exit(command.main())
