"""Where files that tests read are."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"
NET_FILES = SUPPORT / "nets"
GOLDEN = ROOT / "tests" / "golden"
MODELS = ROOT / "models"

SMALL_NETS = ["chain", "diamond", "residual", "inception", "nested", "lenet"]  # of NET_FILES: a few layers each
