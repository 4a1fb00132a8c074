"""Which long runs count as flat."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.faults.long_run import EVERY, Sample, grown, tenths

FLAT = [Sample((k + 1) * EVERY, 5, 4, 100_000 + k, 1.0) for k in range(50)]


def test_tenths_are_medians_of_the_beginning_the_middle_and_the_end():
    assert [(name, s.iteration, s.kib) for name, s in tenths(FLAT)] == [
        ("first", 5 * EVERY, 100_002), ("middle", 27 * EVERY, 100_024), ("last", 50 * EVERY, 100_047),
    ]  # fmt: skip
    assert not grown(FLAT)


@pytest.mark.parametrize(
    "what, more, said",
    [("descriptors", 1, "1 more descriptors"), ("threads", 2, "2 more threads"), ("kib", 2000, "2045 KiB more")],
)
def test_what_has_grown_is_named(what, more, said):
    later = [replace(s, **{what: getattr(s, what) + more}) for s in FLAT[40:]]
    assert grown(FLAT[:40] + later) == [said]
