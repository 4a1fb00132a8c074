"""Values that a module asks for while its bytes are predicted: those that neither parameters nor chance decide."""

from __future__ import annotations

import pytest

from minidnn.errors import InvalidInput
from minidnn.torch.eager import predict
from tests.torch.measured import measured

pytestmark = pytest.mark.peer("torch")


def asking(asks):
    """A module that computes something large where it is told yes."""
    import torch
    from torch import nn

    class Asking(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(64, 64)

        def forward(self, x, mask):
            y = self.linear(x)
            if asks(self, x, mask):
                y = y * torch.exp(y.repeat(1, 8)).sum(1, keepdim=True)
            return (y * mask.unsqueeze(1)).sum()

    return Asking()


def counted(self, x, mask):
    import torch

    return bool((torch.arange(len(x), device=x.device).diff() == 1).all())


def masked(self, x, mask):
    return not mask.bool().all()


def changed(self, x, mask):
    kept = mask.clone()
    kept[0] = 0
    kept.view(-1)[1:].add_(1)
    return kept.sum().item() == 2 * (len(mask) - 1)


def by_loop(self, x, mask):
    return sum(m == 1 for m in mask.tolist()) == 2


@pytest.mark.parametrize("asks", [counted, masked, changed, by_loop])
@pytest.mark.parametrize("mask", [(1, 1, 1, 1), (1, 1, 0, 0)])
def test_a_step_takes_the_path_that_its_arguments_tell(asks, mask):
    import torch

    module, args = asking(asks), (torch.randn(4, 64), torch.tensor(mask).float())

    def step():
        module.zero_grad()
        value = module(*args)
        value.backward()
        return value

    step()
    assert predict(module, args).above == measured(step).peak
    assert args[1].tolist() == list(mask)  # what the module changes is a copy


@pytest.mark.parametrize(
    "asks",
    [
        lambda self, x, mask: bool(self.linear.weight.sum() > 0),
        lambda self, x, mask: bool(mask.clone().mul_(self.linear.bias[0]).sum() > 0),
        lambda self, x, mask: bool(mask.bernoulli(0.5).any()),
    ],
)
def test_what_parameters_or_chance_decide_is_refused(asks):
    import torch

    with pytest.raises(InvalidInput, match=r"test_values\.py:\d+: Asking asks for a value that depends on data"):
        predict(asking(asks), (torch.randn(4, 64), torch.ones(4)))


def test_without_values_arguments_decide_nothing():
    import torch

    x, mask = torch.randn(4, 64), torch.ones(4)
    with pytest.raises(InvalidInput, match="asks for a value that depends on data"):
        predict(asking(masked), (x.to("meta"), mask.to("meta")))
    assert predict(asking(counted), (x.to("meta"), mask.to("meta"))) == predict(asking(counted), (x, mask))
