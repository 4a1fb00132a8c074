"""Pages in a browser, where there is one: a few windows of what `python -m benchmarks.pages` opens."""

from __future__ import annotations

import pytest

from benchmarks import pages


@pytest.mark.slow
def test_a_page_is_quiet_uncut_and_tells_its_bars(monkeypatch):
    pytest.importorskip("playwright")
    if pages.chromium() is None:
        pytest.skip("there is no Chromium")
    monkeypatch.setattr(pages, "PATIENCE", 60_000)  # milliseconds, on a busy machine
    monkeypatch.setattr(pages, "WIDTHS", (390,))
    monkeypatch.setattr(pages, "pages", lambda every=pages.pages(): {"compare": every["compare"]})
    found = list(pages.checked(None))
    assert [what for *_, what in found] == [[], []]
