"""Machines of several ranks end with the bytes of one that takes all micro-batches in turn."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from minidnn.backends import open_device
from minidnn.costs import estimate
from minidnn.costs.net import Link, among
from minidnn.memory.execution.machine import Machine
from minidnn.memory.planning import arrange
from minidnn.nets.net import Net
from minidnn.optimizers import SGD
from minidnn.program import Role
from minidnn.programs.build import programs
from minidnn.programs.spec import TrainSpec
from minidnn.ranks import shards
from minidnn.ranks.threads import Group

NET = """
name: small
layer:
- {name: data, type: Input, top: [data], input_param: {shape: {dim: [3, 2, 8, 8]}}}
- {name: label, type: Input, top: [label], input_param: {shape: {dim: [3]}}}
- {name: conv1, type: Convolution, bottom: data, top: conv1,
   convolution_param: {num_output: 40, kernel_size: 3, pad: 1}}
- {name: norm1, type: BatchNorm, bottom: conv1, top: norm1}
- {name: scale1, type: Scale, bottom: norm1, top: norm1}
- {name: relu1, type: ReLU, bottom: norm1, top: norm1}
- {name: conv2, type: Convolution, bottom: norm1, top: conv2, convolution_param: {num_output: 30, kernel_size: 3}}
- {name: drop, type: Dropout, bottom: conv2, top: conv2}
- {name: ip, type: InnerProduct, bottom: conv2, top: ip, inner_product_param: {num_output: 20}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
"""
COSTS = Link(1e9, 1e-5)


def batches(count):
    random = np.random.default_rng(3)
    x = random.standard_normal((count, 3, 2, 8, 8)).astype(np.float32)
    return x, random.integers(0, 20, (count, 3)).astype(np.int32)


class Rank:
    """One rank's machine, with weights that are drawn alike on all ranks."""

    def __init__(self, ranks, rank, iter_size, policy, device, engine=None, bucket=20000):
        spec = TrainSpec(
            SGD(momentum=0.9, weight_decay=0.01), iter_size=iter_size, ranks=ranks, rank=rank, bucket=bucket
        )
        self.device = open_device(device)
        self.ranks, self.rank, self.each = ranks, rank, iter_size
        self.parts = [part.part for part in spec.parts]
        self.programs = programs(Net.from_text(NET), spec, ("TRAIN",))
        costs = among(estimate(self.device), COSTS)
        self.machine = Machine(self.device, arrange(list(self.programs.values()), policy, costs), engine=engine)
        random = np.random.default_rng(1)
        for t in sorted({t for p in self.programs.values() for t in p.persistent}, key=lambda t: t.name):
            if t.role is Role.PARAM and not t.name.endswith(".shard"):
                self.machine.set(t, (random.standard_normal(t.shape) * 0.1).astype(np.float32))
        for t in {t for p in self.programs.values() for t in p.persistent}:
            if t.name.endswith(".shard"):
                lying = self.machine.runtime.read(
                    self.machine.persistent[next(w for w in self.machine.persistent if w.name == t.name[:-6])]
                ).view(np.float32)
                own = np.zeros(t.shape, np.float32)
                first, last = shards.bounds(lying.size, ranks, rank)
                own[: last - first] = lying[first:last]
                self.machine.set(t, own)
            elif t.role is not Role.PARAM:
                self.machine.set(t, np.zeros(t.shape, np.float32))

    def train(self, iterations):
        total = self.ranks * self.each
        x, label = batches(iterations * total)
        for iteration in range(iterations):
            for m in range(self.each):
                k = iteration * total + self.rank * self.each + m
                name = self.parts[m]
                values = {"data": x[k], "label": label[k], "rate": [0.1], "iteration": [k]}
                for t in self.programs[name].inputs:
                    self.machine.write(t, np.asarray(values[t.name]), name)
                self.machine.step(name)
        return self

    def values(self):
        """The bytes of what lives across steps, as it lies, by name."""
        return {t.name: self.machine.runtime.read(home).copy() for t, home in self.machine.persistent.items()}


def together(ranks, each, policy="liveness", device="reference", iterations=3):
    """The bytes of each rank's shards after some iterations."""
    group, found = Group(ranks), [None] * ranks

    def run(rank):
        engine = group.engine(rank)
        try:
            one = Rank(ranks, rank, each, policy, device, engine).train(iterations)
            found[rank] = one.values()
            one.machine.close()
        finally:
            if found[rank] is None:
                engine.close()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def whole(parts, name):
    """What of a tensor each rank has a shard, the zeros behind it left out."""
    return np.concatenate([part[name] for part in parts])


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("ranks, each", [(2, 1), (2, 2), (4, 1), (3, 4)])
def test_the_bytes_are_those_of_one_rank(device, ranks, each):
    alone = Rank(1, 0, ranks * each, "liveness", device).train(3)
    parts = together(ranks, each, device=device)
    roles = {t.name: t.role for t in alone.machine.persistent}
    compared = set()
    for name, values in alone.values().items():
        learned, momentum, _ = name.partition(".momentum")
        shard = f"{learned}.shard{momentum}"
        if shard in parts[0]:
            assert whole(parts, shard)[: values.size].tobytes() == values.tobytes(), name
        elif roles[name] is not Role.PARAM_GRADIENT:
            assert {part[name].tobytes() for part in parts} == {values.tobytes()}, name
        else:
            continue
        compared.add(name)
    assert {"conv1.w", "conv1.w.momentum", "norm1.mean_sum", "norm1.factor", "ip.b"} <= compared
