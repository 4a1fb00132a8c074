"""Modules of PyTorch, one at a time, through both of its exporters: the same numbers, and the same gradients.

Each stands behind a convolution or a linear layer, whose weights get the gradient that the module lets through."""

from __future__ import annotations

import contextlib
import io
import warnings

import numpy as np
import pytest

import minidnn
from minidnn.nets.net import Net
from minidnn.onnx.ends import Given
from minidnn.onnx.reading import walk
from minidnn.optimizers import SGD
from minidnn.programs.spec import TrainSpec
from minidnn.schema import Document

pytest.importorskip("onnx", reason="the package onnx is not installed (the extra `onnx`)")

pytestmark = pytest.mark.peer("torch", "onnxscript")

IMAGE, ROWS = (2, 3, 9, 11), (3, 5, 12)
IMAGES = [
    "gelu",
    "gelu by tanh",
    "quick gelu",
    "erf",
    "hard sigmoid",
    "hard swish",
    "relu6",
    "silu",
    "mish",
    "softplus",
    "elu",
    "selu",
    "celu",
    "softsign",
    "leaky relu",
    "prelu",
    "clamp",
    "group norm",
    "group norm, one group",
    "group norm without weights",
    "instance norm",
    "instance norm with weights",
    "layer norm",
    "zero padding",
    "cropping",
    "constant padding",
    "reflection",
    "replication",
    "circular",
    "padding before a convolution",
    "same convolution",
    "transposed",
    "transposed, without padding",
    "transposed, dilated",
    "max",
    "max, ceil",
    "max, padded, ceil",
    "average",
    "average, ceil",
    "average, padded, ceil",
    "average without padding",
    "average without padding, ceil",
    "adaptive average",
    "adaptive maximum",
    "nearest",
    "bilinear",
    "bilinear, corners",
    "bilinear, smaller",
    "nearest, smaller",
    "pixel shuffle",
    "pixel unshuffle",
    "channel shuffle",
    "dropout",
    "chunks",
    "glu",
    "squeeze and excitation",
    "layer scale",
    "every second",
    "maximum of places",
    "norm",
    "variance",
    "windows of places",
    "roll",
]
OF_ROWS = [
    "gelu",
    "layer norm",
    "layer norm without weights",
    "rms norm",
    "rms norm by hand",
    "softmax",
    "log softmax",
    "attention",
    "attention with weights",
    "causal attention",
    "masked attention",
    "where",
    "triangle",
    "einsum",
    "repeated heads",
    "expanded heads",
    "first token",
    "last tokens",
    "some places",
    "pooled tokens",
    "largest",
    "outer product",
    "table of places",
    "convolution of rows",
    "pooling of rows",
    "a matrix before",
    "swiglu",
    "encoder layer",
    "lstm",
    "lstm with a state",
    "two lstms",
    "gru",
    "last of a gru",
]
ALL = [("images", name) for name in IMAGES] + [("rows", name) for name in OF_ROWS]
WITHOUT = {("rms norm", False)}  # PyTorch's older exporter refuses these
BECOMES = {
    "gelu": ["GELU"], "gelu by tanh": ["GELU"], "quick gelu": ["Swish"], "silu": ["Swish"], "mish": ["Mish"],
    "hard swish": ["HardSwish"], "softplus": ["BNLL"], "group norm without weights": ["GroupNorm"],
    "group norm": ["GroupNorm"],
    "pixel shuffle": ["Reshape", "Permute", "Reshape"], "two lstms": ["LSTM", "LSTM"], "last of a gru": ["GRU"],
}  # fmt: skip


