"""Bytes of eager PyTorch's steps: what is predicted is what PyTorch takes on the CPU, and the module stays as it is."""

from __future__ import annotations

import copy
import random
from collections import Counter

import numpy as np
import pytest

from minidnn.program import Role
from minidnn.torch.blocks import repeated
from minidnn.torch.eager import predict
from tests.torch.measured import measured

pytestmark = pytest.mark.peer("torch")

RANDOM_STATE = 5056  # bytes of the state of PyTorch's generator on the CPU, which a checkpoint keeps


def criterion(scores, labels):
    import torch.nn.functional as F

    if labels.is_floating_point():
        return F.mse_loss(scores, labels)
    return F.cross_entropy(scores.reshape(-1, scores.shape[-1]), labels.reshape(-1))


def net(name):
    """A module in training, and its batch with labels."""
    import torch

    from tests.onnx import torch_nets

    torch.manual_seed(0)
    module, samples, classes = torch_nets.NETS[name]()
    result = module(*samples)
    labels = torch.randn_like(result) if classes is None else torch.randint(0, classes, result.shape[:-1])
    return module.train(), (*samples, labels)


def real(module, args, loss=criterion, checkpointed=()):
    """The bytes of the second of two steps."""
    from torch.utils.checkpoint import checkpoint

    for block in checkpointed:
        run = block.forward
        block.forward = lambda *a, run=run, **k: checkpoint(run, *a, use_reentrant=False, **k)

    def step():
        value = module(*args) if loss is None else loss(module(*args[:-1]), args[-1])
        value.backward()
        return value

    step()
    module.zero_grad()
    return measured(step)


KNOWN: dict[str, int] = {}


def measured_scratch(func, args, kwargs):
    """What a convolution or a norm takes beside its results, measured on real tensors; other ops take nothing."""
    import torch
    from torch.utils import _pytree as trees
    from torch.utils._python_dispatch import _disable_current_modes

    def zeros(x):
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).zero_()

    if "convolution" not in str(func) and "norm" not in str(func):
        return 0
    key = repr((func, args, kwargs))
    with _disable_current_modes(), torch.no_grad():
        if key not in KNOWN:
            args, kwargs = trees.tree_map_only(torch.Tensor, zeros, (args, kwargs))
            func(*args, **kwargs)
            taken = measured(lambda: func(*args, **kwargs))
            KNOWN[key] = taken.peak - taken.end
    return KNOWN[key]


@pytest.mark.parametrize("name", ["gpt", "llama_rms", "bert", "encoder"])
def test_the_bytes_of_a_real_step_are_predicted_to_the_byte(name):
    module, args = net(name)
    predicted = predict(module, args, loss=criterion)
    taken = real(module, args)
    assert (predicted.above, predicted.curve[-1]) == (taken.peak, taken.end)


@pytest.mark.parametrize("name", ["mixer", "vit_token"])
def test_what_ops_take_beside_their_results_is_all_that_is_missing(name):
    module, args = net(name)
    without = predict(module, args, loss=criterion)
    predicted = predict(module, args, loss=criterion, scratch=measured_scratch)
    taken = real(module, args)
    assert without.above <= predicted.above and predicted.curve[-1] == taken.end
    assert predicted.above == taken.peak


@pytest.mark.parametrize("name", ["gpt", "llama_rms", "encoder"])
def test_checkpointed_blocks_give_their_bytes_back(name):
    module, args = net(name)
    whole, predicted = (predict(module, args, loss=criterion, checkpointed=c) for c in (False, True))
    blocks = repeated(module)
    taken = real(module, args, checkpointed=blocks.values())
    assert predicted.checkpointed == tuple(blocks) and len(blocks) > 1
    assert predicted.above < whole.above
    assert 0 <= taken.peak - predicted.above <= RANDOM_STATE * (len(blocks) + 1)


def parts():
    """A module with what autograd does out of place if tensors have no values."""
    import torch
    from torch import nn

    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sinh()

        @staticmethod
        def backward(ctx, gradient):
            return gradient.cos() + gradient.sin()  # a sum of its own, out of place

    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

        def forward(self, x, at):
            y = self.first(x)
            y = y * y + x  # two gradients of one tensor by one node, and by two
            y = self.second(y) + self.second(Own.apply(y))
            return torch.cat([y, y.gather(1, at), y[:, at[0]], y.index_select(1, at[0]), y.topk(5)[0]], 1)

    return Parts()


