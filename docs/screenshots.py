"""Screenshots of our pages for the documents, by a Chromium that is here: `make pictures`."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

import minidnn

HERE = Path(__file__).parent
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


def arena(page: Page, folder: Path) -> bytes:
    """The page of a map, with a tensor found by its name."""
    steps = minidnn.plan("resnet18", "vdnn_all:m", batch=16, gpu="titan_x", budget="256MiB").steps()
    steps.save(folder / "arena.html")
    page.goto((folder / "arena.html").as_uri())
    page.locator("input").fill("res2a_branch2a_relu")
    return page.screenshot(full_page=True)


def report(page: Page, folder: Path) -> bytes:
    """A page of a comparison, zoomed, with the bars of a layer found."""
    policies = ["baseline:m", "vdnn_all:m", "best"]
    minidnn.compare("digits_lenet", policies, gpu="titan_x", budget="2.5MiB").save(folder / "report.html")
    page.goto((folder / "report.html").as_uri())
    page.get_by_label("Zoom in").click()
    page.locator("input").fill("conv2_1")
    page.locator("input").press("Enter")
    page.set_viewport_size({"width": 1200, "height": 1400})
    return page.locator("section:has(svg.step)").screenshot()


def phone(page: Page, folder: Path) -> bytes:
    """The top of the same page on a telephone, in the dark."""
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme="dark")
    page.goto((folder / "report.html").as_uri())
    return page.screenshot()


PICTURES = {"howto/arena_page.png": arena, "howto/report_page.png": report, "howto/report_phone.png": phone}


def main() -> None:
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        raise SystemExit("docs/screenshots.py: there is no chromium (on Debian: apt install chromium)")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        for name, take in PICTURES.items():
            page = browser.new_page(viewport={"width": 1200, "height": 600})
            (HERE / name).write_bytes(take(page, Path(folder)))
            print(HERE / name)
        browser.close()


if __name__ == "__main__":
    main()
