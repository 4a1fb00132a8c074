"""`minidnn devices`: the devices that can be used here, and the GPUs that can be simulated."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from minidnn import sizes
from minidnn.cli.help import examples
from minidnn.cli.options import common
from minidnn.cli.values import device

if TYPE_CHECKING:
    from minidnn.results.times import DeviceRow, DiskRow, LinkRow


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn devices",
        "minidnn devices cuda:1 --json",
        "minidnn devices --disk /scratch",
        "minidnn devices cuda --profile card.yaml",
    )
    only = "show only this device; the exit code is 2 if it cannot be used"
    parser.add_argument("name", nargs="?", type=device, metavar="NAME", help=only)
    text = (
        "measure the link between the ranks that a launcher has started, and write it to a file for --link of other "
        "commands"
    )
    parser.add_argument("--link", metavar="FILE.yaml", help=text)
    text = "only measure the disk of this folder, and keep its speed for plans that use it"
    parser.add_argument("--disk", metavar="PATH", help=text)
    text = "measure all numbers of the GPU's profile, and write it to a file for --gpu of other commands"
    parser.add_argument("--profile", metavar="FILE.yaml", help=text)
    common(parser, "json")


def run(args: argparse.Namespace) -> int:
    from minidnn.backends import names_here
    from minidnn.costs import gpu, gpus
    from minidnn.report import devices as report
    from minidnn.report import table
    from minidnn.results.times import Devices, GpuRow

    if args.link:
        return _measured_link(args)
    if args.profile:
        return _measured_card(args)
    if args.disk:
        disk = _measured_disk(args.disk)
        if args.json:
            table.dump(Devices(devices=[], gpus=[], links=[], disks=[disk]))
        else:
            report.show_disk(disk)
        return 0
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
        table.dump(Devices(devices=devices, gpus=profiles, links=_links(), disks=[]))
        return code
    report.show_devices(devices)
    if args.name:
        return code
    report.show_gpus(profiles)
    report.show_links(_links())
    return 0


def _measured_disk(place: str) -> DiskRow:
    """Measure the disk of a folder, and keep the result."""
    import shutil

    from minidnn.costs import Disk, disks
    from minidnn.jobs.setting import Setting
    from minidnn.measuring.disk import disk
    from minidnn.results.times import DiskRow

    folder = Setting.of({"disk": place}).disk
    assert folder is not None
    result = disk(folder)
    cache = disks.keep(folder, Disk(None, result.write, result.read))
    return DiskRow(
        path=str(folder), file_system=result.kind, direct=result.direct, free_bytes=shutil.disk_usage(folder).free,
        write_bandwidth=result.write, read_bandwidth=result.read, write_bandwidth_beside=result.write_beside,
        read_bandwidth_beside=result.read_beside, cache=str(cache),
    )  # fmt: skip


def _links() -> list[LinkRow]:
    from minidnn.costs.links import links, named
    from minidnn.results.times import LinkRow

    result = [(name, named(name)) for name in links()]
    return [
        LinkRow(
            name=name, title=link.title, net_bandwidth=link.bandwidth, message_seconds=link.latency,
            gap_seconds=link.latency if link.gap is None else link.gap,
        )
        for name, link in result
    ]  # fmt: skip


def _measured_link(args: argparse.Namespace) -> int:
    """Measure the link between the ranks. All do; the first one tells and writes."""
    from minidnn.backends import open_device
    from minidnn.costs.links import text
    from minidnn.errors import InvalidInput
    from minidnn.files.replace import replacing, unwritable
    from minidnn.measuring.ranks import link
    from minidnn.ranks import launched
    from minidnn.report import devices as report
    from minidnn.report import table
    from minidnn.results.times import MeasuredLink, MessagesRow

    path = Path(args.link)
    if problem := unwritable(path, ".yaml", ".yml"):
        raise InvalidInput(f"--link {args.link}: {problem}")
    device = open_device(args.name or "cpu")
    if device.own_memory:
        raise InvalidInput(
            f"--link measures the link between hosts, and {device.name} has memory of its own: use the device cpu"
        )
    if (launch := launched.launch()) is None:
        raise InvalidInput(
            f"--link measures between ranks, and this is the only rank: mpiexec -n 2 minidnn {' '.join(sys.argv[1:])}"
        )
    engine = launched.engine(launch)
    result, tried = link(engine, device)
    if engine.rank:
        return 0
    with replacing(path) as file:
        file.write(text(result, f"`minidnn devices --link` between {engine.ranks} ranks"))
    gap, alone = result.latency if result.gap is None else result.gap, replace(result, own=None)
    rows = [
        MessagesRow(
            messages=t.messages, message_bytes=t.nbytes, transfer_seconds=t.seconds,
            fitted_seconds=alone.carry(engine.ranks - 1, t.messages, t.messages * t.nbytes),
        )
        for t in tried
    ]  # fmt: skip
    document = MeasuredLink(
        rows=rows, ranks=engine.ranks, device=device.name, description=device.description,
        net_bandwidth=result.bandwidth, message_seconds=result.latency, gap_seconds=gap, net_drag=result.drag,
        own_bandwidth=result.own, file=str(path),
    )  # fmt: skip
    if args.json:
        table.dump(document)
    else:
        report.show_link(document)
    return 0


def _measured_card(args: argparse.Namespace) -> int:
    """Measure the numbers of a GPU's profile, and write it."""
    from minidnn.backends import open_device
    from minidnn.backends.cuda.at_hand import at_hand
    from minidnn.costs.profiles import text
    from minidnn.errors import InvalidInput
    from minidnn.files.replace import replacing, unwritable
    from minidnn.measuring.card import card, changes
    from minidnn.report import devices as report
    from minidnn.report import table
    from minidnn.results.times import MeasuredCard, NumberRow

    path, name = Path(args.profile), args.name or "cuda"
    if problem := unwritable(path, ".yaml", ".yml"):
        raise InvalidInput(f"--profile {args.profile}: {problem}")
    if name.partition(":")[0] != "cuda":
        raise InvalidInput(f"--profile: only GPUs have a profile, and {name} is none: use the device cuda")
    device = open_device(name, tf32=False)
    base = at_hand(int(name.partition(":")[2] or 0))
    source = f"measured by `minidnn devices --profile` on {device.description}"
    result = card(base, device, None if base.tensor is None else open_device(name, tf32=True), source)
    with replacing(path) as file:
        file.write(text(result))
    document = MeasuredCard(
        rows=[
            NumberRow(profile_field=number, assumed_value=before, measured_value=after)
            for number, (before, after) in changes(base, result).items()
        ],
        device=device.name, description=device.description, file=str(path),
    )  # fmt: skip
    if args.json:
        table.dump(document)
    else:
        report.show_card(document)
    return 0


def _device(name: str) -> DeviceRow:
    from minidnn.backends import open_device
    from minidnn.measuring.link import link
    from minidnn.results.times import Beside, DeviceRow

    try:
        device = open_device(name)
    except (ImportError, OSError) as error:
        return DeviceRow(name=name, available=False, why=str(error))
    result = link(device)
    return DeviceRow(
        name=name,
        available=True,
        description=device.description,
        found=device.found,
        memory_bytes=device.memory,
        beside_arena_bytes=device.beside(),
        bandwidth_out=result.out,
        bandwidth_in=result.back,
        bandwidth_out_beside=result.out_beside,
        bandwidth_in_beside=result.back_beside,
        beside_compute=[Beside(**one) for one in result.beside()],
    )