def of(f, *modules):
    """A module that computes f of its input."""
    from torch import nn

    class Of(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.ModuleList(modules)

        def forward(self, x):
            return f(x, *self.inner)

    return Of()


def images():
    """name -> a module that takes images of 8 channels and 9 x 11 pixels"""
    import torch
    from torch import nn
    from torch.nn import functional as f

    grown = {"size": (5, 7)}
    return {
        "gelu": nn.GELU(),
        "gelu by tanh": nn.GELU(approximate="tanh"),
        "quick gelu": of(lambda x: x * torch.sigmoid(1.702 * x)),
        "erf": of(torch.erf),
        "hard sigmoid": nn.Hardsigmoid(),
        "hard swish": nn.Hardswish(),
        "relu6": nn.ReLU6(),
        "silu": nn.SiLU(),
        "mish": nn.Mish(),
        "softplus": nn.Softplus(),
        "elu": nn.ELU(0.7),
        "selu": nn.SELU(),
        "celu": nn.CELU(0.6),
        "softsign": nn.Softsign(),
        "leaky relu": nn.LeakyReLU(0.2),
        "prelu": nn.PReLU(8),
        "clamp": of(lambda x: x.clamp(min=-0.3)),
        "group norm": nn.GroupNorm(4, 8),
        "group norm, one group": nn.GroupNorm(1, 8, eps=0.01),
        "group norm without weights": nn.GroupNorm(2, 8, affine=False),
        "instance norm": nn.InstanceNorm2d(8),
        "instance norm with weights": nn.InstanceNorm2d(8, affine=True, eps=0.02),
        "layer norm": nn.LayerNorm((8, 9, 11)),
        "zero padding": nn.ZeroPad2d((1, 2, 0, 3)),
        "cropping": nn.ZeroPad2d((-1, 2, -2, 0)),
        "constant padding": nn.ConstantPad2d((1, 0, 2, 1), 0.5),
        "reflection": nn.ReflectionPad2d((2, 1, 3, 0)),
        "replication": nn.ReplicationPad2d((2, 1, 3, 0)),
        "circular": nn.CircularPad2d((2, 1, 3, 0)),
        "padding before a convolution": nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(8, 4, 3, 2)),
        "same convolution": nn.Conv2d(8, 4, 4, padding="same"),
        "transposed": nn.ConvTranspose2d(8, 4, 3, 2, 1, output_padding=1),
        "transposed, without padding": nn.ConvTranspose2d(8, 4, 2, 3, output_padding=1),
        "transposed, dilated": nn.ConvTranspose2d(8, 4, 3, 2, 1, dilation=2, groups=2),
        "max": nn.MaxPool2d(3, 2, 1),
        "max, ceil": nn.MaxPool2d(2, 2, ceil_mode=True),
        "max, padded, ceil": nn.MaxPool2d(3, 2, 1, ceil_mode=True),
        "average": nn.AvgPool2d(3, 2, 1),
        "average, ceil": nn.AvgPool2d(2, 2, ceil_mode=True),
        "average, padded, ceil": nn.AvgPool2d(3, 2, 1, ceil_mode=True),
        "average without padding": nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        "average without padding, ceil": nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False),
        "adaptive average": nn.AdaptiveAvgPool2d(1),
        "adaptive maximum": nn.AdaptiveMaxPool2d(1),
        "nearest": nn.Upsample(scale_factor=2),
        "bilinear": nn.Upsample(scale_factor=2, mode="bilinear"),
        "bilinear, corners": nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
        "bilinear, smaller": of(lambda x: f.interpolate(x, **grown, mode="bilinear")),
        "nearest, smaller": of(lambda x: f.interpolate(x, **grown)),
        "pixel shuffle": nn.PixelShuffle(2),
        "pixel unshuffle": of(lambda x: nn.functional.pixel_unshuffle(x[:, :, :8, :10], 2)),
        "channel shuffle": of(lambda x: x.view(2, 2, 4, 9, 11).transpose(1, 2).reshape(2, 8, 9, 11)),
        "dropout": nn.Dropout2d(),
        "chunks": of(lambda x: torch.cat([c * (i + 1) for i, c in enumerate(x.chunk(3, 1))], 1)),
        "glu": nn.GLU(1),
        "squeeze and excitation": of(
            lambda x, a, b: x * torch.sigmoid(b(torch.relu(a(x.mean((2, 3), keepdim=True))))),
            nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1),
        ),
        "layer scale": of(lambda x, n: n(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), nn.LayerNorm(8)),
        "every second": of(lambda x: x[..., ::2, 1::3]),
        "maximum of places": of(lambda x: x.amax((2, 3))),
        "norm": of(lambda x: f.normalize(x, dim=1)),
        "variance": of(lambda x: x.var((2, 3), unbiased=False)),
        "windows of places": of(
            lambda x: x[:, :, :8, :8].reshape(2, 8, 2, 4, 2, 4).permute(0, 2, 4, 3, 5, 1).reshape(8, 16, 8)
        ),
        "roll": of(lambda x: torch.roll(x, (1, 2), (2, 3))),
    }  # fmt: skip


