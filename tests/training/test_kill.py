"""Kill -9, then --resume: the same bytes in the end. Twice here; benchmarks/kill9.py does it 20 times."""

import random

import pytest

from benchmarks import kill9


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_bytes(tmp_path):
    rng = random.Random(2)
    whole = kill9.undisturbed(tmp_path, 24, "reference")
    rows = [kill9.trial(tmp_path, f"trial{k}", 24, "reference", rng, whole) for k in range(2)]
    assert all(row.equal for row in rows), rows
    assert any(row.resumed_from > 0 for row in rows), rows
