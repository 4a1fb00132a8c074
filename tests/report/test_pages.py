"""Pages in a browser, where there is one: a few windows of what `python -m benchmarks.pages` opens."""

from __future__ import annotations

import pytest

from benchmarks import pages

BAD = """<!doctype html><title>bad</title><link rel="icon" href="data:,"><img src="missing.png" alt="">
<div style="width: 2000px">wide</div><script>console.log("a word")</script>"""
# each fault of layout.js, by what makes it
LAYOUT = {
    "cuts off: <p>": '<p style="width: 40px; overflow: hidden; white-space: nowrap">words that are cut</p>',
    "pixels in a window of 390": "<pre>" + "long " * 40 + "</pre>",
    "beyond the window: <div>": '<div style="width: 500px">wide</div>',
    "overlap: <p>": '<p>one</p><p style="margin-top: -30px">other</p>',
    "words on words: <text>": '<svg viewBox="0 0 90 20"><text y="15">one</text><text x="4" y="15">other</text></svg>',
    "outside of its picture: <text>": '<svg viewBox="0 0 90 20" width="300"><text x="85" y="15">far out</text></svg>',
    "loses its names: <table>": '<div style="overflow: auto"><table><tr><td>a<td><hr width=900></table></div>',
    "too small to read: <img>": '<img alt="a" style="width: 300px" src="wide.svg">',
    "not there: gone.svg": '<img alt="a" style="width: 300px" src="gone.svg">',
}


@pytest.mark.peer("playwright")
@pytest.mark.slow
def test_a_page_is_quiet_uncut_and_tells_its_bars_and_a_bad_one_is_told(monkeypatch, tmp_path):
    if pages.chromium() is None:
        pytest.skip("there is no Chromium")
    shown = {"compare": pages.pages()["compare"], "bad": lambda file: file.write_text(BAD)}
    monkeypatch.setattr(pages, "PATIENCE", 60_000)  # milliseconds, on a busy machine
    monkeypatch.setattr(pages, "WIDTHS", (390,))
    monkeypatch.setattr(pages, "SCHEMES", ("dark",))
    monkeypatch.setattr(pages, "pages", lambda: shown)
    (_, _, _, good), (_, _, _, bad) = pages.checked(pages.reports(tmp_path, lambda name: True), None)
    assert good == []
    for fault in ("console: a word", "missing.png", "pixels in a window of 390", "nothing has a name"):
        assert fault in "; ".join(bad)


@pytest.mark.peer("playwright")
@pytest.mark.slow
def test_each_fault_of_a_layout_is_told_and_a_page_of_the_site_may_load_its_own_files(monkeypatch, tmp_path):
    if pages.chromium() is None:
        pytest.skip("there is no Chromium")
    monkeypatch.setattr(pages, "WIDTHS", (390,))
    monkeypatch.setattr(pages, "SCHEMES", ("light",))
    (tmp_path / "site.css").write_text("p { margin: 10px }")
    (tmp_path / "wide.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="900" height="9"/>')
    head = '<!doctype html><link rel="icon" href="data:,"><link rel="stylesheet" href="site.css"><article><p>first</p>'
    for number, made in enumerate(["", *LAYOUT.values()]):
        (tmp_path / f"{number}.html").write_text(head + made)
    (tmp_path / "search.html").write_text(head + '<p style="width: 3000px">Sphinx\'s own</p>')
    good, *bad = (wrong for *_, wrong in pages.checked(pages.of_site(tmp_path, lambda name: True), None))
    assert good == []
    for fault, wrong in zip(LAYOUT, bad, strict=True):
        assert any(fault in text for text in wrong), (fault, wrong)
