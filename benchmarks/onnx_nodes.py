"""ONNX's own tests of single nodes: how many pass, and why the others are refused.

    python -m benchmarks.onnx_nodes

The cases are those of the operators that minidnn reads, in float32 (tests/onnx/test_nodes.py). A wrong number is a
failure, and makes the exit code 1.
"""

from __future__ import annotations

import sys
from collections import Counter

from minidnn.onnx.ops import OPS
from minidnn.report.table import plain
from tests.onnx.test_nodes import cases, outcome

KINDS = ("passed", "refused", "failed")


def main() -> int:
    rows: list[tuple] = []
    reasons: Counter[str] = Counter()
    failed = 0
    for operator in sorted(OPS):
        counts: Counter[str] = Counter()
        for case in cases().get(operator, []):
            try:
                said = outcome(case)
            except AssertionError as wrong:
                failed += 1
                print(f"{case.name}: {str(wrong).strip().splitlines()[0]}", file=sys.stderr)
                counts["failed"] += 1
                continue
            counts["passed" if said == "passed" else "refused"] += 1
            if said != "passed":
                reasons[f"{operator}: {said.split(': ', 2)[-1].splitlines()[0]}"] += 1
        rows.append((operator, *(counts[k] for k in KINDS)))
    total = ("all", *(sum(row[i] for row in rows) for i in range(1, len(KINDS) + 1)))
    plain(["operator", *KINDS], [[str(cell) for cell in row] for row in (*rows, total)])
    for reason, count in sorted(reasons.items()):
        print(f"{count:3d}  {reason}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
