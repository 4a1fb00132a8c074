"""A device whose kernels mix bytes: any wrong, late or stale byte changes their results."""

from __future__ import annotations

from functools import partial
from zlib import crc32

import numpy as np

from minidnn.memory.execution.device import Device
from tests.support.programs import costs


class Mixer(Device):
    """A device on which each op writes a mixture of all bytes that it reads and its name, in place or not."""

    name, memory = "mixer", 1 << 34

    def algorithms(self, op):
        return (costs().choices(op)[0].algorithm,)

    def array(self, buffer, tensor):
        return buffer.view(tensor.dtype).reshape(tensor.shape)

    def prepare(self, op, algorithm, views, workspace):
        return partial(mix, op, [views[t] for t in op.reads], [views[t] for t in op.writes], workspace)


def mix(op, reads, writes, workspace):
    if len(workspace):
        workspace.fill(crc32(op.name.encode()) % 251)
    total = [np.resize(r.reshape(-1).view(np.uint8).astype(np.uint32), 4096) for r in reads]
    for k, w in enumerate(writes):
        seed = crc32(f"{op.name}{k}".encode()) % 251
        bytes_ = sum(((i + 3) * t for i, t in enumerate(total)), np.arange(4096, dtype=np.uint32)) * 7 + seed
        # & 0x3F keeps exponents small, so that every float is finite
        w.reshape(-1).view(np.uint8)[:] = np.resize(bytes_, w.nbytes).astype(np.uint8) & 0x3F
