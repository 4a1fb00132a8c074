"""Measured speeds of this machine's disks, kept in the user's cache: a file for each mounted file system.

`minidnn devices --disk PATH` measures them (measuring/disk.py). Until then a disk has the rates that `Disk` assumes.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

from minidnn.costs.costs import Disk
from minidnn.files import cache


def place(folder: Path) -> Path:
    """The file of the cache for the file system that has this folder."""
    found = folder.resolve()
    while not os.path.ismount(found):
        found = found.parent
    return cache.home() / "costs" / f"disk-{hashlib.sha256(str(found).encode()).hexdigest()[:12]}.json"


def keep(folder: Path, disk: Disk) -> Path:
    """Keep the rates for plans; the file that has them. Where the cache cannot be used, say so on stderr."""
    path = place(folder)
    rates = {"write_rate": disk.write_rate, "read_rate": disk.read_rate}
    cache.keep(path, json.dumps(rates).encode(), "the disk's speed is measured anew each time")
    return path


def measured(disk: Disk, folder: Path) -> Disk:
    """The disk with the rates that are kept for the folder's file system, if any are."""
    content = cache.kept(place(folder))
    return disk if content is None else replace(disk, **json.loads(content))
