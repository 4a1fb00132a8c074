"""Small ops that become one: which, in what order, what waits for them, and that no bit changes."""

from __future__ import annotations

import numpy as np
import pytest

import minidnn
from minidnn.backends.reference import KERNELS, ReferenceDevice
from minidnn.costs import geometry, profile
from minidnn.memory.planning import arrange
from minidnn.nets.net import Net
from minidnn.optimizers import SGD
from minidnn.program import MULTI_TENSOR, Op, Pass, Program, Role, Tensor
from minidnn.programs.build import programs
from minidnn.programs.fusion import fused, multi_tensor
from minidnn.programs.spec import TrainSpec
from minidnn.training.divergence import Diverged
from minidnn.zoo import find, load
from tests.support.paths import NET_FILES, SMALL_NETS
from tests.support.policies import KINDS
from tests.support.slow import usual_are

SPEC = TrainSpec(SGD(momentum=0.9, weight_decay=5e-4))
NETS = [*SMALL_NETS, "lenet", "resnet18"]


def several(op: Op) -> bool:
    return op.kind.endswith(MULTI_TENSOR)


def loaded(name: str) -> Net:
    return load(NET_FILES / f"{name}.yaml") if name in (*SMALL_NETS, "lenet") else Net.from_file(find(name, 8), 8)


def apart(name: str, format: str = "float32", **spec) -> Program:
    return programs(loaded(name), TrainSpec(SGD(momentum=0.9), **spec), ("TRAIN",), format=format)["TRAIN"]


