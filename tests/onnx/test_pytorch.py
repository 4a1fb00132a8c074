"""From PyTorch by torch.export and ONNX to minidnn: the same weights, the same logits, and a net that trains."""

from __future__ import annotations

import contextlib
import copy
import io

import numpy as np
import pytest

import minidnn
from minidnn.onnx import InvalidModel, read, write
from minidnn.optimizers import SGD
from minidnn.programs.spec import TrainSpec

pytest.importorskip("onnx", reason="the package onnx is not installed (the extra `onnx`)")

pytestmark = pytest.mark.peer("torch", "onnxscript")

BATCH = 4


def small():
    """A small CNN: convolutions, one of them depthwise; pooling; a shortcut; a classifier."""
    import torch
    from torch import nn

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU())
            deep = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.ReLU(), nn.Conv2d(8, 8, 1)
            self.deep = nn.Sequential(*deep)
            self.pool = nn.MaxPool2d(3, stride=2, padding=1)
            self.head = nn.Linear(8, 10)

        def forward(self, x):
            x = self.pool(self.stem(x))
            x = torch.relu(x + self.deep(x))
            return self.head(x.mean((2, 3)))

    return Small()


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """(the module, its samples, its ONNX file)"""
    import torch

    torch.manual_seed(0)
    module, x = small().eval(), torch.randn(BATCH, 3, 19, 19)
    path = tmp_path_factory.mktemp("onnx") / "small.onnx"
    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(module, (x,), str(path), dynamo=True, external_data=False)
    return module, x, path


@pytest.fixture(scope="module")
def kept(exported, tmp_path_factory):
    """The same module's ONNX file with its BatchNorm."""
    import torch

    module, x, _ = exported
    path = tmp_path_factory.mktemp("onnx") / "kept.onnx"
    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(
            copy.deepcopy(module).train(), (x,), str(path), dynamo=True, optimize=False, external_data=False
        )
    return path


def test_a_folded_batch_norm_is_refused_for_training_and_said_otherwise(exported):
    call = r"export it by torch\.onnx\.export\(model\.train\(\), samples, .*optimize=False\)"
    with pytest.raises(InvalidModel, match=rf"folded the BatchNorm 'stem\.1' into what is before it; {call}"):
        read(exported[2], batch=BATCH, loss=True)
    with pytest.warns(UserWarning, match=rf"it cannot be trained: .*'stem\.1'.*{call}"):
        read(exported[2], batch=BATCH)


def loaded(session, weights):
    for name, value in weights.items():
        layer, blob = name.rsplit("/", 1)
        session.params[layer][blob] = value
    return session


def test_weights_are_equal_and_logits_agree(exported):
    module, x, path = exported
    net, weights = read(path, batch=BATCH, notes=[])
    np.testing.assert_array_equal(weights["head/w"], module.head.weight.detach().numpy())
    np.testing.assert_array_equal(weights["head/b"], module.head.bias.detach().numpy())
    np.testing.assert_array_equal(weights["deep.0/w"], module.deep[0].weight.detach().numpy())
    with minidnn.Session(net, device="cpu") as session:
        (ours,) = loaded(session, weights).forward(x.numpy()).values()
    np.testing.assert_allclose(ours, module(x).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_it_trains_and_goes_back(exported, kept, tmp_path):
    _, x, _ = exported
    path = kept
    net, weights = read(path, batch=BATCH, loss=True)
    labels = np.arange(BATCH, dtype=np.int32)
    train = TrainSpec(SGD(momentum=0.9))
    with minidnn.Session(net, train, phases=("TRAIN", "TEST"), device="cpu") as session:
        loaded(session, weights)
        for tensor in session.programs["TRAIN"].inputs:
            value = {"x": x.numpy(), "label": labels, "rate": np.float32([0.1])}.get(tensor.name, np.zeros(1))
            session.machine.write(tensor, np.asarray(value, tensor.dtype).reshape(tensor.shape), "TRAIN")
        session.step("TRAIN")
        ours = {f"{name}/{blob}": blobs[blob] for name, blobs in session.params.items() for blob in blobs}
        (scores,) = session.forward({"x": x.numpy()}).values()
    assert not np.array_equal(ours["head/w"], weights["head/w"])
    write(net, ours, tmp_path / "back.onnx")
    again, same = read(tmp_path / "back.onnx", batch=BATCH)
    for name in ("stem.0/w", "deep.0/w", "deep.2/w", "deep.2/b", "head/w", "head/b"):
        np.testing.assert_array_equal(same[name], ours[name])
    with minidnn.Session(again, device="cpu") as session:
        (back,) = loaded(session, same).forward(x.numpy()).values()
    np.testing.assert_allclose(back, scores, rtol=1e-5, atol=1e-6)
