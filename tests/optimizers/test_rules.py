"""Optimizers other than SGD: beside PyTorch's or the formula in float64 over 100 steps; resumed exactly; planned."""

from __future__ import annotations

import numpy as np
import pytest

import minidnn
from minidnn.backends import open_device
from minidnn.errors import BadInput
from minidnn.optimizers import OPTIMIZERS
from minidnn.optimizers.base import Site
from minidnn.program import Tensor
from minidnn.programs.scalars import ITERATION, OBJECTIVE, RATE
from tests.support.op_examples import Example, run

OTHERS = [name for name in OPTIMIZERS if name != "SGD"]
FIELDS = {  # the solver's fields of each type
    "Nesterov": dict(momentum=0.9),
    "AdaGrad": dict(delta=1e-6),
    "RMSProp": dict(rms_decay=0.98, delta=1e-6),
    "AdaDelta": dict(momentum=0.95, delta=1e-6),
    "Adam": dict(momentum=0.9, momentum2=0.99, delta=1e-8),
    "AdamW": dict(momentum=0.9, momentum2=0.99, delta=1e-8),
    "LARS": dict(momentum=0.9, trust_coefficient=0.01),
    "LAMB": dict(momentum=0.9, momentum2=0.99, delta=1e-6),
}
RATES = {"AdaDelta": 1.0, "LARS": 0.5}


def solver(name, **more):
    from minidnn.schema import SolverParameter

    given = dict(base_lr=RATES.get(name, 0.01), lr_policy="fixed", type=name, weight_decay=0.01, **FIELDS[name], **more)
    return SolverParameter.model_validate(given)


def trained(name: str, device, steps: int = 100, shape=(6, 5)) -> tuple[np.ndarray, list[np.ndarray]]:
    """(the weight after so many steps on gradients at random, the gradients)."""
    random = np.random.default_rng(0)
    rule = OPTIMIZERS[name].of(solver(name))
    w, dw = Tensor("ip.w", shape), Tensor("ip.w.grad", shape)
    site = Site("ip", "w", w, dw, RATE, ITERATION, OBJECTIVE, None, 1.0, 1.0, 1.0, len(shape))
    held = {w: random.standard_normal(shape).astype(np.float32)}
    held |= {t: np.zeros(t.shape, np.float32) for t in rule.state(w)}
    held |= {RATE: np.float32([RATES.get(name, 0.01)]), OBJECTIVE: np.float32([1])}
    gradients = []
    for step in range(steps):
        held[dw] = random.standard_normal(shape).astype(np.float32)
        held[ITERATION] = np.array([step])
        gradients.append(held[dw])
        for op in filter(None, (rule.squares(site), *rule.before(site), rule.update(site))):
            example = Example(op.name, op, {t: held[t] for t in op.reads})
            (algorithm, *_) = device.algorithms(op)
            held |= dict(zip(op.writes, run(device, example, algorithm), strict=True))
    return held[w], gradients


def formula(name: str, w, gradients):
    """Caffe's, the paper's or PyTorch's formula in float64, one line a rule."""
    f, r, decay = FIELDS[name], RATES.get(name, 0.01), 0.01
    m, m2, delta = f.get("momentum", 0), f.get("momentum2", 0), f.get("delta", 0)
    h = k = np.zeros_like(w)
    for t, dw in enumerate(gradients, 1):
        g = dw + (decay * w if name not in ("AdamW", "LAMB") else 0)
        if name == "Nesterov":
            h, before = m * h + r * g, h
            w = w - ((1 + m) * h - m * before)
        elif name == "AdaGrad":
            h = h + g**2
            w = w - r * g / (h**0.5 + delta)
        elif name == "RMSProp":
            h = f["rms_decay"] * h + (1 - f["rms_decay"]) * g**2
            w = w - r * g / (h**0.5 + delta)
        elif name == "AdaDelta":
            h = m * h + (1 - m) * g**2
            u = g * ((k + delta) / (h + delta)) ** 0.5
            k, w = m * k + (1 - m) * u**2, w - r * u
        elif name == "LARS":
            norm = np.linalg.norm
            ratio = f["trust_coefficient"] * norm(w) / (norm(dw) + decay * norm(w))
            h = m * h + r * ratio * g
            w = w - h
        else:
            h, k = m * h + (1 - m) * g, m2 * k + (1 - m2) * g**2
            if name == "Adam":
                w = w - r * (1 - m2**t) ** 0.5 / (1 - m**t) * h / (k**0.5 + delta)
                continue
            u = h / (1 - m**t) / ((k / (1 - m2**t)) ** 0.5 + delta)
            if name == "AdamW":
                w = w * (1 - r * decay) - r * u
            else:
                u = u + decay * w
                w = w - r * np.linalg.norm(w) / np.linalg.norm(u) * u
    return w


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("name", OTHERS)
def test_a_hundred_steps_of_the_formula(name, device, record_property):
    found, gradients = trained(name, open_device(device))
    start = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32).astype(np.float64)
    difference = np.abs(found - formula(name, start, [g.astype(np.float64) for g in gradients])).max()
    record_property("said", f"{name} on {device}: {difference:.1e} from the formula after 100 steps")
    print(f"{name:9s} {device:9s} largest difference after 100 steps {difference:.1e}")
    assert difference < 5e-6


