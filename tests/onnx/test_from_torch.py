"""`from_torch`: a module trains as in PyTorch, stays as it is, and takes its weights back."""

from __future__ import annotations

import copy

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed (the extra `onnx`)")

import minidnn
from minidnn.errors import InvalidInput
from minidnn.onnx import InvalidModel

pytestmark = pytest.mark.peer("torch", "onnxscript")

MORE = {"base_lr": 0.02, "momentum": 0.9, "lr_policy": "fixed", "device": "cpu", "max_iter": 3}


@pytest.mark.parametrize("name", ["gpt", "resnet", "vit_token"])
def test_a_module_trains_and_takes_its_weights_back(name):
    import torch
    import torch.nn.functional as F

    from tests.onnx import torch_nets

    torch.manual_seed(0)
    module, samples, classes = torch_nets.NETS[name]()
    for part in module.eval().modules():
        part.p = 0.0  # of a Dropout: PyTorch's random numbers are not minidnn's
    before, ours = copy.deepcopy(module.state_dict()), copy.deepcopy(module)
    net = minidnn.from_torch(module, samples, notes=[])
    assert not module.training and all(torch.equal(v, before[k]) for k, v in module.state_dict().items())
    ours.load_state_dict(net.to_torch_state_dict(), strict=True)
    for key, value in ours.state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=1e-6, atol=0)

    target = torch.randint(0, classes, module(*samples).shape[:-1])
    x = samples[0].numpy() if samples[0].is_floating_point() else samples[0].numpy().astype(np.int32)
    data = dict(zip([layer.name for layer in net.layers if layer.type == "Input"], (x, target.numpy()), strict=True))
    with minidnn.Solver(net, data=data, test_data=data, **MORE) as solver:
        solver.step(3)
        state = net.to_torch_state_dict(solver)
        scores = solver.forward({name: v for name, v in data.items() if name != "label"})
    ours.load_state_dict(state, strict=True)
    optimizer = torch.optim.SGD(module.train().parameters(), lr=0.02, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(module(*samples).reshape(-1, classes), target.reshape(-1)).backward()
        optimizer.step()
    for key, value in module.state_dict().items():
        torch.testing.assert_close(state[key], value, rtol=1e-4, atol=2e-6)
    theirs = ours.eval()(*samples).detach().numpy()
    (mine,) = (v for v in scores.values() if v.shape == theirs.shape)
    np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_it_plans_and_compares_like_any_net():
    from tests.onnx import torch_nets

    net = minidnn.from_torch(*torch_nets.NETS["mobilenet"]()[:2], notes=[])
    (dropout,) = (layer for layer in net.layers if layer.type == "Dropout")
    assert dropout.dropout_param.dropout_ratio == pytest.approx(0.2)
    minidnn.plan(net, policy="liveness")
    assert net.with_batch(3).weights.keys() == net.weights.keys()


def test_frozen_parameters_stay_and_unused_ones_come_back():
    import torch
    from torch import nn

    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.unused = nn.Linear(4, 4), nn.Linear(4, 3), nn.Linear(2, 2)
            self.first.weight.requires_grad_(False)
            self.register_buffer("mean", torch.rand(4))

        def forward(self, x):
            return self.second(torch.relu(self.first(x - self.mean)))

    module, x = Odd(), torch.randn(5, 4)
    with pytest.warns(UserWarning, match=r"Odd: frozen, as constants of the file: mean \(4\), first\.weight \(4x4\)"):
        net = minidnn.from_torch(module, x)
    with minidnn.Solver(net, data=(x.numpy(), np.arange(5) % 3), type="AdamW", weight_decay=0.1, **MORE) as solver:
        solver.step(3)
        state = net.to_torch_state_dict(solver)
    changed = {k for k, v in module.state_dict().items() if not torch.equal(v, state[k])}
    assert changed == {"first.bias", "second.weight", "second.bias"}
    with pytest.raises(InvalidInput, match="they lack 'first/b'"):
        net.to_torch_state_dict({"first/w": np.zeros((4, 4))})


def test_what_cannot_be_is_refused_by_name():
    import torch
    from torch import nn

    with pytest.raises(InvalidInput, match=r"expected a torch\.nn\.Module, got int"):
        minidnn.from_torch(3, torch.zeros(1))
    with pytest.raises(InvalidInput, match=r"weight, bias of Linear are not float32; module\.float\(\)"):
        minidnn.from_torch(nn.Linear(2, 2).double(), torch.zeros(1, 2).double())

    class Doubled(nn.Conv2d):
        def forward(self, x):
            return torch.conv2d(x, 2 * self.weight)

    with pytest.raises(InvalidModel, match=r"Doubled: Conv .*: its weight, 'mul', is computed as the net runs"):
        minidnn.from_torch(Doubled(3, 4, 3), torch.zeros(1, 3, 8, 8), loss=False)
