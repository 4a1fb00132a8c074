"""How many examples hypothesis tries: few and always the same, or, if HYPOTHESIS_PROFILE is deep, many at random.

tests/conftest.py loads the profile before any test module is imported.
"""

from __future__ import annotations

import os

from hypothesis import settings

QUICK, DEEP = "quick", "deep"
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", QUICK)
TIMES = {QUICK: 1, DEEP: 50}[PROFILE]

settings.register_profile(QUICK, deadline=None, derandomize=True)
settings.register_profile(DEEP, deadline=None, print_blob=True)


def examples(count: int) -> settings:
    """So many examples, or 50 times as many where the profile is deep."""
    return settings(max_examples=count * TIMES)
