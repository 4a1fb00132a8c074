"""A PyTorch user with photos of their own: a ResNet with BatchNorm, trained within half of its memory, and back."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.nn import functional as F

import minidnn

PHOTOS = Path("out/photos")
CLASSES = ("circle", "cross", "square")


def draw(kind: str, seed: int) -> Image.Image:
    """Stands for a photo: a shape of some colour, size and place on a dark ground, in an image of some size."""
    random = np.random.default_rng([CLASSES.index(kind), seed])
    width, height = (int(n) for n in random.integers(60, 100, 2))
    image = Image.fromarray(random.integers(0, 90, (height, width, 3), np.uint8))
    side = int(random.integers(30, 45))
    x, y = (int(random.integers(4, n - side - 4)) for n in (width, height))
    colour, pen = tuple(int(c) for c in random.integers(140, 256, 3)), ImageDraw.Draw(image)
    if kind == "circle":
        pen.ellipse((x, y, x + side, y + side), fill=colour)
    elif kind == "square":
        pen.rectangle((x, y, x + side, y + side), fill=colour)
    else:
        pen.line((x, y + side // 2, x + side, y + side // 2), fill=colour, width=side // 4)
        pen.line((x + side // 2, y, x + side // 2, y + side), fill=colour, width=side // 4)
    return image


for kind in CLASSES:
    for seed in range(120):
        folder = PHOTOS / ("train" if seed < 100 else "val") / kind
        folder.mkdir(parents=True, exist_ok=True)
        draw(kind, seed).save(folder / f"{seed:03}.jpg")


class Photos(torch.utils.data.Dataset):
    """The photos of a folder, 32 x 32, as any PyTorch training reads them."""

    classes = CLASSES

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*/*.jpg"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        pixels = np.asarray(Image.open(self.files[index]).resize((32, 32)), np.float32)
        image = torch.from_numpy(pixels).permute(2, 0, 1) / 255 - 0.4
        return image, CLASSES.index(self.files[index].parent.name)


class Block(nn.Module):
    def __init__(self, inputs: int, maps: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, maps, 3, stride, 1, bias=False), nn.BatchNorm2d(maps)
        self.conv2, self.bn2 = nn.Conv2d(maps, maps, 3, 1, 1, bias=False), nn.BatchNorm2d(maps)
        self.short = nn.Sequential()
        if stride > 1 or inputs != maps:
            self.short = nn.Sequential(nn.Conv2d(inputs, maps, 1, stride, bias=False), nn.BatchNorm2d(maps))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.short(x))


def resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, len(CLASSES)),
    )  # fmt: skip


torch.manual_seed(1)
module = resnet()
train, val = Photos(PHOTOS / "train"), Photos(PHOTOS / "val")

print("== 1. How many bytes does training with a batch of 40 take, and how few will do?")
net = minidnn.from_torch(module, torch.zeros(40, 3, 32, 32))
plain, shared = (row.peak_bytes for row in minidnn.plan(net, policies="baseline,best"))
budget = shared // 2
print(f"each buffer for itself {plain / 2**20:.1f} MiB, shared {shared / 2**20:.1f} MiB; now {budget / 2**20:.1f} MiB")

print("== 2. Train within that budget, on the module's own Dataset.")
options = {"base_lr": 0.02, "momentum": 0.9, "max_iter": 60, "random_seed": 1}
with minidnn.Solver(net, data=train, test_data=val, budget=budget, **options) as solver:
    solver.solve()
    state = net.to_torch_state_dict(solver)
    print(f"{solver.peak_bytes / 2**20:.1f} MiB")

print("== 3. Back in PyTorch, with the weights and the running statistics.")
module.load_state_dict(state)
module.eval()
images, labels = next(iter(torch.utils.data.DataLoader(val, batch_size=len(val))))
with torch.no_grad():
    right = int((module(images).argmax(1) == labels).sum())
print(f"of {len(val)} photos that training did not see, {right} are right")
