"""Small nets of several kinds, and devices, on which all decisions can be tried."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from minidnn import L, Net
from minidnn.costs import Costs, profile
from minidnn.memory.joint.index import fronts
from minidnn.optimizers import SGD
from minidnn.program import Program
from minidnn.programs.build import programs
from minidnn.programs.fusion import as_cuda
from minidnn.programs.spec import TrainSpec

DEVICES = (("titan_x", 0.2), ("titan_x", 1.0), ("h100", 0.3), ("a100", 1.0))


def convolution(x: Any, channels: int, size: int = 3) -> Any:
    return L.Convolution(x, num_output=channels, kernel_size=size, pad=size // 2)


def halved(x: Any) -> Any:
    return L.Pooling(x, kernel_size=2, stride=2)


def chain(x: Any) -> Any:
    """Convolutions one behind the other; every other ReLU overwrites."""
    for i in range(4):
        x = L.ReLU(convolution(x, 16), in_place=i % 2 == 0)
    return halved(x)


def normed(x: Any) -> Any:
    """A fork, BatchNorm, and a join."""
    x = convolution(x, 16)
    y = L.ReLU(L.BatchNorm(convolution(x, 16)))
    return halved(L.ReLU(L.Eltwise(x, convolution(y, 16))))


def branches(x: Any) -> Any:
    """A join, then two branches of several depths, whose maps are one map in the end."""
    x = halved(convolution(x, 8))
    x = L.Eltwise(x, convolution(L.ReLU(convolution(x, 16)), 8))
    return L.ReLU(L.Concat(convolution(x, 8, 1), convolution(L.ReLU(convolution(x, 4, 1)), 8)))


def attention(x: Any) -> Any:
    """A transformer's block in small: each place of the map looks at all, and there is a join around it."""
    x = L.Permute(L.Flatten(L.Pooling(x, kernel_size=4, stride=4), axis=2), order=[0, 2, 1])
    x = L.InnerProduct(x, num_output=32, axis=2)
    weights = L.Softmax(L.MatMul(x, x, transpose_b=True, scale=0.2), axis=2)
    y = L.GELU(L.InnerProduct(L.MatMul(weights, x), num_output=32, axis=2))
    return L.Eltwise(x, y)


def at_random(seed: int) -> Callable[[Any], Any]:
    """Some blocks of these kinds, one behind the other."""

    def body(x: Any) -> Any:
        r = random.Random(seed)
        x = convolution(x, r.choice([8, 16]))
        for _ in range(r.randint(1, 3)):
            channels, draw = r.choice([8, 16, 24]), r.random()
            if draw < 0.3:
                x = L.ReLU(convolution(x, channels, r.choice([1, 3])))
            elif draw < 0.5:
                x = L.ReLU(L.BatchNorm(convolution(x, channels)))
            elif draw < 0.7:
                y = convolution(x, channels)
                x = L.ReLU(L.Eltwise(y, convolution(L.ReLU(y), channels)))
            elif draw < 0.85:
                x = L.Concat(L.ReLU(convolution(x, 8, 1)), convolution(x, channels))
            else:
                x = halved(x)
        return halved(x) if r.random() < 0.5 else x

    return body


NETS: dict[str, Callable[[Any], Any]] = {f.__name__: f for f in (chain, normed, branches, attention)}


def training(body: Callable[[Any], Any], batch: int = 256) -> Program:
    """The program that trains a classifier of images of 32 x 32 with this body, with momentum."""

    class Small(Net):
        def define(self) -> None:
            x, label = L.Data(source="synthetic:3x32x32:classes=10", batch_size=batch)
            L.SoftmaxWithLoss(L.InnerProduct(body(x), num_output=10), label)

    made = programs(Small(), TrainSpec(SGD(momentum=0.9)), ("TRAIN",), fuses=as_cuda)
    return made["TRAIN"].synchronous_inputs()


def device(gpu: str, link: float, fastest: bool = False) -> Costs:
    """The profile of a GPU, with one algorithm an op, the leanest or the fastest, and this part of its links' rates."""
    costs = profile(gpu)
    pick = slice(-1, None) if fastest else slice(1)
    return replace(
        costs,
        bandwidth_out=costs.bandwidth_out * link,
        bandwidth_in=costs.bandwidth_in * link,
        latency=0.0,
        choices=lambda op: tuple(fronts(costs.choices(op))[pick]),
    )