def rows():
    """name -> a module that takes rows of shape (3, 5, 8)"""
    import torch
    from torch import nn
    from torch.nn import functional as f

    mask, state = torch.ones(5, 5).tril().bool(), torch.linspace(-1, 1, 24).reshape(2, 1, 3, 4)
    return {
        "gelu": nn.GELU(),
        "layer norm": nn.LayerNorm(8),
        "layer norm without weights": nn.LayerNorm(8, elementwise_affine=False),
        "rms norm": nn.RMSNorm(8),
        "rms norm by hand": of(lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)),
        "softmax": nn.Softmax(-1),
        "log softmax": nn.LogSoftmax(1),
        "attention": of(
            lambda x, a: a(x, x, x, need_weights=False)[0], nn.MultiheadAttention(8, 2, batch_first=True)
        ),
        "attention with weights": of(lambda x, a: a(x, x, x)[0], nn.MultiheadAttention(8, 2, batch_first=True)),
        "causal attention": of(
            lambda x: f.scaled_dot_product_attention(*[x.view(3, 5, 2, 4).transpose(1, 2)] * 3, is_causal=True)
        ),
        "masked attention": of(
            lambda x: torch.softmax((x @ x.transpose(1, 2)).masked_fill(~mask, float("-inf")), -1) @ x
        ),
        "where": of(lambda x: torch.where(mask[..., None], x[:, :, None], torch.zeros(()))),
        "triangle": of(lambda x: torch.tril(x @ x.transpose(1, 2))),
        "einsum": of(lambda x: torch.einsum("bqd,bkd->bqk", x, x)),
        "repeated heads": of(lambda x: x.view(3, 5, 2, 4).transpose(1, 2).repeat_interleave(2, 1)),
        "expanded heads": of(
            lambda x: x.view(3, 5, 2, 1, 4).expand(3, 5, 2, 3, 4).reshape(3, 5, 6, 4)
        ),
        "first token": of(lambda x: x[:, 0]),
        "last tokens": of(lambda x: x[:, -2:]),
        "some places": of(lambda x: x[:, [3, 0, 1]]),
        "pooled tokens": of(lambda x: x.mean(1)),
        "largest": of(lambda x: x.max(1).values),
        "outer product": of(lambda x: x[:, :, None] * x[:, None]),
        "table of places": of(lambda x, e: x + e(torch.arange(5)), nn.Embedding(5, 8)),
        "convolution of rows": nn.Conv1d(5, 4, 3, padding=1),
        "pooling of rows": nn.Sequential(nn.MaxPool1d(2), nn.AvgPool1d(2)),
        "a matrix before": of(lambda x: torch.linspace(0, 1, 20).view(4, 5) @ x),
        "swiglu": of(lambda x, a, b: f.silu(a(x)) * b(x), nn.Linear(8, 6), nn.Linear(8, 6)),
        "encoder layer": nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, activation="gelu"),
        "lstm": of(lambda x, m: m(x)[0], nn.LSTM(8, 4)),
        "lstm with a state": of(
            lambda x, m: m(x, (state[0], state[1]))[1][1] * 2, nn.LSTM(8, 4, batch_first=True)
        ),
        "two lstms": of(lambda x, m: m(x)[0], nn.LSTM(8, 4, num_layers=2, batch_first=True)),
        "gru": of(lambda x, m: m(x)[0], nn.GRU(8, 4, batch_first=True)),
        "last of a gru": of(lambda x, m: m(x)[1] * 2, nn.GRU(8, 4, batch_first=True)),
    }  # fmt: skip