def test_gradients_that_meet_are_added_in_place():
    import torch
    import torch.nn.functional as F

    args = (torch.randn(256, 64), torch.arange(0, 64, 2).expand(256, -1), torch.rand(256, 64 + 3 * 32 + 5))
    module = parts()

    def loss(y, target):
        return F.binary_cross_entropy_with_logits(y, target, pos_weight=torch.ones(y.shape[1]))

    predicted, taken = predict(module, args, loss=loss), real(module, args, loss)
    with_scratch = predict(module, args, loss=loss, scratch=lambda func, args, kwargs: 1)
    lasting = [event.nbytes for event in with_scratch.events if abs(event.nbytes) > 1]
    assert lasting == [event.nbytes for event in predicted.events]  # what a sum takes beside leaves it in place
    assert (predicted.above, predicted.curve[-1]) == (taken.peak, taken.end)
    sizes = Counter(event.nbytes for event in predicted.events if event.nbytes > 0)
    assert not sizes - taken.sizes and sizes[256 * 64 * 4] == taken.sizes[256 * 64 * 4]


def test_gradients_that_meet_as_views_are_added_out_of_place():
    """autograd keeps the base of a view, so that it may not write over it."""
    import torch
    from torch import nn

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(300, 32), nn.Linear(32, 300, bias=False)
            self.head.weight = self.words.weight

        def forward(self, x):
            return self.head(self.words(x))

    args = (torch.arange(4), torch.arange(4))
    module, loss = Tied(), nn.functional.cross_entropy
    taken = real(module, args, loss)
    predicted = predict(module, args, loss=loss)
    assert (predicted.above, predicted.curve[-1]) == (taken.peak, taken.end)
    assert predicted.above > 3 * module.words.weight.nbytes


def test_results_that_hide_bytes_are_known():
    import torch
    from torch import nn

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(40, 56, 2, bidirectional=True)

        def forward(self, x):
            return self.lstm(x)[0]

    args = (torch.randn(50, 4, 40), torch.randn(50, 4, 112))
    module, loss = Words(), nn.functional.smooth_l1_loss
    predicted, taken = predict(module, args, loss=loss), real(module, args, loss)
    workspace = Counter(s.nbytes for s in predicted.storages if s.what == "aten.mkldnn_rnn_layer" and s.nbytes > 10**5)
    assert taken.end == predicted.curve[-1] and predicted.above <= taken.peak
    assert len(workspace) == 2 and not workspace - taken.sizes  # of two layers, in both directions


def test_a_module_without_values_has_the_same_bytes():
    from torch._subclasses.fake_tensor import FakeTensorMode

    from tests.onnx import torch_nets

    module, args = net("llama_rms")
    plain = predict(module, args, loss=criterion)
    meta = [x.to("meta") for x in args]
    assert predict(module, tuple(meta), loss=criterion).events == plain.events
    assert predict(module.to("meta"), args, loss=criterion).events == plain.events
    with FakeTensorMode() as mode:
        fake = torch_nets.NETS["llama_rms"]()[0].train()
        batch = tuple(mode.from_tensor(x) for x in args)
    assert predict(fake, batch, loss=criterion) == plain
    assert all(p.grad is None for p in fake.parameters())


def test_the_module_and_all_generators_stay_as_they_were():
    import torch
    from torch import nn

    class Restless(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.seen = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), []
            self.register_buffer("steps", torch.zeros(()))
            self.table = torch.ones(4)

        def forward(self, x):
            self.steps += 1
            self.seen.append(self.steps)
            self.latest = x * random.random() * np.random.rand()
            self.table.mul_(2)
            self.eval()
            torch.manual_seed(5)
            y = nn.functional.dropout(self.norm(self.conv(self.latest)), 0.5)
            return (y + torch.rand_like(y)).mean(), self.register_buffer("late", y.detach())

    module, called = Restless(), []
    module.conv.register_forward_hook(lambda part, given, result: called.append("forward") or result * 2)
    module.conv.register_full_backward_hook(lambda *_: called.append("backward"))
    module.conv.weight.register_hook(lambda gradient: called.append("gradient"))
    module.conv.weight.grad = torch.ones(4, 3, 1, 1)
    before, attributes = copy.deepcopy(module.state_dict()), set(vars(module))
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    states = [torch.get_rng_state(), random.getstate(), np.random.get_state()]
    predicted = predict(module, (x, 0), loss=lambda result, _: result[0])
    assert sorted(called) == ["backward", "forward", "gradient"] and predicted.above > 0 and x.grad is None
    torch.testing.assert_close(module.state_dict(), before, rtol=0, atol=0)
    assert all(part.training for part in module.modules()) and module.seen == []
    assert set(vars(module)) == attributes and module.table.tolist() == [1] * 4
    assert module.conv.weight.grad.tolist() == torch.ones(4, 3, 1, 1).tolist() and module.conv.bias.grad is None
    assert torch.equal(states[0], torch.get_rng_state()) and states[1] == random.getstate()
    assert all(np.array_equal(a, b) for a, b in zip(states[2], np.random.get_state(), strict=True))


