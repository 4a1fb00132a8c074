"""Measured speeds of this machine's disks, kept in the user's cache: a file for each mounted file system.

`minidnn devices --disk PATH` measures them (measuring/disk.py). Until then a disk has the rates that `Disk` assumes.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

from minidnn.costs.cache import positive
from minidnn.costs.costs import Disk
from minidnn.files import cache
from minidnn.visible import say_once

RATES = "write_rate", "read_rate"  # the fields of Disk that are kept


def place(folder: Path) -> Path:
    """The file of the cache for the file system that has this folder."""
    result = folder.resolve()
    while not os.path.ismount(result):
        result = result.parent
    return cache.home() / "costs" / f"disk-{hashlib.sha256(str(result).encode()).hexdigest()[:12]}.json"


def keep(folder: Path, disk: Disk) -> Path:
    """Keep the rates for plans; the file that has them. Where the cache cannot be used, say so on stderr."""
    path = place(folder)
    content = {name: getattr(disk, name) for name in RATES}
    cache.keep(path, json.dumps(content).encode(), "the disk's speed is measured again each time")
    return path


def measured(disk: Disk, folder: Path) -> Disk:
    """The disk with the rates that are kept for the folder's file system, if any are."""
    path = place(folder)
    content = cache.kept(path)
    if content is None:
        return disk
    try:
        result = json.loads(content)
        write, read = (positive(result[name]) for name in RATES)
        return replace(disk, write_rate=write, read_rate=read)
    except (ValueError, TypeError, LookupError) as error:  # as another version of minidnn may keep it
        say_once(f"minidnn: {path} is damaged ({error!r}): plans assume a disk's speed until it is measured again")
        return disk
