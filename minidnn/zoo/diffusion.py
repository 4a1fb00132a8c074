"""Denoising diffusion (Ho et al., "Denoising Diffusion Probabilistic Models", 2020): a U-Net that tells the noise of an
image.

Each batch draws a time and gaussian noise for every image, by the seed and the batch's number. The net gets the image
with as much noise as it has at that time, and the time. The loss is the mean of the squares of what it is wrong by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minidnn.nets.define import L, Top
from minidnn.nets.net import Net
from minidnn.zoo.pieces import dropped, geometry

GLOROT = {"type": "xavier", "variance_norm": "AVERAGE"}
ZERO = {"type": "constant"}  # of each branch's last product, so that the branch adds nothing at first
FIXED = [{"lr_mult": 0}]
EPS = 1e-6


class DDPM(Net):
    """That of CIFAR-10, with 35.7 million parameters beside its fixed tables of times. Its images are made up:
    `cifar10:FOLDER` as the `source`, with `transform_param: {mean_value: 127.5, scale: 0.00784, mirror: true}`, reads
    real ones."""

    name = "ddpm_cifar10"

    def define(
        self, batch: int = 128, size: int = 32, channels: int = 128, multipliers: Sequence[int] = (1, 2, 2, 2),
        blocks: int = 2, attended: int = 16, groups: int = 32, times: int = 1000, dropout: float = 0.1,
    ) -> None:  # fmt: skip
        """attended: the side of the maps that have attention
        blocks:   of each side on the way down; there is one more on the way up"""
        image = L.Data(name="data", top="data", source=f"synthetic:3x{size}x{size}:classes=10", batch_size=batch)
        time, noise = L.DummyData(
            name="drawn", top=["time", "noise"], shape=[{"dim": [batch]}, {"dim": [batch, 3, size, size]}],
            data_filler=[{"type": "uniform", "max": times}, {"type": "gaussian"}],
        )  # fmt: skip
        part = Parts(embedded(time, times, channels), groups, dropout)
        x, maps = conv(noisy(image, noise, time, times), "first", channels), channels
        kept, sides = [(x, maps)], [size >> i for i in range(len(multipliers))]
        for i, many in enumerate(multipliers):
            side = attended if sides[i] == attended else 0
            for j in range(1, blocks + 1):
                x = part.block(x, f"down{i + 1}_{j}", maps, channels * many, side)
                maps = channels * many
                kept.append((x, maps))
            if i < len(multipliers) - 1:
                x = L.Pad(x, name=f"down{i + 1}/edge", axis=2, after=[1])
                x = conv(x, f"down{i + 1}/half", maps, stride=2, pad=0)
                kept.append((x, maps))
        x = part.block(x, "middle1", maps, maps, sides[-1])
        x = part.block(x, "middle2", maps, maps)
        for i, many in reversed([*enumerate(multipliers)]):
            side = attended if sides[i] == attended else 0
            for j in range(1, blocks + 2):
                before, more = kept.pop()
                x = L.Concat(x, before, name=f"up{i + 1}_{j}/both")
                x = part.block(x, f"up{i + 1}_{j}", maps + more, channels * many, side)
                maps = channels * many
            if i:
                x = conv(L.Upsample(x, name=f"up{i + 1}/large", scale=2), f"up{i + 1}/conv", maps)
        x = conv(part.active(x, "last"), "told", 3, filler=ZERO)
        L.EuclideanLoss(x, noise, name="loss", loss_weight=2 / (3 * size * size))


@dataclass(frozen=True)
class Parts:
    """Parts of the U-Net. time: (N, 4 * channels), for all blocks."""

    time: Top
    groups: int
    dropout: float

    def block(self, x: Top, name: str, maps: int, outputs: int, side: int = 0) -> Top:
        """Two convolutions, with the time added between them, and x added to the end; then attention, if `side`, that
        of the maps, is given."""
        y = conv(self.active(x, f"{name}/first"), f"{name}/conv1", outputs)
        y = L.Bias(y, dense(self.time, f"{name}/time", outputs), name=f"{name}/timed", axis=0)
        y = dropped(self.active(y, f"{name}/second"), f"{name}/drop", self.dropout)
        y = conv(y, f"{name}/conv2", outputs, filler=ZERO)
        if maps != outputs:
            x = conv(x, f"{name}/shortcut", outputs, kernel=1, pad=0)
        x = L.Eltwise(x, y, name=f"{name}/sum")
        return self.attention(x, f"{name}/attention", outputs, side) if side else x

    def attention(self, x: Top, name: str, maps: int, side: int) -> Top:
        """One head over all pixels, added to x."""
        y = L.Reshape(self.normed(x, name), name=f"{name}/row", shape={"dim": [0, 0, -1]})
        y = L.Permute(y, name=f"{name}/pixels", order=[0, 2, 1])
        y = L.Attention(dense(y, f"{name}/qkv", 3 * maps, axis=2), name=f"{name}/head", num_heads=1)
        y = L.Permute(dense(y, f"{name}/out", maps, axis=2, filler=ZERO), name=f"{name}/maps", order=[0, 2, 1])
        y = L.Reshape(y, name=f"{name}/back", shape={"dim": [0, 0, side, side]})
        return L.Eltwise(x, y, name=f"{name}/sum")

    def active(self, x: Top, name: str) -> Top:
        return L.Swish(self.normed(x, name), name=f"{name}/silu", in_place=False)

    def normed(self, x: Top, name: str) -> Top:
        return L.GroupNorm(x, name=f"{name}/norm", num_groups=self.groups, eps=EPS)


def noisy(image: Top, noise: Top, time: Top, times: int) -> Top:
    """Each image with the noise of its time."""
    schedule = {"type": "diffusion", "min": 1e-4, "max": 0.02}
    factors = table(time, "schedule", times, 2, schedule)
    kept, added = L.Slice(factors, name="factors", top=["image_factor", "noise_factor"], axis=1)
    parts = [
        L.Scale(x, L.Flatten(factor, name=f"{name}_factors", axis=0), name=name, axis=0)
        for x, factor, name in ((image, kept, "image_part"), (noise, added, "noise_part"))
    ]
    return L.Eltwise(*parts, name="noisy")


def embedded(time: Top, times: int, channels: int) -> Top:
    """The time as numbers for all blocks: (N,) -> (N, 4 * channels)."""
    x = table(time, "sinusoids", times, channels, {"type": "sinusoid"})
    x = L.Swish(dense(x, "time1", 4 * channels), name="time1/silu", in_place=False)
    return L.Swish(dense(x, "time2", 4 * channels), name="time2/silu", in_place=False)


def table(index: Top, name: str, rows: int, width: int, filler: dict[str, Any]) -> Top:
    """Rows of a fixed table."""
    return L.Embed(
        index, name=name, param=FIXED, num_output=width, input_dim=rows, bias_term=False, weight_filler=filler
    )


def dense(x: Top, name: str, outputs: int, axis: int = 1, filler: dict[str, Any] = GLOROT) -> Top:
    return L.InnerProduct(x, name=name, axis=axis, num_output=outputs, weight_filler=filler)


def conv(
    x: Top, name: str, outputs: int, kernel: int = 3, stride: int = 1, pad: int = 1, filler: dict[str, Any] = GLOROT
) -> Top:
    return L.Convolution(x, name=name, **geometry(outputs, kernel, stride, pad), weight_filler=filler)
