"""Small nets of today's kinds in PyTorch, each with what is hard for a reader of ONNX: `NETS` has a function for each.

A function gives (module, samples, classes); classes is None where the output is an image.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

BATCH, WIDTH, TOKENS, WORDS = 3, 16, 6, 20


class Attention(nn.Module):
    """Of several heads; k and v may have fewer of them, and q and k may be rotated by their places."""

    def __init__(self, width=WIDTH, heads=4, groups=0, causal=False, rotary=False, bias=True):
        super().__init__()
        self.heads, self.groups, self.causal, self.rotary = heads, groups or heads, causal, rotary
        self.each = width // heads
        self.q = nn.Linear(width, width, bias=bias)
        self.kv = nn.Linear(width, 2 * self.each * self.groups, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x):
        n, t, width = x.shape
        q = self.q(x).reshape(n, t, self.heads, self.each).transpose(1, 2)
        k, v = (y.reshape(n, t, self.groups, self.each).transpose(1, 2) for y in self.kv(x).chunk(2, -1))
        if self.rotary:
            q, k = self.rotated(q), self.rotated(k)
        if self.groups != self.heads:
            k, v = (y.repeat_interleave(self.heads // self.groups, 1) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(n, t, width))

    def rotated(self, x):
        t, half = x.shape[2], x.shape[3] // 2
        angle = torch.arange(t)[:, None] * 100.0 ** (-torch.arange(half) / half)
        cos, sin = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class Block(nn.Module):
    def __init__(self, dropout=0.0, causal=False, after=False):
        super().__init__()
        self.norm1, self.norm2, self.attention = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), Attention(causal=causal)
        self.wide = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
        self.dropout, self.after = nn.Dropout(dropout), after

    def forward(self, x):
        if self.after:
            x = self.norm1(x + self.dropout(self.attention(x)))
            return self.norm2(x + self.dropout(self.wide(x)))
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.wide(self.norm2(x)))


class ViT(nn.Module):
    def __init__(self, token: bool):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH)) if token else None
        self.places = nn.Parameter(torch.randn(1, 4 + token, WIDTH) * 0.02)
        self.blocks, self.norm = nn.Sequential(Block(), Block()), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        if self.token is not None:
            x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        x = self.norm(self.blocks(x + self.places))
        return self.head(x.mean(1) if self.token is None else x[:, 0])


class GPT(nn.Module):
    def __init__(self, dropout=0.1):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(Block(dropout, True), Block(dropout, True))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(self.dropout(x))))


class BERT(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places, self.segments = (nn.Embedding(n, WIDTH) for n in (WORDS, TOKENS + 2, 2))
        self.norm, self.blocks = nn.LayerNorm(WIDTH), nn.Sequential(Block(after=True), Block(after=True))
        self.pooled, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 5)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1])) + self.segments(torch.zeros_like(tokens))
        return self.head(torch.tanh(self.pooled(self.blocks(self.norm(x))[:, 0])))


class RMSNorm(nn.Module):
    """As written before PyTorch had one, whose export takes the newer exporter."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class LlamaBlock(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.norm1, self.norm2 = norm(), norm()
        self.attention = Attention(groups=2, causal=True, rotary=True, bias=False)
        self.gate, self.up, self.down = (
            nn.Linear(a, b, bias=False) for a, b in ((WIDTH, 24), (WIDTH, 24), (24, WIDTH))
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, norm=RMSNorm):
        super().__init__()
        self.words, self.norm = nn.Embedding(WORDS, WIDTH), norm()
        self.blocks = nn.Sequential(LlamaBlock(norm), LlamaBlock(norm))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.words(tokens))))


