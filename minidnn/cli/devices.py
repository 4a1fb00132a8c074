"""`minidnn devices`: what there is to run on, and what can be simulated."""

from __future__ import annotations

import argparse
from typing import Any

from minidnn import sizes
from minidnn.cli.options import common


def arguments(parser: argparse.ArgumentParser) -> None:
    common(parser, "json")


def run(args: argparse.Namespace) -> int:
    from minidnn.costs import gpu, gpus
    from minidnn.report import table
    from minidnn.study.measure import copies

    out, back, _ = copies()
    devices: list[dict[str, Any]] = [_device(name, out, back) for name in ("cpu", "reference")]
    devices.append({"name": "cuda", "available": False, "why": "this version of minidnn has no CUDA backend"})
    profiles: list[dict[str, Any]] = []
    for name in gpus():
        g = gpu(name)
        profiles.append(
            {
                "name": name,
                "title": g.title,
                "memory_bytes": sizes.parse(g.memory.value),
                "peak_flops": g.peak_flops.value,
                "memory_bandwidth": g.memory_bandwidth.value,
                "link_out": g.link_out.value,
                "link_in": g.link_in.value,
            }
        )
    if args.json:
        table.dump({"devices": devices, "gpus": profiles})
        return 0
    lines = [
        [
            d["name"],
            "yes" if d["available"] else "no",
            sizes.text(d["memory_bytes"]) if d["available"] else "–",
            f"{d['bandwidth_out'] / 1e9:.1f} / {d['bandwidth_in'] / 1e9:.1f} GB/s" if d["available"] else "–",
            d["description"] if d["available"] else d["why"],
        ]
        for d in devices
    ]
    table.plain(["device", "available", "memory", "copies out / in", "what"], lines, "To run on (--device)")
    lines = [
        [
            p["name"],
            sizes.text(p["memory_bytes"]),
            f"{p['peak_flops'] / 1e12:.3g} TFLOP/s",
            f"{p['memory_bandwidth'] / 1e9:.0f} GB/s",
            f"{p['link_out'] / 1e9:.1f} GB/s",
            p["title"],
        ]
        for p in profiles
    ]
    table.plain(["gpu", "memory", "float32", "memory speed", "link", "what"], lines, "To simulate (--gpu)")
    return 0


def _device(name: str, out: float, back: float) -> dict[str, Any]:
    from minidnn.backends import open_device

    try:
        device = open_device(name)
    except (ImportError, OSError) as error:
        return {"name": name, "available": False, "why": str(error)}
    return {
        "name": name,
        "available": True,
        "description": device.description,
        "memory_bytes": device.memory,
        "bandwidth_out": out,
        "bandwidth_in": back,
    }
