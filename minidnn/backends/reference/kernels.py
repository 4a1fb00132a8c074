"""The table from op kind to kernel, joined from the tables of all families."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minidnn.backends.families import joined

Kernel = Callable[[Any, Sequence[np.ndarray], Sequence[np.ndarray]], None]  # attrs, reads, writes

KERNELS: dict[str, Kernel] = joined("minidnn.backends.reference", "KINDS")
