"""The page of an arena's map in Chromium: every width, light and dark, pointer, keyboard and search."""

from __future__ import annotations

import pytest

import minidnn
from minidnn.memory.execution.lives import lives
from minidnn.report.arena import description
from tests.support.browser import chromium

pytestmark = pytest.mark.peer("playwright")


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """The steps, and a function that opens their page."""
    file = tmp_path_factory.mktemp("page") / "arena.html"
    steps = minidnn.plan("digits_lenet", "vdnn_all:m,best", gpu="titan_x", budget="2.5MiB").steps()
    steps.save(file)
    with chromium() as browser:

        def load(width: int = 1280, scheme: str = "light", script: bool = True):
            context = browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=script
            )
            page, told = context.new_page(), []
            page.set_default_timeout(0)
            page.on("console", lambda message: told.append(message.text))
            page.on("pageerror", lambda error: told.append(str(error)))
            page.goto(file.as_uri())
            return page, told

        yield steps, load


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_cut_and_the_console_is_silent(opened, scheme):
    page, told = opened[1](scheme=scheme)
    page.locator("svg.arena").first.focus()
    page.keyboard.press("End")
    for width in (390, 1280, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") == width and told == []


@pytest.mark.slow
def test_keys_pointer_and_search_name_tensors(opened):
    steps, load = opened
    page, _ = load()
    found = [description(life) for life in lives(steps[0].schedule, steps[0].trace)]
    live, map_ = page.locator("output").first, page.locator("svg.arena").first
    map_.focus()
    for key, i in (("ArrowRight", 0), ("ArrowRight", 1), ("ArrowLeft", 0), ("End", -1), ("Home", 0)):
        page.keyboard.press(key)
        assert live.text_content() == found[i]
    page.keyboard.press("End")
    here = lives(steps[0].schedule, steps[0].trace)[-1]
    page.keyboard.press("ArrowDown")
    below = next(v for v in lives(steps[0].schedule, steps[0].trace) if description(v) == live.text_content())
    assert below.offset < here.offset and below.start < here.end
    assert page.locator(".found").count() == 1
    page.locator(".lives rect.feature_maps").nth(1).hover()
    assert live.text_content() in found
    page.locator("input").first.fill("CONV1_2.Y.GRAD")
    assert live.text_content().startswith("conv1_2.y.grad: gradient maps, ")
    page.locator("input").first.fill("nosuch")
    assert live.text_content() == "no tensor has nosuch in its name"


@pytest.mark.slow
def test_without_a_script_titles_stay_and_nothing_is_dead(opened):
    page, _ = opened[1](script=False)
    assert page.locator("input, output").count() == 0
    assert page.locator(".lives rect title").count() == sum(len(lives(s.schedule, s.trace)) for s in opened[0])
