"""An optimizer is one place: what it reads of a solver file, its state, its op. One made here trains, is saved and
resumed, and is planned like the package's own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import minidnn
from minidnn.backends.reference import KERNELS
from minidnn.errors import BadInput
from minidnn.optimizers import OPTIMIZERS, SGD, Optimizer
from minidnn.optimizers.base import Site, state_tensor
from minidnn.program import Pass, Tensor
from minidnn.programs.scalars import ITERATION, OBJECTIVE, RATE

W, DW = Tensor("ip.w", (3, 4)), Tensor("ip.w.grad", (3, 4))


def site(clip: Tensor | None = None) -> Site:
    return Site("ip", "w", W, DW, RATE, ITERATION, OBJECTIVE, clip, 2.0, 0.5, 0.25, 2)


def test_sgd():
    op = SGD(0.9, 0.02, "L1").update(site())
    assert op.name == "ip.update_w" and op.kind == "sgd.update" and op.during is Pass.UPDATE
    assert [t.name for t in op.reads] == ["ip.w", "ip.w.grad", "rate", "objective", "ip.w.momentum"]
    assert [t.name for t in op.writes] == ["ip.w", "ip.w.momentum"]
    a = op.attrs
    assert (a.momentum, a.decay, a.regularization, a.lr_mult, a.scale, a.clipped) == (0.9, 0.01, "L1", 2.0, 0.25, False)
    clipped = SGD().update(site(Tensor("clip", (1,))))
    assert [t.name for t in clipped.reads] == ["ip.w", "ip.w.grad", "rate", "objective", "clip"]
    assert [t.name for t in clipped.writes] == ["ip.w"] and clipped.attrs.clipped


# ---- one of a user's own: AdaGrad, written anew


@dataclass(frozen=True)
class OwnAttrs:
    delta: float
    lr_mult: float
    scale: float


@dataclass(frozen=True)
class OwnGrad(Optimizer):
    delta: float

    fields = ("delta",)

    @classmethod
    def of(cls, solver):
        return cls(solver.delta)

    @classmethod
    def problems(cls, solver):
        if solver.clip_gradients >= 0:
            yield "clip_gradients", "this optimizer does not clip"

    def state(self, w):
        return (state_tensor(w, "history"),)

    def update(self, s):
        return s.op("own_grad.update", OwnAttrs(self.delta, s.lr_mult, s.scale), self.state(s.w), flops=6 * s.w.size)


def own_grad(a, reads, writes):
    w, dw, rate, objective, history = reads
    if np.isfinite(objective[0]):
        g = dw * a.scale
        np.add(history, g * g, out=writes[1])
        np.subtract(w, rate[0] * a.lr_mult * g / (np.sqrt(writes[1]) + a.delta), out=writes[0])


@pytest.fixture
def own(monkeypatch):
    monkeypatch.setitem(OPTIMIZERS, "OwnGrad", OwnGrad)
    monkeypatch.setitem(KERNELS, "own_grad.update", own_grad)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_a_users_own_trains_is_saved_and_goes_on(own, device, tmp_path):
    options = dict(type="OwnGrad", delta=1e-6, base_lr=0.01, lr_policy="fixed", device=device, seed=3, batch=32)
    with minidnn.Solver(minidnn.load("digits_lenet"), snapshot_prefix=str(tmp_path / "run"), **options) as solver:
        first = solver.step(1).loss
        persistent = {t.name for t in solver.session.programs["TRAIN"].persistent}
        assert "ip2.w.history" in persistent and not any(name.endswith("momentum") for name in persistent)
        solver.step(9)
        path = solver.save().path
        assert solver.step(30).smoothed < first
        ends = {name: value.tobytes() for name, value in solver.values().items()}
    with minidnn.Solver(minidnn.load("digits_lenet"), resume=path, policy="vdnn_all:m", **options) as solver:
        same = {op.name: a.name for op, a in solver.arrangement.schedules["TRAIN"].plan.algorithm.items()}
        solver.step(30)
        if device == "reference":  # elsewhere another policy may take other algorithms
            assert {name: value.tobytes() for name, value in solver.values().items()} == ends
        assert same["ip2.update_w"] in ("default", "reference")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (dict(momentum=0.9), "momentum: is not for type OwnGrad; it reads delta"),
        (dict(clip_gradients=1.0), "clip_gradients: this optimizer does not clip"),
        (dict(type="OwnGrd"), r"there is no optimizer 'OwnGrd' \(did you mean 'OwnGrad'\?\); there are SGD, Nesterov"),
    ],
)
def test_what_it_does_not_take_is_refused_by_name(own, fields, said):
    options = {"type": "OwnGrad", "base_lr": 0.01, "max_iter": 1, **fields}
    with pytest.raises(BadInput, match=said):
        minidnn.Solver(minidnn.load("digits_lenet"), device="reference", **options)
