"""The paths of files that tests read."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"
NET_FILES = SUPPORT / "nets"
GOLDEN = ROOT / "tests" / "golden"
MODELS = ROOT / "models"

SMALL_NETS = ["chain", "diamond", "residual", "inception", "nested", "lenet"]  # in NET_FILES, of a few layers each
