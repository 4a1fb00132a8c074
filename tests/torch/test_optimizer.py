"""Bytes of optimizers: what is predicted is what PyTorch takes on the CPU, and nothing is touched."""

from __future__ import annotations

import copy

import pytest

from minidnn.errors import InvalidInput
from minidnn.torch.optimizer import bytes_of
from tests.torch.measured import measured

pytestmark = pytest.mark.peer("torch")

NUMBERS = 20  # bytes of an op's scratch for the numbers among its arguments

OPTIMIZERS = {
    "SGD": {},
    "SGD momentum": {"momentum": 0.9},
    "SGD nesterov": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1, "foreach": True},
    "Adam": {"weight_decay": 0.1},
    "AdamW": {"foreach": False},
    "AdamW foreach": {"foreach": True},
    "AdamW fused": {"fused": True},
    "Adam amsgrad": {"amsgrad": True, "foreach": True},
    "RMSprop": {"centered": True, "momentum": 0.9},
    "RMSprop foreach": {"foreach": True},
    "Adagrad": {},
    "Adagrad foreach": {"foreach": True},
    "Adafactor": {},
    "Adafactor foreach": {"foreach": True},
    "NAdam": {},
    "RAdam": {},
}


def net():
    from torch import nn

    return nn.Sequential(nn.Linear(64, 96), nn.LayerNorm(96), nn.Linear(96, 32, bias=False), nn.Conv2d(3, 8, 3))


def state_of(optimizer):
    import torch

    leaves = [x for held in optimizer.state.values() for x in held.values() if isinstance(x, torch.Tensor)]
    return sum({x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in leaves}.values())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_and_scratch_are_those_of_real_steps(name):
    import torch

    if not hasattr(torch.optim, name.split()[0]):
        pytest.skip(f"torch {torch.__version__} has no {name}")
    module = net()

    def make(parameters):
        return getattr(torch.optim, name.split()[0])(parameters, lr=1e-3, **OPTIMIZERS[name])

    predicted = bytes_of(make, module)
    optimizer = make(module.parameters())
    for p in module.parameters():
        p.grad = torch.ones_like(p)
    for _ in range(7):  # RAdam does more from its sixth step on
        optimizer.step()
    real = measured(optimizer.step)
    assert predicted.state == state_of(optimizer) == sum(predicted.by_parameter.values())
    assert 0 <= real.peak - real.end - predicted.scratch <= NUMBERS
    before = copy.deepcopy(optimizer.state_dict())
    assert bytes_of(optimizer, module) == predicted
    torch.testing.assert_close(optimizer.state_dict(), before, rtol=0, atol=0)


def test_a_name_is_looked_up_and_cuda_has_its_own_variant():
    import torch

    module = net()
    count = sum(p.numel() for p in module.parameters())
    largest = max(p.numel() for p in module.parameters())
    here, there = bytes_of("adamw", module), bytes_of("adamw", module, device="cuda")
    assert here.name == "AdamW" and here.state == 8 * count + 4 * len(list(module.parameters()))
    assert there.state == 8 * count  # counts of steps are on the host
    assert there.scratch == 4 * count and here.scratch == 2 * 4 * largest
    assert here.by_parameter["0.weight"] == 2 * 4 * 64 * 96 + 4
    assert torch.optim.AdamW(module.parameters()).state == {}


def test_frozen_and_tied_parameters_have_no_state_of_their_own():
    import torch

    module = net()
    module[2].weight.requires_grad_(False)
    module[0].twin = module[1].weight
    bytes_by_name = bytes_of(torch.optim.Adam, module).by_parameter
    assert bytes_by_name["2.weight"] == 0 and bytes_by_name["0.twin"] == 8 * 96 + 4 and "1.weight" not in bytes_by_name


def test_groups_schedulers_and_closures_over_the_module_work():
    import torch

    module = net()
    optimizer = torch.optim.SGD([{"params": [p], "lr": 0.1} for p in module.parameters()], momentum=0.9)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    weights = copy.deepcopy(module.state_dict())
    whole = bytes_of(optimizer, module)
    part = bytes_of(lambda _: torch.optim.SGD(module[0].parameters(), momentum=0.9), module)
    assert whole.state == sum(4 * p.numel() for p in module.parameters()) and part.state == 4 * 96 * 65
    assert not optimizer.state and all(p.grad is None for p in module.parameters())
    torch.testing.assert_close(module.state_dict(), weights, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda optim: "adamx", r"has no optimizer 'adamx' \(did you mean 'adam"),
        (lambda optim: list, "expected an optimizer of torch.optim"),
        (lambda optim: optim.LBFGS, "the optimizer LBFGS fails .*closure"),
        (lambda optim: optim.SparseAdam, "the optimizer SparseAdam fails .*does not support dense gradients"),
        (lambda optim: optim.SGD(net().parameters()), "7 of the optimizer's parameters are none of the module's"),
    ],
)
def test_what_cannot_be_predicted_is_refused(make, message):
    import torch

    with pytest.raises(InvalidInput, match=message):
        bytes_of(make(torch.optim), net())


def test_modules_and_devices_that_are_none_are_refused():
    with pytest.raises(InvalidInput, match=r"expected a torch\.nn\.Module, got int"):
        bytes_of("sgd", 3)
    with pytest.raises(InvalidInput, match="unknown device 'gpu'; known are cpu and cuda"):
        bytes_of("sgd", net(), device="gpu")
