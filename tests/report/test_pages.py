"""Pages in a browser, where there is one: a few windows of what `python -m benchmarks.pages` opens."""

from __future__ import annotations

import pytest

from benchmarks import pages

BAD = """<!doctype html><title>bad</title><link rel="icon" href="data:,"><img src="missing.png" alt="">
<div style="width: 2000px">wide</div><script>console.log("a word")</script>"""


@pytest.mark.peer("playwright")
@pytest.mark.slow
def test_a_page_is_quiet_uncut_and_tells_its_bars_and_a_bad_one_is_told(monkeypatch):
    if pages.chromium() is None:
        pytest.skip("there is no Chromium")
    shown = {"compare": pages.pages()["compare"], "bad": lambda file: file.write_text(BAD)}
    monkeypatch.setattr(pages, "PATIENCE", 60_000)  # milliseconds, on a busy machine
    monkeypatch.setattr(pages, "WIDTHS", (390,))
    monkeypatch.setattr(pages, "SCHEMES", ("dark",))
    monkeypatch.setattr(pages, "pages", lambda: shown)
    (_, _, _, good), (_, _, _, bad) = pages.checked(None)
    assert good == []
    for fault in ("console: a word", "missing.png", "pixels in a window of 390", "nothing has a name"):
        assert fault in "; ".join(bad)
