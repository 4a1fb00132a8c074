"""Nets that see images."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from tests.torch.nets.case import Case, labelled
from tests.torch.nets.words import Attention, Block


class ViT(nn.Module):
    def __init__(self, size, patch, width, heads, blocks, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads, 0.1) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(len(x), -1, -1), y], 1) + self.places
        return self.head(self.norm(self.blocks(y))[:, 0])


def vit(batch: int = 4, size=64, blocks=6) -> Case:
    return labelled(ViT(size, 8, 128, 4, blocks), batch, size)


class MixerBlock(nn.Module):
    def __init__(self, places, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(places, 2 * places), nn.GELU(), nn.Linear(2 * places, places))
        self.along = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.along(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, size, patch, width, blocks, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.blocks = nn.Sequential(*(MixerBlock((size // patch) ** 2, width) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.patches(x).flatten(2).transpose(1, 2))).mean(1))


def mixer(batch: int = 4, size=64, blocks=6) -> Case:
    return labelled(Mixer(size, 8, 128, blocks), batch, size)


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of an image."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    """With stochastic depth: whole samples are left out."""

    def __init__(self, width, left_out):
        super().__init__()
        self.wide, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale, self.left_out = nn.Parameter(torch.full((width,), 1e-1)), left_out

    def forward(self, x):
        y = self.norm(self.wide(x).permute(0, 2, 3, 1))
        y = (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)
        if self.training and self.left_out:
            kept = 1 - self.left_out
            y = y * (torch.rand(len(x), 1, 1, 1, device=x.device) < kept) / kept
        return x + y


def convnext(batch: int = 4, size=64, depths=(2, 2, 4, 2), widths=(24, 48, 96, 192)) -> Case:
    parts: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), ChannelNorm(widths[0])]
    for i, (depth, width) in enumerate(zip(depths, widths, strict=True)):
        if i:
            parts += [ChannelNorm(widths[i - 1]), nn.Conv2d(widths[i - 1], width, 2, 2)]
        parts += [ConvNeXtBlock(width, 0.1 * i) for _ in range(depth)]
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(widths[-1]), nn.Linear(widths[-1], 10)
    return labelled(nn.Sequential(*parts, *head), batch, size)


def normed(inputs, outputs, size, stride=1, groups=1, relu: nn.Module | None = None) -> list[nn.Module]:
    """A convolution without bias, BatchNorm, and ReLU."""
    convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), *([relu] if relu else [])]


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        first = normed(inputs, width, 1, relu=nn.ReLU(inplace=True))
        middle = normed(width, width, 3, stride, relu=nn.ReLU(inplace=True))
        self.body = nn.Sequential(*first, *middle, *normed(width, 4 * width, 1))
        same = stride == 1 and inputs == 4 * width
        self.shortcut = nn.Identity() if same else nn.Sequential(*normed(inputs, 4 * width, 1, stride))

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)


def resnet50(batch: int = 16, size=64, classes=10) -> Case:
    parts = [*normed(3, 64, 7, 2, relu=nn.ReLU(inplace=True)), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for i, depth in enumerate((3, 4, 6, 3)):
        for j in range(depth):
            parts.append(Bottleneck(inputs, 64 << i, 2 if i and not j else 1))
            inputs = 4 * (64 << i)
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)
    return labelled(nn.Sequential(*parts, *head), batch, size, classes)


class Dense(nn.Module):
    """A layer of a dense block: its results stand beside all that came before."""

    def __init__(self, inputs, growth):
        super().__init__()
        first = (
            nn.BatchNorm2d(inputs),
            nn.ReLU(inplace=True),
            *normed(inputs, 4 * growth, 1, relu=nn.ReLU(inplace=True)),
        )
        self.body = nn.Sequential(*first, nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False))

    def forward(self, x):
        return torch.cat([x, self.body(x)], 1)


def densenet121(batch: int = 2, size=64, growth=8, classes=10) -> Case:
    """All 121 layers, with a quarter of the growth."""
    width = 2 * growth
    parts = [*normed(3, width, 7, 2, relu=nn.ReLU(inplace=True)), nn.MaxPool2d(3, 2, 1)]
    for i, depth in enumerate((6, 12, 24, 16)):
        if i:
            half = nn.Conv2d(width, width // 2, 1, bias=False)
            parts += [nn.BatchNorm2d(width), nn.ReLU(inplace=True), half, nn.AvgPool2d(2)]
            width //= 2
        for _ in range(depth):
            parts.append(Dense(width, growth))
            width += growth
    head = (
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, classes),
    )
    return labelled(nn.Sequential(*parts, *head), batch, size, classes)


class Residual(nn.Module):
    """A block of a diffusion model, which is told the time."""

    def __init__(self, inputs, outputs, time):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time, self.dropout = nn.Linear(time, outputs), nn.Dropout(0.1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, time):
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.conv2(self.dropout(F.silu(self.norm2(y))))


class SelfAttention(nn.Module):
    """Between the places of an image."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.attention = nn.GroupNorm(8, width), Attention(width, 4)

    def forward(self, x):
        y = self.attention(self.norm(x).flatten(2).transpose(1, 2))
        return x + y.transpose(1, 2).reshape(x.shape)


