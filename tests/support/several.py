"""Small programs of several ranks, for tests of the memory manager that need no arrays or kernels."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from minidnn.costs import Costs
from minidnn.costs.net import Link, among
from minidnn.memory.planning import arrange
from minidnn.memory.schedule import Arrangement
from minidnn.nets.net import Net
from minidnn.optimizers import SGD
from minidnn.program import Program
from minidnn.programs.build import programs
from minidnn.programs.spec import TrainSpec
from tests.support import programs as toys

_INPUTS = """
name: several
layer:
- {name: data, type: Input, top: [data], input_param: {shape: {dim: [4, 3, 16, 16]}}}
- {name: label, type: Input, top: [label], input_param: {shape: {dim: [4]}}}
"""
_PLAIN = """
- {name: conv1, type: Convolution, bottom: data, top: conv1,
   convolution_param: {num_output: 32, kernel_size: 3, pad: 1}}
- {name: relu1, type: ReLU, bottom: conv1, top: conv1}
- {name: pool1, type: Pooling, bottom: conv1, top: pool1, pooling_param: {pool: MAX, kernel_size: 2, stride: 2}}
- {name: conv2, type: Convolution, bottom: pool1, top: conv2,
   convolution_param: {num_output: 48, kernel_size: 3, pad: 1}}
- {name: relu2, type: ReLU, bottom: conv2, top: conv2}
- {name: ip1, type: InnerProduct, bottom: conv2, top: ip1, inner_product_param: {num_output: 40}}
- {name: relu3, type: ReLU, bottom: ip1, top: ip1}
- {name: ip2, type: InnerProduct, bottom: ip1, top: ip2, inner_product_param: {num_output: 10}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip2, label], top: loss}
"""
_NORMED = """
- {name: conv1, type: Convolution, bottom: data, top: conv1,
   convolution_param: {num_output: 32, kernel_size: 3, pad: 1, bias_term: false}}
- {name: norm1, type: BatchNorm, bottom: conv1, top: norm1}
- {name: scale1, type: Scale, bottom: norm1, top: norm1, scale_param: {bias_term: true}}
- {name: relu1, type: ReLU, bottom: norm1, top: norm1}
- {name: conv2, type: Convolution, bottom: norm1, top: conv2,
   convolution_param: {num_output: 32, kernel_size: 3, pad: 1, bias_term: false}}
- {name: norm2, type: BatchNorm, bottom: conv2, top: norm2}
- {name: sum, type: Eltwise, bottom: [norm1, norm2], top: sum}
- {name: drop, type: Dropout, bottom: sum, top: sum}
- {name: ip, type: InnerProduct, bottom: sum, top: ip, inner_product_param: {num_output: 10}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
"""
_HEADS = """
- {name: conv1, type: Convolution, bottom: data, top: conv1,
   convolution_param: {num_output: 24, kernel_size: 3, pad: 1}}
- {name: relu1, type: ReLU, bottom: conv1, top: conv1}
- {name: side, type: InnerProduct, bottom: conv1, top: side, inner_product_param: {num_output: 10}}
- {name: aside, type: SoftmaxWithLoss, bottom: [side, label], top: aside, loss_weight: 0.3}
- {name: conv2, type: Convolution, bottom: conv1, top: conv2,
   convolution_param: {num_output: 24, kernel_size: 3, pad: 1}}
- {name: ip, type: InnerProduct, bottom: conv2, top: ip, inner_product_param: {num_output: 10}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
"""


@dataclass(frozen=True)
class Case:
    """A net, and how its step trains."""

    layers: str
    spec: dict = field(default_factory=dict, hash=False)
    state: str = "device"


CASES = {
    "plain": Case(_PLAIN, {"optimizer": SGD(momentum=0.9)}),
    "normed": Case(_NORMED, {"optimizer": SGD(momentum=0.9, weight_decay=0.01)}),
    "clipped": Case(_HEADS, {"optimizer": SGD(momentum=0.9), "clip_gradients": 5.0}),
    "summed": Case(_NORMED, {"optimizer": SGD(), "iter_size": 2}),
    "hosted": Case(_PLAIN, {"optimizer": SGD(momentum=0.9)}, "host"),
}


def made(
    ranks: int, case: str = "plain", rank: int = 0, bucket: int = 20000, format: str = "float32", **more: Any
) -> dict[str, Program]:
    """The programs of one rank, by name. more: what else `TrainSpec` takes"""
    spec = TrainSpec(ranks=ranks, rank=rank, bucket=bucket, **CASES[case].spec | more)
    net = Net.from_text(_INPUTS + CASES[case].layers)
    return programs(net, spec, ("TRAIN",), state=CASES[case].state, format=format)


def costs(bandwidth: float = 1e9, link: Link = Link(1e9, 1e-5)) -> Costs:
    """Those of toys, with a network."""
    return among(toys.costs(bandwidth=bandwidth), link)


@cache
def arranged(
    ranks: int, case: str = "plain", policy: str = "liveness", rank: int = 0, budget: int | None = None
) -> Arrangement:
    """The programs of one rank, planned and proved."""
    return arrange(list(made(ranks, case, rank).values()), policy, costs(), budget)
