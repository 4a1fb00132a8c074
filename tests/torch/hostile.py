"""Modules, and loops around them, that a plan has to train with eager mode's very bits, or to refuse."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Case:
    """A module, and what is done with it.

    batches: the arguments of each step; with a loss, the last is the target
    loop:    a step: called with what runs the module, the module and a batch; default: the loss, and its backward()
    between: called behind each step with the module
    around:  a context of each step
    """

    module: nn.Module
    batches: Sequence[Any]
    loss: Any = F.cross_entropy
    loop: Callable[[Any, nn.Module, Any], Any] | None = None
    between: Callable[[int, nn.Module], None] | None = None
    around: Callable[[], Any] = contextlib.nullcontext
    to_none: bool = True


def batch(n: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(n, 8), torch.randint(0, 3, (n,))


class Net(nn.Module):
    """Two layers, and `step`, which computes with them."""

    def __init__(self, step: Callable[..., Any], prepare: Callable[[nn.Module], None] | None = None):
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 3)
        if prepare:
            prepare(self)
        self.step = step

    def forward(self, *args, **kwargs):
        return self.step(self, *args, **kwargs)


def net(step, prepare=None, steps: int = 2, **more) -> Callable[[], Case]:
    return lambda: Case(Net(step, prepare), [batch() for _ in range(steps)], **more)


def plain(s, x):
    return s.b(F.relu(s.a(x)))


def dropped(s, x):
    return s.b(F.dropout(F.relu(s.a(x)), 0.3))


def buffer(s):
    s.register_buffer("m", torch.ones(16))


def seq(*layers) -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), *layers, nn.Linear(16, 3))


def images(n: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(n, 3, 8, 8), torch.randint(0, 3, (n,))


def convolution(*layers) -> Callable[[], Case]:
    def make():
        tail = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
        return Case(
            nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *copy.deepcopy(layers), *tail), [images() for _ in range(2)]
        )

    return make


# ---- what decides by values


def graph_break(s, x):
    y = s.a(x)
    if y.sum() > 0:
        y = y * 2
    return s.b(y)


def selected(s, x):
    y = s.a(x)
    return s.b(y)[y[:, 0] > -9]


def to_numpy(s, x):
    return s.b(torch.tensor(s.a(x).detach().numpy()))


# ---- what changes in place


def changes_input(s, x):
    x.mul_(2)
    return plain(s, x)


def reshapes_input(s, x):
    x.t_()
    return plain(s, x.t())


def saved_then_changed(s, x):
    y = torch.sigmoid(s.a(x))
    y.mul_(2)
    return s.b(y)


def views_changed(s, x):
    y = s.a(x) * 1
    y.view(8, 8)[0].zero_()
    y += 1
    y[:, 1].mul_(3)
    y.t_()
    y.t_()
    y.index_put_((torch.tensor([0, 1]),), torch.ones(2, 16))
    return s.b(F.relu_(y.sin()))


def gives_memory(s, x):
    y = s.a(x)
    y.data = y.data * 2
    return s.b(y)


def resized(s, x):
    out = torch.empty(0)
    torch.add(x, 1, out=out)
    return plain(s, out)


def buffer_read_and_changed(s, x):
    y = s.a(x)
    z = torch.sigmoid(y.detach() * s.m) * y
    s.m.mul_(0.9).add_(y.detach().mean(0) * 0.1)
    return s.b(F.relu(z))


def buffer_assigned(s, x):
    y = s.a(x)
    s.m = s.m * 0.9 + y.detach().mean(0) * 0.1
    return s.b(F.relu(y - s.m))


def buffer_grows(s, x):
    s.m = torch.cat([s.m, x.detach().mean().reshape(1)])
    return plain(s, x)


def buffer_filled(s, x):
    if s.m is None:
        s.m = s.a(x).detach().mean(0)
    return s.b(s.a(x) - s.m)


def weight_clamped(s, x):
    with torch.no_grad():
        s.a.weight.div_(s.a.weight.norm())
    s.b.weight.data.clamp_(-0.1, 0.1)
    return plain(s, x)


def overlapping(s):
    base = torch.randn(32)
    s.register_buffer("g", base[:16])
    s.register_buffer("k", base[8:24])


def overlap_changed(s, x):
    s.g.add_(1)
    return s.b(s.a(x) * s.k)


# ---- what Python keeps


def counts(s, x):
    s.n += 1
    return plain(s, x) * s.n


def logs(s, x):
    s.log.append(1)
    return plain(s, x) * len(s.log)


def keeps_activation(s, x):
    s.last = s.a(x)
    return s.b(s.last)


CALLS: list[int] = []
FACTOR = {"k": 1.0}
SCALE = 1.0


class Counting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        CALLS.append(1)
        return x * len(CALLS)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


@torch.library.custom_op("minidnn_hostile::counted", mutates_args=())
def counted(x: torch.Tensor) -> torch.Tensor:
    CALLS.append(1)
    return x * len(CALLS)


@torch.library.custom_op("minidnn_hostile::shorter", mutates_args=())
def shorter(x: torch.Tensor) -> torch.Tensor:
    return x.new_zeros(2, 16)


counted.register_fake(lambda x: torch.empty_like(x))
counted.register_autograd(lambda ctx, gradient: gradient)
shorter.register_fake(lambda x: torch.empty_like(x))


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 3 * x * x


def set_global(i, m):
    global SCALE
    SCALE, FACTOR["k"] = SCALE + 1, FACTOR["k"] + 1


def with_globals():
    set_global(0, None)
    globals()["SCALE"], FACTOR["k"] = 1.0, 1.0
    return net(lambda s, x: plain(s, x) * SCALE * FACTOR["k"], steps=3, between=set_global)()


class Config:
    factor = 1


def config(s):
    s.config, s.options = Config(), {"list": [1]}


def configure(i, m):
    m.config.factor += 1
    m.options["list"].append(2)


def swap_activation(i, m):
    m.act = nn.Tanh() if i % 2 == 0 else nn.ReLU()


# ---- random numbers


def forked(s, x):
    with torch.random.fork_rng():
        z = torch.rand(4, 1)
    return plain(s, x) * z


def seeded(s, x):
    torch.manual_seed(3)
    return dropped(s, x)


def many_random(s, x):
    y = F.alpha_dropout(F.rrelu(s.a(x + torch.randn_like(x)), training=True), 0.2, training=True)
    y = y * torch.empty_like(y).bernoulli_(0.5) + torch.rand(4, 1, generator=s.generator)
    return F.gumbel_softmax(s.b(F.dropout(y, 0.2)))[torch.randperm(4)]


def generator(s):
    s.generator = torch.Generator().manual_seed(3)
    s.random, s.numpy = random.Random(1), np.random.default_rng(1)


# ---- losses and backward passes


def penalized(s, x):
    x = x.detach().clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(plain(s, x).sum(), x, create_graph=True)
    return plain(s, x) * gradient.norm()


def summed(f, m, b):
    loss = f(*b) + f(*b)
    loss.backward()
    return loss


def scaled(f, m, b):
    loss = (f(*b) * 65536.0 / 3 + 1).pow(2)
    loss.backward(retain_graph=True)
    return loss


def twice(f, m, b):
    loss = f(*b)
    loss.backward(retain_graph=True)
    loss.backward()


def graph_kept(f, m, b):
    f(*b).backward(create_graph=True)


def by_grad(f, m, b):
    loss = f(*b)
    for p, gradient in zip(m.parameters(), torch.autograd.grad(loss, list(m.parameters())), strict=True):
        p.grad = gradient
    return loss


def for_some(f, m, b):
    loss = f(*b)
    loss.backward(inputs=list(m.b.parameters()))
    return loss


def decayed(f, m, b):
    (f(*b) + m.a.weight.pow(2).sum()).backward()


def accumulated(f, m, b):
    for _ in range(3):
        loss = f(*b) / 3
        loss.backward()
    return loss


def zeroed_before_backward(f, m, b):
    loss = f(*b)
    m.zero_grad()
    loss.backward()
    return loss


def gradient_set(f, m, b):
    loss = f(*b)
    for p in m.parameters():
        p.grad = torch.ones_like(p)
    loss.backward()
    return loss


def forward_alone(f, m, b):
    for _ in range(5):
        f(*b)
    m.eval()
    with torch.no_grad():
        value = f(*b)
    m.train()
    loss = f(*b)
    loss.backward()
    return value, loss


def weight_changed(f, m, b):
    loss = f(*b)
    with torch.no_grad():
        m.b.weight.mul_(1.5)
    loss.backward()


def input_changed(f, m, b):
    loss = f(*b)
    b[0].mul_(2)
    loss.backward()


def data_swapped(f, m, b):
    loss = f(*b)
    m.b.weight.data = m.b.weight.data * 1.5
    loss.backward()


def anomalies_sought(f, m, b):
    with torch.autograd.set_detect_anomaly(True):
        f(*b).backward()


# ---- nets


class Embedded(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.e, self.b = nn.Embedding(10, 8, **options), nn.Linear(8, 3)

    def forward(self, i):
        return self.b(self.e(i).mean(1))


def embedded(**options) -> Callable[[], Case]:
    return lambda: Case(
        Embedded(**options), [(torch.randint(0, 10, (4, 6)), torch.randint(0, 3, (4,))) for _ in range(3)]
    )


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.r = kind(8, 8, batch_first=True, **options)
        self.b = nn.Linear(self.r(torch.zeros(1, 1, 8))[0].shape[-1], 3)

    def forward(self, x):
        return self.b(self.r(x)[0][:, -1])


class Attending(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.t, self.b = module, nn.Linear(8, 3)

    def forward(self, x, mask=None):
        if isinstance(self.t, nn.MultiheadAttention):
            return self.b(self.t(x, x, x, key_padding_mask=mask)[0].mean(1))
        return self.b(self.t(x, src_key_padding_mask=mask).mean(1))


def sequences(make, *more) -> Callable[[], Case]:
    return lambda: Case(make(), [(torch.randn(2, 5, 8), *more, torch.randint(0, 3, (2,))) for _ in range(2)])


def tied(s):
    s.c, s.d = nn.Linear(8, 16), nn.Linear(8, 16)
    s.c.weight = s.d.weight = s.a.weight
    s.unused = nn.Linear(5, 5)


def shared(s):
    s.c = nn.Linear(16, 16)
    s.d = s.c


def hooked(register) -> Callable[[], Case]:
    def make():
        module = seq(nn.ReLU())
        register(module)
        return Case(module, [batch() for _ in range(2)])

    return make


def hook_added(i, m):
    m[0].register_forward_hook(lambda m, args, y: y * 2)


def sequential(between, layers=(), steps: int = 3) -> Callable[[], Case]:
    return lambda: Case(seq(nn.BatchNorm1d(16), nn.ReLU(), *layers), [batch() for _ in range(steps)], between=between)


def frozen(i, m):
    m[0].requires_grad_(i % 2 == 1)


def toggled(i, m):
    m.train(i % 2 == 1)


def state_loaded(assign: bool):
    return lambda i, m: m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()}, assign=assign)


def laid_otherwise(i, m):
    m[0].weight.data = (m[0].weight.data * 2).t().contiguous().t()


def child_added(i, m):
    m.append(nn.Linear(3, 3))


def forward_replaced(i, m):
    m.forward = lambda x: nn.Sequential.forward(m, x) * 2


OUTSIDE = nn.Parameter(torch.ones(3))

# The twelve of the issue: name -> how to make it, and what the user reads: a part of it, or None if it trains.
TWELVE: dict[str, tuple[Callable[[], Case], str | None]] = {
    "graph break": (net(graph_break), "hostile.py:*: the values of a tensor decide what Net computes next"),
    "in place on an input": (net(changes_input), "hostile.py:*Net.mul_ changes argument 1 in place"),
    "data-dependent shape": (net(selected), "hostile.py:*: the values of a tensor decide"),
    "custom Function": (net(lambda s, x: s.b(Cube.apply(s.a(x)))), None),
    "custom Function with side effects": (net(lambda s, x: s.b(Counting.apply(s.a(x)))), "hostile.py:*sets CALLS, and"),
    "two losses": (net(lambda s, x: (plain(s, x), x), loss=lambda y, t: (y[0].sum(), y[0].mean())), "add several loss"),
    "two steps in one loss": (net(plain, loop=summed), "since another step has begun: call loss.backward() once"),
    "unused parameter": (net(lambda s, x: s.b(s.a(x) + s.c(x) + s.d(x)), tied), None),
    "shared module": (net(lambda s, x: s.b(F.relu(s.d(F.relu(s.c(s.a(x)))))), shared), None),
    "non-contiguous input": (
        lambda: Case(Net(lambda s, x: plain(s, x) * (x.t() @ s.a(x)).sum() + x.t()[1:4, :].t()),
                     [(torch.randn(9, 4)[1:].t(), torch.randint(0, 3, (4,))) for _ in range(2)]), None,
    ),
    "double backward": (net(plain, loop=graph_kept), "create_graph=True): gradients of gradients are not planned"),
    "gradient penalty": (net(penalized), None),
    "complex numbers": (
        net(lambda s, x: s.b(torch.fft.irfft(torch.fft.rfft(s.a(x)), n=16))), "hostile.py:*makes complex numbers"
    ),
    "sparse gradient": (embedded(sparse=True), "hostile.py:*makes a sparse gradient: use dense ones"),
    "module that changes between steps": (
        net(lambda s, x: s.b(s.act(s.a(x))), lambda s: setattr(s, "act", nn.ReLU()), 4, between=swap_activation), None,
    ),
}  # fmt: skip

REFUSED: dict[str, tuple[Callable[[], Case], str]] = {
    "NumPy": (net(to_numpy), "hostile.py:*: the values of a tensor decide"),
    "input reshaped in place": (net(reshapes_input), "changes the shape of argument 1 in place"),
    "saved tensor changed": (net(saved_then_changed), "hostile.py:*in place that its backward pass needs"),
    "x.data = y": (net(gives_memory), "hostile.py:*given other memory by `.data = ...`"),
    "resized by out=": (net(resized), "hostile.py:*is given memory later, by resize_ or by out="),
    "buffer that grows": (net(buffer_grows, buffer), "replaces m in forward by what has another shape"),
    "buffer that is filled": (net(buffer_filled, lambda s: s.register_buffer("m", None)), "replaces m in forward"),
    "attribute that counts": (net(counts, lambda s: setattr(s, "n", 0)), "hostile.py:*sets n, and a plan repeats"),
    "list that grows": (net(logs, lambda s: setattr(s, "log", [])), "hostile.py:*sets log, and a plan repeats"),
    "activation kept": (net(keeps_activation), "hostile.py:*sets last, and a plan repeats"),
    "Python's random": (net(lambda s, x: plain(s, x) * random.random()), "hostile.py:*draws random numbers of Python"),
    "a Random of Python's": (net(lambda s, x: plain(s, x) * s.random.random(), generator), "something else each time"),
    "a Generator of NumPy's": (net(lambda s, x: plain(s, x) * s.numpy.random(), generator), "something else each time"),
    "rand() < p": (net(lambda s, x: plain(s, x) if torch.rand([]) < 0.5 else x[:, :3]), "hostile.py:*the values of a"),
    "fork_rng": (net(forked), "hostile.py:*Net calls torch.fork_rng"),
    "manual_seed": (net(seeded), "hostile.py:*Net calls torch.manual_seed"),
    "backward twice": (net(plain, loop=twice), "been used by a backward pass already"),
    "weights in the loss, outside": (net(plain, loop=decayed), "a.weight is used outside of the planned step"),
    "weight changed before backward": (net(plain, loop=weight_changed), "b.weight has changed since the step began"),
    "input changed before backward": (net(plain, loop=input_changed), "argument 1 has changed since the step began"),
    "data swapped before backward": (net(plain, loop=data_swapped), "b.weight has changed since the step began"),
    "anomaly detection": (net(plain, loop=anomalies_sought), "set_detect_anomaly(True)"),
    "a parameter of nobody": (net(lambda s, x: plain(s, x) * OUTSIDE), "a parameter of shape (3,) that is none of Net"),
    "an input's gradient": (
        lambda: Case(Net(plain), [(batch()[0].requires_grad_(), batch()[1])]), "argument 1 requires a gradient"
    ),
    "prod's gradient": (net(plain, loss=lambda y, t: y.prod()), "hostile.py:*the formula of this gradient (ProdBack"),
    "checkpoint": (
        net(lambda s, x: s.b(torch.utils.checkpoint.checkpoint(s.a, x, use_reentrant=False))),
        "hostile.py:*uses torch.utils.checkpoint",
    ),
    "hook on a parameter": (
        hooked(lambda m: m[0].weight.register_hook(lambda g: g * 2)), "0.weight: hooks on gradients are not called"
    ),
    "hook that records": (
        hooked(lambda m: m[0].register_forward_hook(lambda m, a, y: CALLS.append(y))), "hostile.py:*sets CALLS"
    ),
    "scripted": (hooked(lambda m: m.append(torch.jit.script(nn.Linear(3, 3)))), "3 is a RecursiveScriptModule"),
    "parallel": (lambda: Case(nn.DataParallel(seq()), [batch()]), "give minidnn the module in it"),
    "on meta": (lambda: Case(seq().to("meta"), [batch()]), "some are on the device 'meta'"),
    "lazy": (lambda: Case(nn.Sequential(nn.LazyLinear(3)), [batch()]), "0.weight has no shape yet"),
    "raises": (net(lambda s, x: s.nothing(x)), "hostile.py:*Net cannot be traced: AttributeError"),
    "cumulative average": (convolution(nn.BatchNorm2d(8, momentum=None)), "(1): the values of a tensor decide"),
    "33 shapes": (
        lambda: Case(Net(lambda s, x: s.b.bias.expand(len(x), 3) + x[:, :3]), [batch(n) for n in range(1, 34)]),
        "32 plans were made for Net, and this step needs another: shapes",
    ),
}  # fmt: skip

TRAINED: dict[str, Callable[[], Case]] = {
    "views changed": net(views_changed),
    "buffer read, then changed": net(buffer_read_and_changed, buffer, 3),
    "buffer assigned": net(buffer_assigned, buffer, 3),
    "weights changed by forward": net(weight_clamped, steps=3),
    "buffers that overlap": net(overlap_changed, overlapping, 3),
    "globals that change": with_globals,
    "objects that change": net(
        lambda s, x: plain(s, x) * s.config.factor * len(s.options["list"]), config, 3, between=configure
    ),
    "random numbers of all kinds": net(many_random, generator, 3),
    "loss scaled": net(dropped, loop=scaled),
    "autograd.grad": net(dropped, loop=by_grad),
    "backward for some": net(dropped, loop=for_some),
    "gradients added up": net(dropped, loop=accumulated),
    "gradients added up to zeros": net(dropped, loop=accumulated, to_none=False),
    "gradients set to None before backward": net(dropped, loop=zeroed_before_backward, to_none=False, steps=3),
    "gradients set before backward": net(dropped, loop=gradient_set),
    "forward alone": net(dropped, loop=forward_alone),
    "NaN": net(plain, loss=lambda y, t: F.cross_entropy(y, t) * float("nan")),
    "losses with large storages": net(plain, loss=lambda y, t: F.mse_loss(y, torch.ones(4, 3)) + F.l1_loss(y, y * 2)),
    "autocast around": net(dropped, around=lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
    "bfloat16": lambda: Case(seq().bfloat16(), [(x.bfloat16(), t) for x, t in (batch(), batch())]),
    "double": lambda: Case(seq().double(), [(x.double(), t) for x, t in (batch(), batch())]),
    "short last batch": lambda: Case(Net(dropped), [batch(n) for n in (4, 4, 2, 4)]),
    "arguments that alias": lambda: Case(
        Net(lambda s, x, y, k: plain(s, x * y["w"][0]) * k),
        [((d := torch.randn(8, 8))[:4], {"w": [d[2:6]]}, 2, batch()[1]) for _ in range(2)],
    ),
    "argument that aliases a weight": lambda: Case(
        (m := Net(lambda s, x, w: plain(s, x) * w[0, 0])), [(batch()[0], m.a.weight.detach(), batch()[1])] * 2
    ),
    "running statistics": convolution(nn.BatchNorm2d(8), nn.ReLU(True), nn.Dropout2d(0.2)),
    "InstanceNorm with statistics": convolution(nn.InstanceNorm2d(8, affine=True, track_running_stats=True)),
    "SyncBatchNorm": convolution(nn.SyncBatchNorm(8)),
    "max_norm": embedded(max_norm=0.5),
    "padding_idx": embedded(padding_idx=0, scale_grad_by_freq=True),
    "LSTM": sequences(lambda: Recurrent(nn.LSTM, num_layers=2, dropout=0.3, bidirectional=True)),
    "GRU": sequences(lambda: Recurrent(nn.GRU)),
    "attention with a mask": sequences(
        lambda: Attending(nn.MultiheadAttention(8, 2, dropout=0.2, batch_first=True)),
        torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]).bool(),
    ),
    "TransformerEncoder": sequences(
        lambda: Attending(nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1))
    ),
    "spectral norm": hooked(lambda m: nn.utils.parametrizations.spectral_norm(m[0])),
    "weight norm": hooked(lambda m: nn.utils.parametrizations.weight_norm(m[0])),
    "forward hook": hooked(lambda m: m[0].register_forward_hook(lambda m, a, y: y * 2)),
    "backward hook": hooked(lambda m: m[1].register_full_backward_hook(lambda m, gx, gy: (gx[0] * 2,))),
    "hook added": sequential(hook_added),
    "forward replaced": sequential(forward_replaced),
    "frozen by turns": sequential(frozen, steps=4),
    "train and eval by turns": sequential(toggled, steps=4),
    "state loaded": sequential(state_loaded(assign=False)),
    "state assigned": sequential(state_loaded(assign=True)),
    "weights laid otherwise": sequential(laid_otherwise),
    "child added": sequential(child_added),
    "vmap": net(lambda s, x: torch.vmap(lambda q: s.b(F.relu(s.a(q))))(x)),
}
