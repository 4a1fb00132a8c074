"""Tables of the devices to run on and of the GPUs to simulate, and a line on copies while a device computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minidnn import sizes
from minidnn.report.table import duration, plain, prose
from minidnn.visible import say

Row = Mapping[str, Any]


def show_devices(devices: Sequence[Row]) -> None:
    """Print a table of the devices to run on. devices: the rows that `minidnn devices --json` prints."""
    lines = [
        [d["name"], "yes", sizes.text(d["memory_bytes"]), rates(d), d["description"]]
        if d["available"]
        else [d["name"], "no", "–", "–", d["why"]]
        for d in devices
    ]
    plain(["device", "available", "memory", "copies out / in", "what"], lines, "Devices to run on (--device)")
    for d in devices:
        if d["available"]:
            if d["found"]:
                prose(f"{d['name']}: {d['found']}")
            if d["beside_arena_bytes"] is not None:
                taken = sizes.text(d["beside_arena_bytes"])
                prose(f"{d['name']}: {taken} are in use outside any arena (CUDA's context, cuDNN, other programs)")
            prose(f"{d['name']}: {beside(d['beside_compute'])}")


def show_gpus(gpus: Sequence[Row]) -> None:
    """Print a table of the GPUs to simulate. gpus: the rows that `minidnn devices --json` prints."""
    lines = [
        [
            g["name"],
            sizes.text(g["memory_bytes"]),
            _tera(g["peak_flops"]),
            _tera(g["tf32_flops"]),
            _tera(g["float16_flops"]),
            f"{g['memory_bandwidth'] / 1e9:.0f} GB/s",
            f"{g['link_out'] / 1e9:.1f} GB/s",
            g["title"],
        ]
        for g in gpus
    ]
    headings = ["gpu", "memory", "float32", "TF32", "16 bits", "memory speed", "link", "what"]
    plain(headings, lines, "GPUs to simulate (--gpu); float32, TF32 and 16 bits in 10^12 operations per second")


def show_links(links: Sequence[Row]) -> None:
    """Print a table of the links to simulate between ranks."""
    lines = [
        [r["name"], f"{r['net_bandwidth'] / 1e9:.4g} GB/s", duration(r["message_seconds"]), duration(r["gap_seconds"]),
         r["title"]]
        for r in links
    ]  # fmt: skip
    plain(["link", "each way", "a message", "each further", "what"], lines, "Links between ranks (--link)")


def show_link(row: Row) -> None:
    """Print a link that was measured: the messages beside what the link's numbers say of them."""
    lines = [
        [
            str(r["messages"]),
            sizes.text(r["message_bytes"]),
            duration(r["transfer_seconds"]),
            duration(r["fitted_seconds"]),
        ]
        for r in row["rows"]
    ]
    plain(["messages", "bytes of each", "measured", "fitted"], lines, f"{row['ranks']} ranks on {row['device']}")
    own = f" A rank copies its own part at {row['own_bandwidth'] / 1e9:.3g} GB/s." if row["own_bandwidth"] else ""
    prose(
        f"{row['net_bandwidth'] / 1e9:.3g} GB/s each way, {duration(row['message_seconds'])} for a message, "
        f"{duration(row['gap_seconds'])} for each further one. A second of messages costs concurrent compute "
        f"{row['net_drag']:.2f} s.{own}"
    )
    say(f"link: {row['file']}")


def show_card(row: Row) -> None:
    """Print the numbers of a card's profile that were measured, beside those that it had."""
    lines = [
        [
            r["profile_field"],
            "–" if r["assumed_value"] is None else f"{r['assumed_value']:.4g}",
            f"{r['measured_value']:.4g}",
        ]
        for r in row["rows"]
    ]
    plain(["number", "its profile", "measured"], lines, f"{row['device']}: {row['description']}")
    prose(f"profile: {row['file']}; use it with --gpu {row['file']}")


def show_disk(row: Row) -> None:
    """Print the measurements of a disk."""
    how = "direct" if row["direct"] else "through the system's cache"
    prose(
        f"{row['path']} ({row['file_system'] or 'unknown'}, {sizes.text(row['free_bytes'])} free): writes "
        f"{row['write_bandwidth'] / 1e9:.2f} GB/s, reads {row['read_bandwidth'] / 1e9:.2f} GB/s, {how}; both at once "
        f"{row['write_bandwidth_beside'] / 1e9:.2f} and {row['read_bandwidth_beside'] / 1e9:.2f} GB/s"
    )
    prose(f"kept in {row['cache']}: plans with --disk on this file system use it")


def _tera(flops: float | None) -> str:
    return "–" if flops is None else f"{flops / 1e12:.{0 if flops > 1e14 else 1}f}"


def rates(row: Row) -> str:
    """The rates of copies out and in, in GB per second: "12.1 / 11.9 GB/s"."""
    return f"{row['bandwidth_out'] / 1e9:.1f} / {row['bandwidth_in'] / 1e9:.1f} GB/s"


def beside(computing: Sequence[Row]) -> str:
    """A line: the rates of copies while the device computes, and how much longer an op takes then.

    computing: rows of `Link.beside` (measuring/link.py)."""
    result = "; ".join(
        f"{rates(row)} beside an op bound by {row['bound_by']}, which takes {row['slower']:.2f} times as long"
        for row in computing
    )
    return f"copies out / in while the device computes: {result}"
