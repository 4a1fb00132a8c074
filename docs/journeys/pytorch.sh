#!/bin/bash
# A PyTorch user whose GPU has 6 GB: does their model fit? Train it within a budget, and return to PyTorch.
set -euo pipefail
mkdir -p out/pytorch

cat > out/pytorch/model.py <<'END'
from torch import nn


class Block(nn.Module):
    def __init__(self, maps):
        super().__init__()
        self.first, self.second = nn.Conv2d(maps, maps, 3, padding=1), nn.Conv2d(maps, maps, 3, padding=1)

    def forward(self, x):
        return nn.functional.relu(x + self.second(nn.functional.relu(self.first(x))))


def model(channels, side, classes, blocks):
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1), nn.ReLU(), *(Block(32) for _ in range(blocks)),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * (side // 2) ** 2, classes),
    )
END

echo "== 1. Export the model twice: in full size, and small, for the digits."
cat > out/pytorch/export.py <<'END'
import logging

import torch
from model import model

logging.disable()
torch.manual_seed(1)
for name, (channels, side, blocks) in {"large": (3, 224, 12), "small": (1, 8, 2)}.items():
    net = model(channels, side, 10, blocks).eval()
    torch.onnx.export(
        net, (torch.zeros(2, channels, side, side),), f"out/pytorch/{name}.onnx", dynamo=True, external_data=False,
        dynamic_shapes=({0: torch.export.Dim("batch")},), verbose=False,
    )
    torch.save(net.state_dict(), f"out/pytorch/{name}.pt")
END
python out/pytorch/export.py > out/pytorch/export.log 2>&1

echo "== 2. Does the large one fit in 6 GB of a GPU? Simulated."
cat > out/pytorch/train_net.py <<'END'
from pathlib import Path

from minidnn.onnx import read

net, _ = read("out/pytorch/large.onnx", batch=64, loss=True)
Path("out/pytorch/large.yaml").write_text(net.to_yaml())
END
python out/pytorch/train_net.py
minidnn plan out/pytorch/large.yaml --gpu titan_x --budget 6GB --policies baseline,liveness,best | sed '/^baseline/,$d; /^refused/,$d'

echo "== 3. The small one: compare scores with PyTorch, train within a budget, and return to PyTorch."
cat > out/pytorch/train.py <<'END'
import numpy as np
import torch
from model import model
from sklearn.datasets import load_digits

import minidnn
from minidnn.onnx import read

digits = load_digits()
x, y = (digits.images[:, None] / 16).astype(np.float32), digits.target.astype(np.int32)

theirs = model(1, 8, 10, 2).eval()
theirs.load_state_dict(torch.load("out/pytorch/small.pt"))
net, weights = read("out/pytorch/small.onnx", batch=64, loss=True)


def scores():
    with torch.no_grad():
        return theirs(torch.from_numpy(x[:64])).numpy()


fields = dict(data=(x[64:], y[64:]), weights=weights, base_lr=0.01, momentum=0.9, max_iter=100, random_seed=1)
with minidnn.Solver(net, policy="vdnn_all:m", budget="3.5MiB", **fields) as solver:
    (ours,) = solver.forward(x[:64]).values()
    assert np.abs(ours - scores()).max() < 1e-4
    print("the same scores as PyTorch before training")
    first, last = solver.step(1).loss, solver.step(99).loss
    assert last < first / 4
    (ours,) = solver.forward(x[:64]).values()
    trained = {f"{layer}/{blob}": value for layer, blobs in solver.params.items() for blob, value in blobs.items()}


def value(name, like):
    """A parameter by PyTorch's name, in PyTorch's shape."""
    layer, kind = name.rsplit(".", 1)
    return torch.from_numpy(trained[f"{layer}/{kind[0]}"].reshape(like.shape))


theirs.load_state_dict({name: value(name, like) for name, like in theirs.state_dict().items()})
assert np.abs(ours - scores()).max() < 1e-3
print("the same scores as PyTorch with the trained weights")
print(f"of 64 digits that training did not see, {(scores().argmax(1) == y[:64]).sum()} are right")
END
python out/pytorch/train.py