def test_what_lives_at_the_peak_is_told_by_module_and_line():
    module, args = net("gpt")
    predicted = predict(module, args, loss=criterion)
    assert (
        sum(storage.nbytes for storage in predicted.at_peak) == predicted.peak == predicted.standing + predicted.above
    )
    tables = {(s.module, s.what): s for s in predicted.at_peak if s.role is Role.PARAM}
    assert {f"{module}.{name}".lstrip(".") for module, name in tables} <= {n for n, _ in module.named_parameters()}
    assert sum(s.role is Role.INPUT for s in predicted.at_peak) == len(args)
    kept = [s for s in predicted.at_peak if s.role is Role.ACTIVATION and "block" in s.module]
    assert kept and all(s.line.startswith("tests/onnx/torch_nets.py:") for s in kept if s.what == "aten.add.Tensor")
    made = {s.module for s in predicted.storages if s.role is Role.PARAM_GRADIENT}
    assert made == {name for name, p in module.named_parameters()}
    backward = [s for s in predicted.storages if s.role is Role.GRADIENT and s.what == "aten.gelu_backward"]
    assert backward and all("block" in s.module and s.line.startswith("tests/onnx/torch_nets.py:") for s in backward)
    assert predicted.reserved >= predicted.peak and predicted.reserved % (2 << 20) == 0


def test_a_loss_may_be_a_module_or_among_the_results():
    import torch
    from torch import nn

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(8, 3)

        def forward(self, x, labels=None):
            scores = self.body(x)
            return {"scores": scores, "loss": nn.functional.cross_entropy(scores, labels)}

    x, labels = torch.randn(5, 8), torch.randint(0, 3, (5,))
    inner = Inner()
    predicted = predict(inner, (x,), {"labels": labels})
    assert predicted.above == real(inner.body, (x, labels), nn.CrossEntropyLoss()).peak
    weighted = predict(nn.Linear(8, 3), (x, labels), loss=nn.CrossEntropyLoss(weight=torch.ones(3)))
    assert [(s.module, s.what) for s in weighted.storages if s.role is Role.STATE] == [("loss", "weight")]


def test_blocks_are_the_outermost_parts_of_one_class():
    from torch import nn

    def block():
        return nn.ModuleDict({"inner": nn.Sequential(*(nn.ModuleDict({"a": nn.ReLU()}) for _ in range(2)))})

    module = nn.ModuleDict({"stages": nn.Sequential(nn.Sequential(block(), block()), nn.Sequential(block(), block()))})
    assert list(repeated(module)) == ["stages.0.0", "stages.0.1", "stages.1.0", "stages.1.1"]
    assert list(repeated(module["stages"][0])) == ["0", "1"]
    assert not repeated(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)))
    assert list(repeated(nn.Sequential(block(), nn.ReLU()))) == ["0.inner.0", "0.inner.1"]


def test_a_model_that_knows_how_to_checkpoint_does_it_its_way():
    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    class Layer(nn.Linear):
        gradient_checkpointing = False

        def forward(self, x, cache):
            if self.gradient_checkpointing:
                return checkpoint(super().forward, x, use_reentrant=False).tanh()
            cache.append(x)
            return super().forward(x).tanh()

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Layer(16, 16), Layer(16, 16)

        def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs):
            for part in (self, self.first, self.second):
                part.gradient_checkpointing = True

        def forward(self, x):
            cache = []
            return self.second(self.first(x, cache), cache).sum()

    module = Model()
    predicted = predict(module, (torch.ones(64, 16),), checkpointed=True)
    assert predicted.checkpointed == ("first", "second") and "gradient_checkpointing" not in vars(module.first)
    assert predicted.above == predict(module, (torch.ones(64, 16),)).above  # what a Linear keeps is not its own
