"""Images in bytes, in memory, as a net's data; and the images per second that the host's two threads feed.

    taskset -c 0,1 python -m benchmarks.fed                       # 256 x 3 x 256 x 256, of which 224 x 224 are cropped
    taskset -c 0,1 python -m benchmarks.fed --batch 64 --rounds 9

Before: the host crops, subtracts the mean, scales, mirrors, turns and casts. After: it gathers the samples as they are
(programs/raw.py). Both go on in turns, as in training: a thread makes a batch while another writes the one before to
the place that the device copies from. No device takes part. Medians of the rounds count.
"""

from __future__ import annotations

import argparse
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from minidnn.backends import layout
from minidnn.data import SOURCES, Source
from minidnn.data.dataset import Arrays
from minidnn.formats import usable
from minidnn.memory.execution.machine import _fill
from minidnn.nets.net import Net
from minidnn.program import Program, Tensor
from minidnn.programs.build import programs
from minidnn.schema.caffe import LayerParameter
from minidnn.schema.common import NetStateRule
from minidnn.schema.sources import DataParameter, TransformationParameter
from minidnn.training.feeds import Feeds

MARGIN = 32  # pixels by which images are higher and wider than their crops
MEAN, SCALE = [104.0, 117.0, 123.0], 1 / 58
BATCHES = 2  # in the dataset
NET = """\
name: fed
layer:
- {{name: data, type: Data, top: [data, label], data_param: {{source: synthetic:3x224x224, batch_size: {batch}}}}}
- {{name: pool, type: Pooling, bottom: data, top: pool, pooling_param: {{pool: AVE, global_pooling: true}}}}
- {{name: ip, type: InnerProduct, bottom: pool, top: ip, inner_product_param: {{num_output: 10}}}}
- {{name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}}
"""


class Bytes(Source):
    """`bytes:CxHxW:classes=K:count=N`: noise in uint8, in memory."""

    form = "bytes:3x256x256:classes=10:count=512"

    shape: tuple[int, ...]
    classes: int
    count: int

    @classmethod
    def parse(cls, text, split):
        found, (size, classes, count) = cls(split), text.split(":")
        shape = tuple(int(n) for n in size.split("x"))
        for name, value in (("shape", shape), ("classes", int(classes[8:])), ("count", int(count[6:]))):
            object.__setattr__(found, name, value)
        return found

    def sample_shape(self):
        return self.shape

    def sample_type(self):
        return "uint8"

    def open(self):
        random = np.random.default_rng(0)
        images = random.integers(0, 256, (self.count, *self.shape), np.uint8)
        return Arrays.of("bytes", images, random.integers(0, self.classes, self.count))


def of_bytes(net: Net) -> Net:
    """The net on cropped and mirrored images in bytes, for TRAIN alone, with its first weights."""
    SOURCES["bytes"] = Bytes
    shapes = {b.name: b.tensor.shape for node in net.graph("TRAIN").layers for b in node.tops if not node.bottoms}
    batch, channels, *crop = shapes["data"]
    ops = programs(net, None, ("TRAIN",))["TRAIN"].ops
    classes = min(op.reads[0].shape[1] for op in ops if op.kind == "softmax_loss.forward")
    size = "x".join(str(n) for n in (channels, *(n + MARGIN for n in crop)))
    source = f"bytes:{size}:classes={classes}:count={BATCHES * batch}"
    change = TransformationParameter(crop_size=crop[0], mean_value=MEAN[:channels], scale=SCALE, mirror=True)
    data = LayerParameter(
        name="data", type="Data", top=("data", "label"), include=(NetStateRule(phase="TRAIN"),), transform_param=change,
        data_param=DataParameter(source=source, batch_size=batch),
    )  # fmt: skip
    rest = tuple(layer for layer in net.parameter.layer if layer.bottom)
    changed = Net.from_parameter(net.parameter.model_copy(update={"layer": (data, *rest)}))
    changed.initial = net.initial  # type: ignore[method-assign]
    return changed


class _Host:
    """Stands in for a machine that is given inputs: it stores them as the cuda device has them."""

    def __init__(self, program: Program) -> None:
        self.views = {t: layout.view(np.zeros(t.nbytes, np.uint8), t) for t in program.inputs}

    def write(self, t: Tensor, values: np.ndarray, program: str) -> None:
        _fill(self.views[t], values)


class _Side:
    def __init__(self, net: Net, form: str, early: bool) -> None:
        self.program = programs(net, None, ("TRAIN",), format=form, double_buffered=early)["TRAIN"]
        self.feeds, self.host, self.position = Feeds(net.graph("TRAIN")), _Host(self.program), 0

    def images_per_second(self, batches: int) -> float:
        """As in training, where each batch is begun while the step before runs; steps take no time here."""
        machine: Any = self.host
        self.feeds.write(machine, self.program, self.position)
        began = perf_counter()
        for _ in range(batches):
            self.position += self.feeds.batch
            self.feeds.begin(machine, self.program, self.position)
            self.feeds.write(machine, self.program, self.position)
        seconds = perf_counter() - began
        for feed in self.feeds:  # so that its thread is idle in the other side's turn
            assert feed.loader._next is not None
            feed.loader._next[2].result()
        return batches * self.feeds.batch / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=3, help="of a round, for each side")
    parser.add_argument("--format", nargs="+", default=["float32", "bfloat16"])
    o = parser.parse_args()
    net = Net.from_text(NET.format(batch=o.batch))
    for form in map(usable, o.format):
        before, after = (_Side(of_bytes(net), form, early) for early in (False, True))
        rates = [[side.images_per_second(o.batches) for side in (before, after)] for _ in range(o.rounds)]
        one, other = (median(r[k] for r in rates) for k in (0, 1))
        ratio = median(b / a for a, b in rates)
        print(f"{form}: before {one:.0f} images/s, after {other:.0f}, {ratio:.2f} times as many", flush=True)


if __name__ == "__main__":
    main()