class ChannelsNorm(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.deep, self.norm = nn.Conv2d(width, width, 3, padding=1, groups=width), nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.gamma = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        h = self.norm(self.deep(x).permute(0, 2, 3, 1))
        return x + (self.gamma * self.narrow(F.gelu(self.wide(h)))).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 2, 2), ChannelsNorm(8))
        self.first = ConvNeXtBlock(8)
        self.down = nn.Sequential(ChannelsNorm(8), nn.Conv2d(8, WIDTH, 2, 2))
        self.second, self.norm, self.head = ConvNeXtBlock(WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 5)

    def forward(self, x):
        return self.head(self.norm(self.second(self.down(self.first(self.stem(x)))).mean((2, 3))))


class MixerBlock(nn.Module):
    def __init__(self, tokens):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.along = nn.Sequential(nn.Linear(tokens, 12), nn.GELU(), nn.Linear(12, tokens))
        self.across = nn.Sequential(nn.Linear(WIDTH, 24), nn.GELU(), nn.Linear(24, WIDTH))

    def forward(self, x):
        x = x + self.along(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.across(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.blocks = nn.Conv2d(3, WIDTH, 2, 2), nn.Sequential(MixerBlock(16), MixerBlock(16))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 5)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.patches(x).flatten(2).transpose(1, 2))).mean(1))


class UNetBlock(nn.Module):
    def __init__(self, before, behind):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, before), nn.Conv2d(before, behind, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(4, behind), nn.Conv2d(behind, behind, 3, padding=1)
        self.time, self.skip = nn.Linear(8, behind), nn.Conv2d(before, behind, 1)

    def forward(self, x, time):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.time = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(4, 8)
        self.down1, self.shrink, self.down2 = UNetBlock(8, 8), nn.Conv2d(8, 8, 3, 2, 1), UNetBlock(8, WIDTH)
        self.norm1, self.attention = nn.GroupNorm(4, WIDTH), Attention()
        self.up1, self.up2 = UNetBlock(WIDTH, 8), UNetBlock(WIDTH, 8)
        self.norm2, self.out = nn.GroupNorm(4, 8), nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x, time):
        time = self.time(time)
        a = self.down1(self.stem(x), time)
        b = self.down2(self.shrink(a), time)
        b = b + self.attention(self.norm1(b).flatten(2).transpose(1, 2)).transpose(1, 2).reshape(b.shape)
        up = F.interpolate(self.up1(b, time), scale_factor=2.0, mode="nearest")
        return self.out(F.silu(self.norm2(self.up2(torch.cat([up, a], 1), time))))


