"""Builds the site of every release, and that of the files as they are, one beside the other.

    python docs/versions.py FOLDER

FOLDER gets a folder for each tag vVERSION (0.2.0/, 0.1.0/), and main/ for the working tree. Its index.html leads to the
newest release, or to main where nothing has been tagged. The sidebar of each page links to the other versions.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOW = "main"
INDEX = """<!doctype html><html lang="en"><meta charset="utf-8"><title>minidnn</title>
<meta http-equiv="refresh" content="0; url={0}/index.html"><p><a href="{0}/index.html">minidnn {0}</a></p></html>
"""


def releases(root: Path) -> list[str]:
    """The versions that have a tag, the newest first."""
    command = ["git", "-C", str(root), "tag", "--list", "v[0-9]*", "--sort=-version:refname"]
    return [tag[1:] for tag in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()]


@contextmanager
def tree(root: Path, version: str) -> Iterator[Path]:
    """The files of a release, or the working tree."""
    if version == NOW:
        yield root
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "files.tar")
        subprocess.run(["git", "-C", str(root), "archive", f"--output={archive}", f"v{version}"], check=True)
        files = Path(folder, "files")
        files.mkdir()
        subprocess.run(["tar", "-xf", str(archive), "-C", str(files)], check=True)
        yield files


def build(root: Path, folder: Path) -> None:
    """Write all versions into the folder. Raises CalledProcessError where git or Sphinx fails, which says why."""
    found = releases(root)
    versions = [NOW, *found]
    for version in versions:
        print(f"{version}: {folder / version}", flush=True)
        names = ["-A", f"versions={' '.join(versions)}", "-A", f"shown_version={version}"]
        with tree(root, version) as files:
            command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", *names, str(files / "docs")]
            subprocess.run([*command, str(folder / version)], check=True)
    (folder / "index.html").write_text(INDEX.format((found or versions)[0]), encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print("usage: python docs/versions.py FOLDER", file=sys.stderr)
        return 2
    try:
        build(ROOT, Path(arguments[0]))
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"docs/versions.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