@pytest.mark.parametrize("format", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", NETS)
def test_each_op_is_still_done_once_and_at_most_a_hundredth_of_the_memory_waits(name, format):
    before = apart(name, format)
    after = fused(before, several)
    done = [one for op in after.ops for one in op.members]
    assert {op.name: (op.kind, op.layer, op.attrs, op.reads, op.writes) for op in before.ops} == {
        op.name: (op.kind, op.layer, op.attrs, op.reads, op.writes) for op in done
    }
    assert len(done) == len(before.ops) > len(after.ops)
    peaks = [arrange([p], "liveness:m", profile("titan_x")).schedules["TRAIN"].live_peak for p in (before, after)]
    waiting = sum(op.kind.endswith(MULTI_TENSOR) for op in after.ops) * 2 * 256 * 100  # alignment of what waits
    assert peaks[1] <= peaks[0] * (1 + 2 * multi_tensor.WAITING) + waiting


def test_real_nets_have_few():
    for name, format, updates, casts in (("resnet18", "float32", 12, 0), ("resnet18", "bfloat16", 12, 12)):
        ops = fused(apart(name, format), several).ops
        assert sum(op.during is Pass.UPDATE for op in ops) <= updates
        assert sum(op.kind.startswith(multi_tensor.CASTS) and op.reads[0].role is Role.PARAM for op in ops) <= casts
        assert sum(op.kind.startswith(multi_tensor.STATISTICS) for op in ops) == 1


# ---- groups, in programs by hand

RATE = Tensor("rate", (1,), role=Role.CONTROL)


def step(*sizes: int, between: bool = True, more: tuple[Op, ...] = ()) -> Program:
    """Gradients of these sizes, each with its update; with `between`, each update stands behind its gradient."""
    grads, updates, weights = [], [], []
    for k, n in enumerate(sizes):
        w, dw = Tensor(f"w{k}", (n,), role=Role.PARAM), Tensor(f"dw{k}", (n,), role=Role.PARAM_GRADIENT)
        weights.append(w)
        grads.append(Op(f"g{k}", "grad", f"l{k}", Pass.BACKWARD, (RATE,), (dw,)))
        updates.append(Op(f"u{k}", "my.update", f"l{k}", Pass.UPDATE, (w, dw, RATE), (w,)))
    ops = [op for pair in zip(grads, updates, strict=True) for op in pair] if between else [*grads, *updates]
    return Program("TRAIN", (*ops, *more), (RATE,), tuple(weights))


def grouped(p: Program) -> list[list[str]]:
    return [[one.name for one in op.members] for op in fused(p, several).ops if op.during is Pass.UPDATE]


def test_a_large_gradient_waits_for_no_other(monkeypatch):
    # of 4 * 1123 bytes for weights, and as many as the largest gradient
    monkeypatch.setattr(multi_tensor, "WAITING", 0.1)
    assert grouped(step(10, 5, 1000, 3, 100, 5)) == [["u0", "u1", "u2"], ["u3", "u4", "u5"]]
    assert grouped(step(10, 1000, 1000, 1000)) == [["u0", "u1"], ["u2"], ["u3"]]
    assert grouped(step(1000)) == [["u0"]]


def test_where_nothing_lies_between_nothing_waits():
    assert grouped(step(1000, 1000, 1000, between=False)) == [["u0", "u1", "u2"]]


def test_the_last_of_a_group_has_its_place_and_its_layer(monkeypatch):
    monkeypatch.setattr(multi_tensor, "WAITING", 100)
    (op,) = (op for op in fused(step(1, 1, 50), several).ops if op.during is Pass.UPDATE)
    assert (op.name, op.kind, op.layer) == ("u2+2", "my.update_multi_tensor", "l2")
    assert [t.name for t in op.reads] == ["w0", "dw0", "rate", "w1", "dw1", "w2", "dw2"]
    assert [one.layer for one in op.members] == ["l0", "l1", "l2"]
    assert "u0" not in geometry(op) and "l0" not in geometry(op), "costs do not depend on names"


def test_an_update_stays_before_what_reads_or_writes_its_tensors(monkeypatch):
    monkeypatch.setattr(multi_tensor, "WAITING", 100)
    p = step(5, 5, 5)
    w0, dw0 = p.ops[1].reads[:2]
    y = Tensor("y", (5,))
    for op in (
        Op("reader", "reads", "l", Pass.BACKWARD, (w0,), (y,)),
        Op("writer", "writes", "l", Pass.BACKWARD, (RATE,), (w0,)),
        Op("clear", "clears", "l", Pass.BACKWARD, (), (dw0,)),
        Op("again", "my.update", "l", Pass.UPDATE, (w0, dw0, RATE), (w0,)),
    ):
        found = grouped(Program("TRAIN", (*p.ops[:2], op, *p.ops[2:]), p.inputs, p.persistent))
        assert found[0] == ["u0"] and found[-1][-2:] == ["u1", "u2"], op


def test_a_device_without_the_kind_has_them_apart():
    assert [op.name for op in fused(step(1, 1), lambda op: False).ops] == ["g0", "u0", "g1", "u1"]


# ---- trained


def trained(name: str, policy: str, joins: bool, monkeypatch, format: str = "float32", **options) -> dict[str, bytes]:
    """The values after three steps; `joins`: small ops become one. All else is fused as the reference can."""
    monkeypatch.setattr(ReferenceDevice, "fuses", lambda self, op: op.kind in KERNELS and (joins or not several(op)))
    random = np.random.default_rng(7)
    data = random.standard_normal((24, 3, 12, 12)).astype(np.float32), random.integers(0, 5, 24).astype(np.int32)
    p = dict(base_lr=0.02, momentum=0.9, weight_decay=5e-4, lr_policy="fixed", max_iter=9, seed=3, debug=True)
    with minidnn.Solver(
        loaded(name), policy=policy, device="reference", data=data, format=format, **p, **options
    ) as solver:
        assert any(several(op) for op in solver.session.programs["TRAIN"].ops) == joins
        for _ in range(3):
            solver.step()
        return {name: array.tobytes() for name, array in solver.values().items()}


@pytest.mark.parametrize("policy", usual_are(["vdnn_all:m"], KINDS))
@pytest.mark.parametrize(("name", "format"), [("residual", "bfloat16"), ("nested", "float32")])
def test_the_same_bytes_under_every_policy_whatever_waits(name, format, policy, monkeypatch):
    want = trained(name, "baseline:m", False, monkeypatch, format)
    for part in (multi_tensor.WAITING, 100):  # as it is; all updates, all casts and all statistics in one op each
        monkeypatch.setattr(multi_tensor, "WAITING", part)
        assert trained(name, policy, True, monkeypatch, format) == want


@pytest.mark.slow
@pytest.mark.parametrize("clip", [-1.0, 0.1])
@pytest.mark.parametrize("iter_size", [1, 2])
def test_the_same_bytes_with_clipping_and_accumulation(clip, iter_size, monkeypatch):
    options = dict(clip_gradients=clip, iter_size=iter_size)
    monkeypatch.setattr(multi_tensor, "WAITING", 100)
    for policy in ("liveness:m", "vdnn_all:m"):
        want = trained("residual", policy, False, monkeypatch, **options)
        assert trained("residual", policy, True, monkeypatch, **options) == want


def test_with_clipping_all_updates_are_one_op():
    ops = fused(apart("resnet18", clip_gradients=1.0), several).ops
    assert len([op for op in ops if op.kind.startswith("sgd.update")]) == 1


def test_a_value_that_is_not_finite_is_blamed_on_the_layer_that_owns_it(monkeypatch):
    """A weight beyond float16's largest number: its copy is infinite, and many copies are made by one op."""
    monkeypatch.setattr(multi_tensor, "WAITING", 100)
    random = np.random.default_rng(7)
    data = random.standard_normal((8, 3, 12, 12)).astype(np.float32), random.integers(0, 5, 8).astype(np.int32)
    p = dict(base_lr=0.02, momentum=0.9, lr_policy="fixed", max_iter=9, seed=3, data=data, device="reference")
    with minidnn.Solver(loaded("chain"), policy="liveness:m", format="float16", **p) as solver:
        ops = [op for op in solver.session.programs["TRAIN"].ops if op.kind == "cast.forward_multi_tensor"]
        casts = [one for op in ops for one in op.members]
        last = casts[-2]
        assert last.layer != casts[0].layer
        solver.session.machine.set(last.reads[0], np.full(last.reads[0].shape, 1e6, np.float32))
        with pytest.raises(Diverged, match=f"layer {last.layer} is the first .*{last.name} wrote it"):
            solver.step()