class ConvBN(nn.Sequential):
    def __init__(self, before, behind, kernel=3, stride=1, groups=1, function=nn.ReLU):
        conv = nn.Conv2d(before, behind, kernel, stride, kernel // 2, groups=groups, bias=False)
        super().__init__(conv, nn.BatchNorm2d(behind), function())


class Squeeze(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, width, function=nn.ReLU):
        super().__init__()
        self.small, self.large, self.function = nn.Conv2d(width, 4, 1), nn.Conv2d(4, width, 1), function()

    def forward(self, x):
        s = F.adaptive_avg_pool2d(x, 1)
        return x * torch.sigmoid(self.large(self.function(self.small(s))))


class Residual(nn.Module):
    def __init__(self, before, behind, stride=1, squeeze=False):
        super().__init__()
        self.first = ConvBN(before, behind, 3, stride)
        self.second = ConvBN(behind, behind, 3, function=nn.Identity)
        self.squeeze = Squeeze(behind) if squeeze else nn.Identity()
        alike = before == behind and stride == 1
        self.skip = nn.Identity() if alike else ConvBN(before, behind, 1, stride, function=nn.Identity)

    def forward(self, x):
        return F.relu(self.squeeze(self.second(self.first(x))) + self.skip(x))


class Inverted(nn.Module):
    """MobileNet's block; with squeeze and SiLU, EfficientNet's."""

    def __init__(self, before, behind, stride, function, squeeze):
        super().__init__()
        wide = 2 * before
        self.layers = nn.Sequential(
            ConvBN(before, wide, 1, function=function),
            ConvBN(wide, wide, 3, stride, wide, function),
            Squeeze(wide, nn.SiLU) if squeeze else nn.Identity(),
            ConvBN(wide, behind, 1, function=nn.Identity),
        )
        self.alike = before == behind and stride == 1

    def forward(self, x):
        return x + self.layers(x) if self.alike else self.layers(x)


class DenseLayer(nn.Module):
    def __init__(self, before):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(before), nn.Conv2d(before, 4, 3, padding=1, bias=False)

    def forward(self, x):
        return torch.cat([x, self.conv(F.relu(self.norm(x)))], 1)


class Pooled(nn.Module):
    """Classifies images by their mean."""

    def __init__(self, features, width, dropout=0.0):
        super().__init__()
        self.features, self.dropout, self.head = features, nn.Dropout(dropout), nn.Linear(width, 5)

    def forward(self, x):
        return self.head(self.dropout(self.features(x).mean((2, 3))))


class Encoder(nn.Module):
    def __init__(self, dropout=0.1):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 24, dropout, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(WIDTH, 5)

    def forward(self, x):
        return self.head(self.encoder(x).mean(1))


class Recurrent(nn.Module):
    """Two layers of an LSTM, then a GRU, and a head for each token."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.lstm = nn.LSTM(WIDTH, 12, num_layers=2, batch_first=True)
        self.gru, self.head = nn.GRU(12, WIDTH, batch_first=True), nn.Linear(WIDTH, WORDS)

    def forward(self, x):
        return self.head(self.gru(self.lstm(self.words(x))[0])[0])


def resnet(squeeze=False):
    blocks = Residual(8, 8, 1, squeeze), Residual(8, WIDTH, 2, squeeze)
    return Pooled(nn.Sequential(ConvBN(3, 8), nn.MaxPool2d(3, 2, 1), *blocks), WIDTH)


def densenet():
    transition = nn.Sequential(nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 1, bias=False), nn.AvgPool2d(2))
    dense = nn.Conv2d(3, 8, 3, padding=1, bias=False), DenseLayer(8), DenseLayer(12), transition, DenseLayer(8)
    return Pooled(nn.Sequential(*dense, nn.BatchNorm2d(12), nn.ReLU()), 12)


def inverted(function, squeeze, dropout):
    blocks = Inverted(8, 8, 1, function, squeeze), Inverted(8, WIDTH, 2, function, squeeze)
    return Pooled(nn.Sequential(ConvBN(3, 8, 3, 2, function=function), *blocks), WIDTH, dropout)


def image():
    return (torch.randn(BATCH, 3, 8, 8),)


def tokens():
    return (torch.randint(0, WORDS, (BATCH, TOKENS)),)


NETS = {
    "vit": lambda: (ViT(False), image(), 5),
    "vit_token": lambda: (ViT(True), image(), 5),
    "gpt": lambda: (GPT(), tokens(), WORDS),
    "bert": lambda: (BERT(), tokens(), 5),
    "llama": lambda: (Llama(), tokens(), WORDS),
    "llama_rms": lambda: (Llama(lambda: nn.RMSNorm(WIDTH)), tokens(), WORDS),
    "convnext": lambda: (ConvNeXt(), image(), 5),
    "mixer": lambda: (Mixer(), image(), 5),
    "unet": lambda: (UNet(), (*image(), torch.randn(BATCH, 4)), None),
    "resnet": lambda: (resnet(), image(), 5),
    "densenet": lambda: (densenet(), image(), 5),
    "mobilenet": lambda: (inverted(nn.ReLU6, False, 0.2), image(), 5),
    "efficientnet": lambda: (inverted(nn.SiLU, True, 0.2), image(), 5),
    "encoder": lambda: (Encoder(), (torch.randn(BATCH, TOKENS, WIDTH),), 5),
    "recurrent": lambda: (Recurrent(), tokens(), WORDS),
    "se_resnet": lambda: (resnet(True), image(), 5),
}
