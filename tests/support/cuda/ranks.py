"""Ranks as threads, each with a GPU of tests/support/cuda/fake.py and an engine of NCCL over it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from minidnn.backends.cuda.device import CudaDevice
from minidnn.ranks.nccl import Nccl
from minidnn.ranks.threads import Group
from tests.support.cuda.fake import Machine, fake_device

Body = Callable[[int, CudaDevice, Nccl], Any]


def on_gpus(
    ranks: int,
    body: Body,
    seed: int = 0,
    limit: float = 600.0,
    graphs: bool = True,
    make: Callable[..., CudaDevice] = fake_device,
) -> list[Any]:
    """What the body returns on each rank. The error that came first is raised, once all have ended.

    limit: the seconds that a rank waits for others
    make:  makes each rank's device"""
    group, machine = Group(ranks, limit), Machine(seed, limit)
    found: list[Any] = [None] * ranks
    failed: list[BaseException] = []

    def run(rank: int) -> None:
        channel = group.engine(rank)
        try:
            device = make(machine=machine, graphs=graphs)
            engine = Nccl(channel, device.api, device.net, limit)
            found[rank] = body(rank, device, engine)
        except BaseException as error:
            failed.append(error)
            machine.failed = True
            channel.close()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return found
