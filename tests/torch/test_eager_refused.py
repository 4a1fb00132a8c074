"""Modules and arguments whose bytes cannot be predicted: what the user reads."""

from __future__ import annotations

import pytest

from minidnn.errors import InvalidInput
from minidnn.torch.eager import predict

pytestmark = pytest.mark.peer("torch")


def asks(kind):
    import torch
    from torch import nn

    apart = nn.Parameter(torch.ones(8))

    class Asks(nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            if kind == "branch" and y.sum() > 0:
                return y
            if kind == "shape":
                return y[y > 0].sum()
            if kind == "apart":
                return (y * apart).sum()
            if kind == "error":
                raise KeyError("mine")
            if kind == "sparse":
                return nn.functional.embedding(torch.ones(3, dtype=int), self.weight, sparse=True).sum()
            if kind == "device":
                return (y + torch.arange(8, device="cuda")).sum()
            if kind == "call":
                return torch.add(y, "1")
            return y if kind == "large" else y.detach().sum() if kind == "constant" else None

    return Asks(8, 8)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            "branch",
            r"tests/torch/test_eager_refused.py:\d+: Asks asks for a value that depends on data .*_local_scalar_dense",
        ),
        (
            "shape",
            r"tests/torch/test_eager_refused.py:\d+: Asks asks for a result whose shape depends on data .*nonzero",
        ),
        ("apart", r"tests/torch/test_eager_refused.py:\d+: a tensor \(8,\) requires a gradient but is not a parameter"),
        ("error", r"Asks fails on tensors without values: tests/torch/test_eager_refused.py:\d+: KeyError: 'mine'"),
        ("sparse", r"tests/torch/test_eager_refused.py:\d+: .* makes a tensor of torch.sparse_coo"),
        (
            "device",
            r"tests/torch/test_eager_refused.py:\d+: aten.arange makes a tensor on cuda, while the step runs on cpu",
        ),
        ("call", r"Asks fails .*: tests/torch/test_eager_refused.py:\d+: TypeError: add\(\): argument 'other'"),
        ("large", r"the loss has the shape \(4, 8\); reduce it to one number"),
        ("constant", "the loss depends on no parameter that requires a gradient"),
        ("none", "the loss is a NoneType, not a tensor"),
    ],
)
def test_what_cannot_be_predicted_is_refused_by_line(kind, message):
    import torch

    module = asks(kind)
    weight = module.weight
    with pytest.raises(InvalidInput, match=message):
        predict(module, (torch.ones(4, 8),))
    assert module.weight is weight and module.weight.grad is None


def test_arguments_that_make_no_step_are_refused():
    import torch
    from torch import nn

    x = torch.ones(4, 8)
    for module, args, more, message in (
        (nn.Linear(8, 8), (x,), {"checkpointed": True}, "Linear has no repeated blocks"),
        (nn.Linear(8, 8), x, {}, "expected a tuple of arguments, got tensor"),
        (nn.Linear(8, 8), (), {"loss": max}, "expected a tuple of arguments, the last for the loss"),
        (nn.LazyLinear(8), (x,), {}, "first call"),
        (nn.Linear(8, 8), (x.to_sparse(),), {}, "torch.sparse_coo"),
        (torch.jit.script(nn.Linear(8, 8)), (x,), {}, "is a module of torch.jit"),
        (nn.Linear(8, 8), (x, x), {"loss": lambda result: result}, "takes 1 positional argument but 2 were given"),
        (len, (x,), {}, "expected a torch.nn.Module, got builtin_function_or_method"),
    ):
        with pytest.raises(InvalidInput, match=message):
            predict(module, args, **more)
