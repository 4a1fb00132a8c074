"""The form of a net in a notebook. A layer above makes it (api/show.py), which nets know nothing of: the package's face
sets it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

html: Callable[[Any], str]  # from a Net to its table