@pytest.mark.peer("torch")
@pytest.mark.parametrize("name", ["Nesterov", "AdaGrad", "RMSProp", "AdamW"])
def test_a_hundred_steps_of_pytorch(name):
    """Those whose formula is PyTorch's at a constant rate."""
    import torch

    f, w = FIELDS[name], np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
    found, gradients = trained(name, open_device("cpu"))
    p = torch.nn.Parameter(torch.tensor(w, dtype=torch.float64))
    theirs = {
        "Nesterov": lambda: torch.optim.SGD([p], 0.01, momentum=f["momentum"], nesterov=True, weight_decay=0.01),
        "AdaGrad": lambda: torch.optim.Adagrad([p], 0.01, eps=f["delta"], weight_decay=0.01),
        "RMSProp": lambda: torch.optim.RMSprop([p], 0.01, alpha=f["rms_decay"], eps=f["delta"], weight_decay=0.01),
        "AdamW": lambda: torch.optim.AdamW(
            [p], 0.01, betas=(f["momentum"], f["momentum2"]), eps=f["delta"], weight_decay=0.01
        ),
    }[name]()
    for g in gradients:
        p.grad = torch.tensor(g, dtype=torch.float64)
        theirs.step()
    difference = float(np.abs(found - p.detach().numpy()).max())
    print(f"{name:9s} PyTorch   largest difference after 100 steps {difference:.1e}")
    assert difference < 5e-6


@pytest.mark.parametrize("name", OTHERS)
def test_a_run_goes_on_with_the_same_bytes(name, tmp_path):
    """Stopped after 3 of 6 iterations of two micro-batches each; with clipping for some."""
    options = dict(
        base_lr=RATES.get(name, 0.01), lr_policy="fixed", type=name, weight_decay=0.001, iter_size=2, **FIELDS[name]
    )
    options |= dict(device="cpu", seed=3, batch=8) | (dict(clip_gradients=1.0) if name in ("Adam", "LAMB") else {})
    net = minidnn.load("digits_lenet")
    with minidnn.Solver(net, snapshot_prefix=str(tmp_path / "run"), **options) as first:
        first.step(3)
        path = first.save().path
        first.step(3)
        ends = {n: v.tobytes() for n, v in first.values().items()}
        history = [f"conv1_1.w.{h}" for h in OPTIMIZERS[name].history]
        persistent = {t.name for t in first.session.programs["TRAIN"].persistent}
        assert persistent.issuperset(history)
    with minidnn.Solver(net, resume=path, **options) as again:
        again.step(3)
        assert {n: v.tobytes() for n, v in again.values().items()} == ends


def test_adam_under_other_policies_ends_with_the_same_bytes():
    options = dict(base_lr=0.01, lr_policy="fixed", type="Adam", **FIELDS["Adam"], device="reference", seed=3, batch=32)
    net = minidnn.load("digits_lenet")
    with minidnn.Solver(net, policy="liveness:m", **options) as plain:
        whole = plain.arrangement.arena
        plain.step(2)
        ends = {n: v.tobytes() for n, v in plain.values().items()}
    for how in (dict(policy="vdnn_all:m"), dict(policy="best", budget=int(0.8 * whole))):
        with minidnn.Solver(net, **how, **options) as other:
            assert other.arrangement.arena < whole
            other.step(2)
            assert {n: v.tobytes() for n, v in other.values().items()} == ends


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (dict(type="AdamW"), "AdamW needs momentum, its beta1, such as 0.9; it is not given"),
        (dict(type="Adam", momentum=1.0), "momentum: expected less than 1 for type Adam, got 1"),
        (dict(type="RMSProp", momentum=0.9), "momentum: is not for type RMSProp; it reads rms_decay and delta"),
        (dict(type="LARS", regularization_type="L1"), "expected L2 for type LARS"),
        (dict(type="LAMB", momentum=0.9, regularization_type="L1"), "expected L2 for type LAMB"),
        (dict(type="Adm"), r"there is no optimizer 'Adm' \(did you mean 'Adam'\?\)"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(fields, said):
    with pytest.raises(BadInput, match=said):
        minidnn.Solver(minidnn.load("digits_lenet"), device="reference", base_lr=0.01, max_iter=1, **fields)
