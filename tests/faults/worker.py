"""A process that has imported all that training needs, and trains in forks of itself: a training takes a few
hundredths of a second then. It is started with the shim loaded; jobs come as lines of JSON, and their ends go back.

It never trains itself: no thread of a library's may run when it forks. What else to import it learns from its first
fork.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from minidnn.cli.main import main
from tests.faults import shim


def child(job: dict[str, Any]) -> int:
    """Run `minidnn` with the job's words in the job's folder. Returns the exit code."""
    os.chdir(job["folder"])
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(job["notes"] + f"/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    shim.arm(Path(job["folder"]), Path(job["notes"]) / "log", shim.Fault(**job["fault"]))
    try:
        return main(job["words"])
    finally:
        sys.stdout.flush()
        shim.disarm()
        (Path(job["notes"]) / "modules").write_text("\n".join(sys.modules))


def learn(file: Path) -> None:
    """Import what the first child has imported, in its order."""
    for name in file.read_text().splitlines():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()


def serve() -> None:
    reply = os.fdopen(os.dup(1), "w")
    learnt = False
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if not pid:
            code = 70
            try:
                code = child(job)
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 1
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        if not learnt:
            learn(Path(job["notes"]) / "modules")
            learnt = True
        print(os.waitstatus_to_exitcode(status), file=reply, flush=True)


if __name__ == "__main__":
    serve()
