"""Nets that read words."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.torch.nets.case import Case, of_words, tokens


class Attention(nn.Module):
    """
    groups:    heads of keys and values, fewer than those of queries
    dropout:   of the attention's weights; `fused` computes them in one kernel
    rotary:    whether queries and keys are turned by their places
    """

    def __init__(self, width, heads, groups=0, causal=False, dropout=0.0, fused=True, rotary=False, bias=True):
        super().__init__()
        self.heads, self.groups, self.each, self.causal = heads, groups or heads, width // heads, causal
        self.fused, self.rotary, self.dropout = fused, rotary, nn.Dropout(dropout)
        self.q = nn.Linear(width, width, bias=bias)
        self.kv = nn.Linear(width, 2 * self.groups * self.each, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x):
        n, t, width = x.shape
        q = self.q(x).view(n, t, self.heads, self.each).transpose(1, 2)
        k, v = (y.view(n, t, self.groups, self.each).transpose(1, 2) for y in self.kv(x).chunk(2, -1))
        if self.rotary:
            q, k = turned(q), turned(k)
        if self.groups != self.heads:
            k, v = (y.repeat_interleave(self.heads // self.groups, 1) for y in (k, v))
        if self.fused:
            drop = self.dropout.p if self.training else 0.0
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, dropout_p=drop)
        else:
            scores = q @ k.transpose(-2, -1) * self.each**-0.5
            if self.causal:
                scores = scores.masked_fill(torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1), -torch.inf)
            y = self.dropout(scores.softmax(-1)) @ v
        return self.out(y.transpose(1, 2).reshape(n, t, width))


def turned(x):
    """Rotary embeddings of places."""
    t, half = x.shape[2], x.shape[3] // 2
    angle = torch.arange(t, device=x.device)[:, None] * 10_000.0 ** (-torch.arange(half, device=x.device) / half)
    cos, sin = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class Block(nn.Module):
    """Norms before the two parts, or after them."""

    def __init__(self, width, heads, dropout=0.0, after=False, **attention):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout=dropout, **attention)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout, self.after = nn.Dropout(dropout), after

    def forward(self, x):
        if self.after:
            x = self.norm1(x + self.dropout(self.attention(x)))
            return self.norm2(x + self.dropout(self.wide(x)))
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.wide(self.norm2(x)))


class GPT2(nn.Module):
    """The embedding is the output's weight, too."""

    def __init__(self, words, length, width, heads, blocks, dropout=0.1, fused=False):
        super().__init__()
        self.words, self.places, self.dropout = (
            nn.Embedding(words, width),
            nn.Embedding(length, width),
            nn.Dropout(dropout),
        )
        self.blocks = nn.ModuleList(Block(width, heads, dropout, causal=True, fused=fused) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, x):
        y = self.dropout(self.words(x) + self.places(torch.arange(x.shape[1], device=x.device)))
        for block in self.blocks:
            y = block(y)
        return self.head(self.norm(y))


def gpt2(batch: int = 4, words=1024, length=64, width=192, heads=12, blocks=12, dropout=0.1, fused=False) -> Case:
    """GPT-2 small with a quarter of its width, unless asked otherwise."""
    x = tokens(batch, length + 1, words)
    return Case(GPT2(words, length, width, heads, blocks, dropout, fused), (x[:, :-1], x[:, 1:]), of_words)


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, groups, hidden):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads, groups, causal=True, rotary=True, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def llama(batch: int = 4, words=512, length=64, width=128, blocks=4) -> Case:
    body = [LlamaBlock(width, 8, 2, 3 * width) for _ in range(blocks)]
    head = nn.RMSNorm(width), nn.Linear(width, words, bias=False)
    x = tokens(batch, length + 1, words)
    return Case(nn.Sequential(nn.Embedding(words, width), *body, *head), (x[:, :-1], x[:, 1:]), of_words)


class BERT(nn.Module):
    """Two sentences, a mask of their ends, and a pooled answer."""

    def __init__(self, words, length, width, heads, blocks, dropout=0.1):
        super().__init__()
        self.words, self.places, self.kinds = (nn.Embedding(n, width) for n in (words, length, 2))
        self.norm, self.dropout = nn.LayerNorm(width, eps=1e-12), nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout, after=True, fused=False) for _ in range(blocks)))
        self.pooler, self.answer = nn.Linear(width, width), nn.Linear(width, 3)

    def forward(self, x, kinds):
        y = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device)) + self.kinds(kinds)
        y = self.blocks(self.dropout(self.norm(y)))
        return self.answer(self.dropout(torch.tanh(self.pooler(y[:, 0]))))


def bert(batch: int = 4, words=512, length=64, width=128, blocks=4) -> Case:
    kinds = (torch.arange(length) >= length // 2).long().repeat(batch, 1)
    given = tokens(batch, length, words), kinds, torch.randint(0, 3, (batch,))
    return Case(BERT(words, length, width, 4, blocks), given, F.cross_entropy)


class Encoder(nn.Module):
    """PyTorch's own encoder."""

    def __init__(self, words, length, width, heads, blocks):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.randn(length, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.1, F.gelu, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, blocks), nn.Linear(width, words)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        return self.head(self.encoder(self.words(x) + self.places, mask=mask, is_causal=True))


def encoder(batch: int = 4, words=512, length=64, width=128, blocks=4) -> Case:
    x = tokens(batch, length + 1, words)
    return Case(Encoder(words, length, width, 4, blocks), (x[:, :-1], x[:, 1:]), of_words)


class LSTM(nn.Module):
    def __init__(self, words, width, layers):
        super().__init__()
        self.words, self.dropout = nn.Embedding(words, width), nn.Dropout(0.2)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True, dropout=0.2)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, x):
        return self.head(self.norm(self.dropout(self.lstm(self.dropout(self.words(x)))[0])))


def lstm(batch: int = 8, words=512, length=64, width=128, layers=4) -> Case:
    x = tokens(batch, length + 1, words)
    return Case(LSTM(words, width, layers), (x[:, :-1], x[:, 1:]), of_words)
