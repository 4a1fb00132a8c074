"""(p) The examples of item a in float16. They are an item of their own, since float32 and bfloat16 matter more."""

from __future__ import annotations

from benchmarks.gpu_check import operations
from benchmarks.gpu_check.rounding import Precision
from benchmarks.gpu_check.run import Run


def item(run: Run) -> None:
    operations.compared(run, (Precision("float16"),))
