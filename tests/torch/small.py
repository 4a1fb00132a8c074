"""Small modules for the tests of steps."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int, drop: float) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2, self.drop = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), drop

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = (y.view(n, t, 4, d // 4).transpose(1, 2) for y in self.qkv(self.ln1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, d)
        x = x + F.dropout(self.proj(y), self.drop, self.training)
        return x + F.dropout(self.fc2(F.gelu(self.fc1(self.ln2(x)))), self.drop, self.training)


class GPT(nn.Module):
    def __init__(self, depth: int = 1, width: int = 32, vocabulary: int = 64, drop: float = 0.15) -> None:
        super().__init__()
        self.embed, self.drop = nn.Embedding(vocabulary, width), nn.Dropout(drop)
        self.blocks = nn.ModuleList(Block(width, drop) for _ in range(depth))
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, x):
        x = self.drop(self.embed(x))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


def gpt(depth: int = 1):
    torch.manual_seed(0)
    x = torch.randint(0, 64, (4, 32))
    return GPT(depth).train(), (x, x.roll(-1, 1)), lambda o, t: F.cross_entropy(o.flatten(0, 1), t.flatten())


def cnn(depth: int = 3):
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for i in range(depth):
        layers += [nn.Conv2d(8 if i else 3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout(0.1)]
    module = nn.Sequential(*layers, nn.Flatten(), nn.Linear(8 * 10 * 10, 10)).train()
    return module, (torch.randn(4, 3, 10, 10), torch.randint(0, 10, (4,))), F.cross_entropy


NETS = {"gpt": gpt, "deep_gpt": lambda: gpt(3), "cnn": cnn, "deep_cnn": lambda: cnn(10)}
