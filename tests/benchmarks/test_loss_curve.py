"""The picture of a run's losses is drawn from the lines that training prints."""

from __future__ import annotations

import pytest

from benchmarks.loss_curve import drawn

LINES = """I1128 08:37:35.750542 7402 solver.py:1] Iteration 0, Testing net (#0)
I1128 08:37:35.750542 7402 solver.py:1]     Test net output #0: loss = 5.5 (* 1 = 5.5 loss)
I1128 08:37:35.750542 7402 solver.py:1] Iteration 0 (1.8 iter/s, 14 tokens/s), loss = 5.25
I1128 08:37:35.750542 7402 solver.py:1] Iteration 100 (1.8 iter/s, 14 tokens/s), loss = 2.5
"""


def test_training_is_a_line_and_tests_are_points():
    svg = drawn(LINES)
    assert "Loss of a byte: 2.50 in training after 100 iterations, the last test 5.50" in svg
    assert svg.count("<circle") == 1 and svg.count('fill="none"') == 1 and "iteration 0: test 5.5" in svg


def test_lines_without_losses_are_refused():
    with pytest.raises(SystemExit, match="expected the lines of `minidnn train`"):
        drawn(LINES[:200])
