"""A planned step in the user's own loop: eager mode's bytes within the budget, whatever the policy."""

from __future__ import annotations

import gc

import pytest

from minidnn.errors import InvalidInput
from minidnn.memory.budget import BudgetError

pytestmark = pytest.mark.peer("torch")


def small_net():
    """Layers with statistics, random numbers, tied weights, and an activation in place."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = [
        part for width in (16, 16, 16)
        for part in (nn.LazyLinear(width), nn.BatchNorm1d(width), nn.ReLU(inplace=True), nn.Dropout(0.15))
    ]  # fmt: skip
    module = nn.Sequential(*layers, nn.Linear(16, 3))
    module(torch.zeros(2, 16))
    module[8].weight = module[4].weight
    return module


def batches(count=3, n=32):
    import torch

    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(n, 16, generator=generator), torch.randint(0, 3, (n,), generator=generator)) for _ in range(count)
    ]


def trained(accumulate=1, to_none=True, steps=4, **compiled):
    """The state behind some steps of AdamW with clipping, the losses, and the step itself."""
    import torch
    import torch.nn.functional as F

    from minidnn.torch.step import compile

    module = small_net()
    step = compile(module, loss=F.cross_entropy, **compiled) if compiled else None
    run = step or (lambda x, y: F.cross_entropy(module(x), y))
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    torch.manual_seed(7)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=to_none)
        for x, y in batches(accumulate):
            loss = run(x, y) / accumulate
            loss.backward()
            losses.append(loss.item())
        torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        optimizer.step()
    state = {name: t.numpy().tobytes() for name, t in module.state_dict().items()}
    return (state, losses, torch.get_rng_state().tolist()), step


@pytest.mark.parametrize(
    "options",
    [
        {"policy": "liveness"}, {"policy": "sqrt_n"}, {"policy": "superneurons"}, {"policy": "vdnn_all"},
        {"budget": "80%"}, {"budget": "60%"},
    ],
    ids=str,
)  # fmt: skip
def test_a_loop_ends_with_the_weights_of_eager_mode(options):
    want, _ = trained()
    got, step = trained(**options)
    assert got == want
    assert len(step.plans) == 1


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_are_accumulated(to_none):
    want, _ = trained(3, to_none)
    got, step = trained(3, to_none, budget="60%")
    assert got == want
    assert len(step.plans) == 2  # with gradients that are there, and without


def test_a_disk_takes_what_the_host_has_no_room_for(tmp_path):
    want, _ = trained()
    got, _ = trained(policy="vdnn_all", host_ring="4KiB", disk=tmp_path)
    assert got == want


def test_a_plan_takes_less_than_eager_mode_and_keeps_the_budget():
    from minidnn.torch.step import compile

    module, (arguments,) = small_net(), batches(1)
    peaks = {}
    for budget in (None, "80%", "60%"):
        step = compile(module, arguments, loss=cross_entropy(), budget=budget)
        (planned,) = step.plans.values()
        peaks[budget] = planned.peak
    assert peaks[None] > peaks["80%"] > peaks["60%"]
    exact = peaks["80%"]
    (planned,) = compile(module, arguments, loss=cross_entropy(), budget=exact).plans.values()
    assert planned.peak <= exact
    with pytest.raises(BudgetError, match="the budget is 100 B"):
        compile(module, arguments, loss=cross_entropy(), budget="100B")


def cross_entropy():
    import torch.nn.functional as F

    return F.cross_entropy


def test_no_grad_and_eval_return_what_the_module_does():
    import torch

    from minidnn.torch.step import compile

    module, ((x, y),) = small_net(), batches(1)
    step = compile(module, budget="60%")
    for mode in (True, False, True):
        module.train(mode)
        with torch.no_grad():
            torch.manual_seed(3)
            want = module(x)
            torch.manual_seed(3)
            assert torch.equal(step(x), want) and not step(x).requires_grad
    assert len(step.plans) == 2
    assert y is not None


def test_shapes_are_planned_once_each():
    import torch

    from minidnn.torch.step import compile

    module, loss = small_net(), cross_entropy()
    step = compile(module, loss=loss)
    for n in (8, 4, 8, 4, 4, 8):
        ((x, y),) = batches(1, n)
        module.zero_grad()
        torch.manual_seed(1)
        step(x, y).backward()
        got = [p.grad for p in module.parameters()]
        module.zero_grad()
        torch.manual_seed(1)
        loss(module(x), y).backward()
        assert all(torch.equal(p.grad, g) for p, g in zip(module.parameters(), got, strict=True))
    assert len(step.plans) == 2


def test_it_takes_the_place_of_the_module_and_leaves_it():
    import copy
    import pickle

    import torch
    from torch import nn

    from minidnn.torch.step import compile

    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = small_net()

        def forward(self, x, labels):
            y = self.net(x)
            return {"loss": nn.functional.cross_entropy(y, labels), "logits": y}

    module, ((x, y),) = WithLoss(), batches(1)
    torch.manual_seed(3)
    want = copy.deepcopy(module)(x, labels=y)["loss"]
    step = compile(module, budget="60%").install()
    torch.manual_seed(3)
    result = module(x, labels=y)
    assert torch.equal(result["loss"], want) and list(result) == ["loss"]
    with pytest.raises(InvalidInput, match="returns the loss alone, and 'logits' is freed"):
        result["logits"]
    result["loss"].backward()
    assert all(p.grad is not None for p in module.parameters())
    step.remove()
    assert "forward" not in module.__dict__ and "logits" in module(x, labels=y)
    pickle.loads(pickle.dumps(module.net))
    assert copy.deepcopy(module.net)(x).shape == (32, 3)


def test_what_is_left_keeps_nothing_alive():
    """A forward pass without its backward pass, and a loss that is kept, hold no activations."""
    import torch

    from minidnn.torch.step import compile

    module, ((x, y),) = small_net(), batches(1)
    step = compile(module, loss=cross_entropy())
    step(x, y).backward()
    module.zero_grad()

    def alive():
        gc.collect()
        return sum(isinstance(o, torch.Tensor) for o in gc.get_objects())

    kept = [step(x, y) for _ in range(2)]
    before = alive()
    for _ in range(8):
        kept[-1] = step(x, y)
    assert alive() <= before
    with pytest.raises(InvalidInput, match="another step has begun"):
        kept[0].backward()


def test_a_failure_in_a_step_leaves_the_next_one_whole():
    from minidnn.torch.step import compile

    module, ((x, y),) = small_net(), batches(1)
    step = compile(module, loss=cross_entropy())
    with pytest.raises(InvalidInput, match=r"\(0\): Sequential cannot be traced: RuntimeError"):
        step(x[:, :3], y)
    step(x, y).backward()
    assert all(p.grad is not None for p in module.parameters())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"budget": "0%"}, "expected a part above 0%"), ({"budget": "much"}, "much"),
        ({"policy": "no_such"}, "no_such"), ({"args": ()}, "test_step|forward"),
    ],
    ids=str,
)  # fmt: skip
def test_options_that_cannot_be_used_are_named(options, text):
    from minidnn.errors import BadInput
    from minidnn.torch.step import compile

    with pytest.raises(BadInput, match=text):
        compile(small_net(), **options)


def test_only_a_module_is_compiled():
    from minidnn.torch.step import compile

    with pytest.raises(InvalidInput, match=r"expected a torch\.nn\.Module, got function"):
        compile(lambda x: x)