class UNet(nn.Module):
    def __init__(self, widths=(32, 64, 128), time=64):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(time, time), nn.SiLU(), nn.Linear(time, time))
        self.first, pairs = nn.Conv2d(3, widths[0], 3, padding=1), list(pairwise(widths))
        self.down = nn.ModuleList(Residual(a, a, time) for a, _ in pairs)
        self.smaller = nn.ModuleList(nn.Conv2d(a, b, 3, 2, 1) for a, b in pairs)
        self.middle = nn.ModuleList([Residual(widths[-1], widths[-1], time), SelfAttention(widths[-1])])
        self.up = nn.ModuleList(Residual(a + b, a, time) for a, b in reversed(pairs))
        self.norm, self.last = nn.GroupNorm(8, widths[0]), nn.Conv2d(widths[0], 3, 3, padding=1)

    def forward(self, x, time):
        time, y, kept = self.time(time), self.first(x), []
        for residual, smaller in zip(self.down, self.smaller, strict=True):
            kept.append(residual(y, time))
            y = smaller(kept[-1])
        y = self.middle[1](self.middle[0](y, time))
        for residual in self.up:
            y = residual(torch.cat([F.interpolate(y, scale_factor=2.0), kept.pop()], 1), time)
        return self.last(F.silu(self.norm(y)))


def unet(batch: int = 4, size=32) -> Case:
    image = torch.randn(batch, 3, size, size)
    return Case(UNet(), (image, torch.randn(batch, 64), torch.randn_like(image)), F.mse_loss)


def vgg(batch: int = 16, size=64) -> Case:
    """VGG-16 with a quarter of its channels."""
    parts: list[nn.Module] = []
    inputs = 3
    for depth, width in ((2, 16), (2, 32), (3, 64), (3, 128), (3, 128)):
        for _ in range(depth):
            parts += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = width
        parts.append(nn.MaxPool2d(2))
    wide = inputs * (size // 32) ** 2
    head = nn.Flatten(), nn.Linear(wide, 256), nn.ReLU(), nn.Dropout(), nn.Linear(256, 256), nn.ReLU(), nn.Dropout()
    return labelled(nn.Sequential(*parts, *head, nn.Linear(256, 10)), batch, size)


class Inverted(nn.Module):
    """MobileNetV2's block, with squeeze and excitation as later ones have it."""

    def __init__(self, inputs, outputs, stride, times=6):
        super().__init__()
        wide, few = times * inputs, max(4, inputs // 4)
        before = normed(inputs, wide, 1, relu=nn.ReLU6(inplace=True))
        self.body = nn.Sequential(*before, *normed(wide, wide, 3, stride, wide, nn.ReLU6(inplace=True)))
        gate = nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, few, 1), nn.SiLU(), nn.Conv2d(few, wide, 1), nn.Hardsigmoid()
        self.gate, self.project = nn.Sequential(*gate), nn.Sequential(*normed(wide, outputs, 1))
        self.same = stride == 1 and inputs == outputs

    def forward(self, x):
        y = self.body(x)
        y = self.project(y * self.gate(y))
        return x + y if self.same else y


def mobilenet(batch: int = 4, size=64) -> Case:
    parts = normed(3, 16, 3, 2, relu=nn.ReLU6(inplace=True))
    inputs = 16
    for outputs, depth, stride in ((24, 2, 2), (32, 3, 2), (64, 3, 2), (96, 2, 1), (160, 2, 2)):
        for j in range(depth):
            parts.append(Inverted(inputs, outputs, stride if not j else 1))
            inputs = outputs
    head = *normed(inputs, 320, 1, relu=nn.ReLU6(inplace=True)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2)
    return labelled(nn.Sequential(*parts, *head, nn.Linear(320, 10)), batch, size)
