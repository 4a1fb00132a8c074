"""`minidnn devices`: the devices that can be used here, and the GPUs that can be simulated."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from minidnn import sizes
from minidnn.cli.help import examples
from minidnn.cli.options import common
from minidnn.cli.values import device

if TYPE_CHECKING:
    from minidnn.results.times import DeviceRow


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn devices",
        "minidnn devices cuda:1 --json",
    )
    only = "only this one; the exit code is 2 if it cannot be used"
    parser.add_argument("name", nargs="?", type=device, metavar="NAME", help=only)
    common(parser, "json")


def run(args: argparse.Namespace) -> int:
    from minidnn.backends import names_here
    from minidnn.costs import gpu, gpus
    from minidnn.report import devices as report
    from minidnn.report import table
    from minidnn.results.times import Devices, GpuRow

    devices = [_device(name) for name in ([args.name] if args.name else names_here())]
    profiles: list[GpuRow] = []
    for name in gpus():
        g = gpu(name)
        profiles.append(
            GpuRow(
                name=name,
                title=g.title,
                memory_bytes=sizes.parse(g.memory.value),
                peak_flops=g.peak_flops.value,
                tf32_flops=None if g.tf32_flops is None else g.tf32_flops.value,
                float16_flops=None if g.float16_flops is None else g.float16_flops.value,
                bfloat16_flops=None if g.bfloat16_flops is None else g.bfloat16_flops.value,
                memory_bandwidth=g.memory_bandwidth.value,
                link_out=g.link_out.value,
                link_in=g.link_in.value,
            )
        )
    code = 2 if args.name and not devices[0].available else 0
    if args.json:
        table.dump(Devices(devices=devices, gpus=profiles))
        return code
    report.show_devices(devices)
    if args.name:
        return code
    report.show_gpus(profiles)
    return 0


def _device(name: str) -> DeviceRow:
    from minidnn.backends import open_device
    from minidnn.measuring.link import link
    from minidnn.results.times import Beside, DeviceRow

    try:
        device = open_device(name)
    except (ImportError, OSError) as error:
        return DeviceRow(name=name, available=False, why=str(error))
    found = link(device)
    return DeviceRow(
        name=name,
        available=True,
        description=device.description,
        found=device.found,
        memory_bytes=device.memory,
        beside_arena_bytes=device.beside(),
        bandwidth_out=found.out,
        bandwidth_in=found.back,
        bandwidth_out_beside=found.out_beside,
        bandwidth_in_beside=found.back_beside,
        beside_compute=[Beside(**one) for one in found.beside()],
    )
