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


PICTURES = {"howto/arena_page.png": arena}


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