def exported(module, x, dynamo):
    """The ONNX model of a module."""
    import onnx
    import torch

    file = io.BytesIO()
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            return torch.onnx.export(module, (x,), dynamo=True, verbose=False).model_proto
        torch.onnx.export(module, (x,), file, dynamo=False, opset_version=17)
    return onnx.load_model_from_string(file.getvalue())


def ours(model, x, target):
    """(the output, weights after one step of gradient descent, weights before, types of layers) for the loss
    |y - target|^2 / 2N."""
    reader, _ = walk(model, "model", Given())
    (out,) = (reader.blobs[o.name] for o in model.graph.output)
    layers = [*reader.finished(), {"name": "target", "type": "Input", "top": "target",
                               "input_param": {"shape": {"dim": list(target.shape)}}}]  # fmt: skip
    layers.append({"name": "loss", "type": "EuclideanLoss", "bottom": [out, "target"], "top": "loss"})
    net = Net.from_document(Document({"name": "m", "layer": layers}, what="m"))
    given = {reader.blobs[i.name]: x for i in model.graph.input} | {"target": target, "rate": np.float32([1])}
    with minidnn.Session(net, TrainSpec(SGD()), phases=("TRAIN",), device="cpu", keep=[out]) as session:
        for name, value in reader.weights.items():
            layer, blob = name.rsplit("/", 1)
            session.params[layer][blob] = value
        for tensor in session.programs["TRAIN"].inputs:
            value = given.get(tensor.name, np.zeros(1))
            session.machine.write(tensor, np.asarray(value, tensor.dtype).reshape(tensor.shape), "TRAIN")
        session.step("TRAIN")
        got = {b.name: session.machine.read(b.tensor, "TRAIN") for b in session.outputs("TRAIN")}[out]
        after = {f"{name}/{blob}": blobs[blob] for name, blobs in session.params.items() for blob in blobs}
    types = [layer["type"] for layer in reader.layers if layer["type"] != "Input"]
    return got, after, reader.weights, types


def compare(module, kind, dynamo):
    """Assert that a module's output and the gradient that it lets through are PyTorch's; the types of the layers that
    compute something."""
    import torch
    from torch import nn

    torch.manual_seed(1)
    first = nn.Conv2d(3, 8, 3, padding=1) if kind == "images" else nn.Linear(12, 8)
    x = torch.randn(IMAGE if kind == "images" else ROWS)
    whole = nn.Sequential(first, module).eval()
    y = whole(x)
    target = torch.randn(y.shape)
    ((y - target) ** 2).sum().div(2 * len(y)).backward()
    got, after, before, types = ours(exported(whole, x, dynamo), x.numpy(), target.numpy())
    np.testing.assert_allclose(got, y.detach().numpy(), rtol=2e-4, atol=2e-5)
    key = next(iter(before))  # the first layer's
    gradient, theirs = (before[key] - after[key]).reshape(first.weight.shape), first.weight.grad.numpy()
    np.testing.assert_allclose(gradient, theirs, rtol=1e-3, atol=1e-4 * np.abs(theirs).max())
    return types


CASES = [(kind, name, dynamo) for kind, name in ALL for dynamo in (True, False) if (name, dynamo) not in WITHOUT]


@pytest.fixture(scope="module")
def modules():
    import torch

    torch.manual_seed(0)
    return {"images": images(), "rows": rows()}


@pytest.mark.parametrize(("kind", "name", "dynamo"), CASES)
def test_a_module_has_pytorch_s_numbers_and_gradients(modules, kind, name, dynamo):
    types = compare(modules[kind][name], kind, dynamo)
    if name in BECOMES:
        assert [t for t in types if t in BECOMES[name]] == BECOMES[name]


def test_every_module_is_a_case(modules):
    assert [(kind, name) for kind in modules for name in modules[kind]] == ALL
