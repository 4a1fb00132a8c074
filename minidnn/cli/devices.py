"""`minidnn devices`: what there is to run on, and what can be simulated."""

from __future__ import annotations

import argparse
from typing import Any

from minidnn import sizes
from minidnn.backends import DEVICES
from minidnn.cli.options import common


def arguments(parser: argparse.ArgumentParser) -> None:
    only = "only this one; the exit code is 2 if it cannot be used"
    parser.add_argument("name", nargs="?", choices=DEVICES, help=only)
    common(parser, "json")


def run(args: argparse.Namespace) -> int:
    from minidnn.costs import gpu, gpus
    from minidnn.measuring.link import described
    from minidnn.report import table

    devices = [_device(name) for name in ([args.name] if args.name else DEVICES)]
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
    code = 2 if args.name and not devices[0]["available"] else 0
    if args.json:
        table.dump({"devices": devices, "gpus": profiles})
        return code
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
    for d in devices:
        if d["available"]:
            print(f"{d['name']}: {described(d['beside_compute'])}")
    if args.name:
        return code
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


def _device(name: str) -> dict[str, Any]:
    from minidnn.backends import open_device
    from minidnn.measuring.link import link

    try:
        device = open_device(name)
    except (ImportError, OSError) as error:
        return {"name": name, "available": False, "why": str(error)}
    found = link(device)
    return {
        "name": name,
        "available": True,
        "description": device.description,
        "memory_bytes": device.memory,
        "bandwidth_out": found.out,
        "bandwidth_in": found.back,
        "bandwidth_out_beside": found.out_beside,
        "bandwidth_in_beside": found.back_beside,
        "beside_compute": found.beside(),
    }
