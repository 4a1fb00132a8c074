"""BatchNorm in two passes over parts of the batch: near to the op as a whole, and to differences; in its programs all
parts of a pass come before the next one."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from minidnn.backends import open_device
from minidnn.backends.cpu import CpuDevice
from minidnn.backends.reference import KERNELS
from minidnn.costs.parts import share
from minidnn.memory.execution.device import Device
from minidnn.memory.parts import parted
from minidnn.memory.parts.kinds import BEHIND, MERGES, operands
from minidnn.memory.parts.passes import passes
from minidnn.memory.parts.regions import largest, regions
from minidnn.memory.parts.split import part_of
from minidnn.memory.parts.whole import as_whole
from minidnn.memory.policies.shared.recompute import Repeatable
from minidnn.memory.proof.parts import wrong_parts
from minidnn.program import Algorithm, Op, Pass, Program, SplitRegion, Tensor
from minidnn.programs.build import programs
from minidnn.programs.fusion import as_cuda, kinds
from minidnn.zoo import load
from tests.support.differences import check_differences
from tests.support.op_examples import Example, Maker, attrs, compiled, expected, run
from tests.support.paths import NET_FILES

EPS = 1e-5
MOMENTS, BACKWARD = "batch_norm.moments", [f"batch_norm.backward{behind}" for behind in BEHIND]


def forms(m: Maker) -> Iterator[Example]:
    """Each kind that runs in two passes, and moments, of 6 rows; x is far from 0."""
    for shape in ((6, 5, 4, 7), (6, 40), (6, 3, 2)):
        c, rows = shape[1], tuple(i for i in range(len(shape)) if i != 1)
        x, dy, gamma, beta = m.normal(*shape) + 3, m.normal(*shape), m.normal(c), m.normal(c)
        a = attrs(eps=EPS, fraction=0.9, count=x.size // c)
        yield m.example("batch_norm.forward", [x], [shape, (c,), (c,)], a)
        yield m.example(MOMENTS, [x], [(c,), (c,)], a)
        for kind in BACKWARD:
            scale, gradients = ([gamma, beta], [(c,), (c,)]) if kind != BACKWARD[0] else ([], [])
            reads = [x, x.mean(rows), x.var(rows), *scale, dy]
            yield m.example(kind, reads, [shape, *gradients], a)


def by_rows(device: Device, op: Op, rows: int) -> Algorithm:
    """The algorithm that runs the op so many rows at a time."""
    chosen = {
        one: device.algorithms(one)[0]
        for half in passes(op) or (op,)
        for one in [part_of(half, (0, rows), op if passes(op) else None)]
    }
    return as_whole(chosen)[op]


def devices() -> list[Device]:
    return [open_device("reference"), compiled()]


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
def test_near_to_the_op_as_a_whole(device):
    seen = set()
    for e in forms(Maker(1)):
        seen.add(e.op.kind)
        for rows in (1, 2, 3):
            algorithm = by_rows(device, e.op, rows)
            for t, got, want in zip(e.op.writes, run(device, e, algorithm), expected(KERNELS, e), strict=True):
                np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5, err_msg=f"{e.name} by {algorithm}: {t}")
    assert seen == {"batch_norm.forward", MOMENTS, *BACKWARD}


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
def test_gradients_are_differences(device, behind):
    """Of the sum of dy y in float64, by central differences: no kernel is asked for what is wanted."""
    m = Maker(2)
    x, dy, gamma, beta = m.normal(6, 3, 2, 2) * 2 + 1, m.normal(6, 3, 2, 2), m.normal(3), m.normal(3)
    if not behind:
        gamma, beta = np.ones_like(gamma), np.zeros_like(beta)
    a = attrs(eps=EPS, fraction=0.9, count=24)
    e = m.example(MOMENTS, [x], [(3,), (3,)], a)
    mean, variance = run(device, e, by_rows(device, e.op, 2))
    scale, gradients = ([gamma, beta], [(3,), (3,)]) if behind else ([], [])
    reads = [x, mean, variance, *scale, dy]
    e = m.example(f"batch_norm.backward{behind}", reads, [x.shape, *gradients], a)
    got = run(device, e, by_rows(device, e.op, 2))

    def objective(values: list[np.ndarray]) -> float:
        x, gamma, beta = values
        u = (x - x.mean((0, 2, 3), keepdims=True)) / np.sqrt(x.var((0, 2, 3), keepdims=True) + EPS)
        y = u * gamma.reshape(1, 3, 1, 1) + beta.reshape(1, 3, 1, 1)
        return float((dy * (np.maximum(y, 0) if behind.endswith("relu") else y)).sum())

    check_differences(objective, (x, gamma, beta), [*got, None, None][:3])


@pytest.mark.parametrize("parts", [2, 6])
def test_moments_are_near_to_float64_however_far_from_zero(parts):
    """As near as means of parts can be that are rounded to float32."""
    m = Maker(3)
    for device in devices():
        for offset, spread in ((0, 0), (1e3, 0), (-3e4, 0), (0, 50)):  # spread: between the means of parts
            x = m.normal(6, 11, 20, 20) + np.float32(offset)
            x += np.float32(spread) * m.normal(6, 1, 1, 1)
            e = m.example(MOMENTS, [x], [(11,), (11,)], attrs(eps=EPS))
            mean, variance = run(device, e, by_rows(device, e.op, 6 // parts))
            exact = x.astype(np.float64)
            off = 2 * np.spacing(np.float32(np.abs(exact).max()))
            assert np.abs(mean - exact.mean((0, 2, 3))).max() <= off
            apart = np.abs(exact.mean((2, 3)) - exact.mean((0, 2, 3))).max()
            near = 2e-6 * exact.var((0, 2, 3)) + 2 * apart * off + off**2
            assert (np.abs(variance - exact.var((0, 2, 3))) <= near).all(), (device.name, offset, spread)


def test_same_bits_for_any_number_of_threads():
    m = Maker(4)
    for shape in [(2, 64, 28, 28), (5000, 17)]:
        c = shape[1]
        x, dy, channels = m.normal(*shape), m.normal(*shape), [m.normal(c) ** 2 + 1 for _ in range(6)]
        a = attrs(eps=EPS, count=2 * x.size // c)
        for e in (
            m.example("batch_norm.normalize", [x, *channels[:2]], [shape], a),
            m.example("batch_norm.backward_sums_scale_relu", [x, dy, *channels[:4]], [(c,), (c,)], a),
            m.example("batch_norm.backward_data_scale_relu", [x, dy, *channels], [shape], a),
        ):
            want = [t.tobytes() for t in run(compiled(), e, compiled().algorithms(e.op)[0])]
            for threads in (2, 3, 5):
                device = CpuDevice(threads=threads)
                assert [t.tobytes() for t in run(device, e, device.algorithms(e.op)[0])] == want, (e.name, threads)


# ---- programs


def residual(fuses=as_cuda) -> Program:
    return programs(load(NET_FILES / "residual.yaml"), None, ("TRAIN",), fuses=fuses)["TRAIN"]


def first(program: Program, kind: str) -> Op:
    return next(op for op in program.ops if op.kind == kind)


def test_all_parts_of_a_pass_come_before_the_next_one():
    whole = residual()
    moments, backward = first(whole, MOMENTS), first(whole, "batch_norm.backward_scale_relu")
    sums, data = passes(backward)
    made = parted(whole, [SplitRegion((name,), 3) for name in (moments.name, sums.name, data.name)])
    names = [op.name for op in made.ops]
    spans = [f"[{i}:{i + 2}]" for i in (0, 2, 4)]
    merge = names.index(f"{moments.name}.merge")
    assert names[merge - 1] == f"{moments.name}[0:2]"
    assert [t.name for t in made.ops[merge].reads] == [f"{t.name}{span}" for span in spans for t in moments.writes]
    assert made.ops[merge].writes == moments.writes
    first_sum, first_data = names.index(f"{sums.name}{spans[0]}"), names.index(f"{data.name}{spans[0]}")
    assert [name for name in names[first_sum:first_data] if name.startswith(sums.name)] == [
        *(f"{sums.name}{span}" for span in spans), f"{sums.name}.merge",
    ]  # fmt: skip
    assert [names.index(f"{data.name}{span}") for span in spans] == list(range(first_data, first_data + 3))
    assert backward.name not in names and made.ops[first_data].part.origin is backward


def test_the_passes_read_and_write_what_the_op_does():
    for e in forms(Maker(5)):
        if e.op.kind == MOMENTS:
            continue
        one, two = passes(e.op)
        assert {*one.reads, *two.reads} >= {*e.op.reads} and {*one.writes, *two.writes} >= {*e.op.writes}
        assert {*one.writes, *two.writes} - {*e.op.writes} <= {*two.reads}
        assert one.flops + two.flops == e.op.flops and all(operands(p) for p in (one, two))


@pytest.mark.parametrize("behind", BEHIND)
def test_a_batch_norm_with_maps_of_caffe_s_besides_runs_as_a_whole(behind):
    x, c = Tensor("x", (4, 3, 2, 2)), Tensor("c", (3,))
    more = Tensor("copied", x.shape)
    op = Op("one", f"batch_norm.backward{behind}", "one", Pass.BACKWARD, (x, c, c, x), (x, more))
    assert passes(op) == ()


@pytest.mark.parametrize("fuses", [as_cuda, None], ids=["fused", "not fused"])
def test_programs_in_parts_at_random_compute_what_the_whole_one_does(fuses):
    whole, random, twice = residual(fuses), Random(7), 0
    for _ in range(25):
        found = regions(whole, int(largest(whole) / random.uniform(1, 40)), random.choice((None, 2, 3, 6)))
        made = parted(whole, found)
        assert wrong_parts(whole, made, {}) is None, found
        twice += any(op.part is not None and op.part.within is not None for op in made.ops)
    assert twice > 15


@pytest.mark.parametrize(
    ("made_of", "why"),
    [
        (lambda a, b: [SplitRegion((a,), 3)], "are not in as many"),
        (lambda a, b: [SplitRegion((a,), 3), SplitRegion((b,), 2)], "are not in as many"),
        (lambda a, b: [SplitRegion((a, b), 3)], "needs all rows of them"),
    ],
)
def test_passes_that_cannot_run_in_parts_are_refused(made_of, why):
    whole = residual()
    one, two = passes(first(whole, "batch_norm.backward_scale"))
    with pytest.raises(ValueError, match=why):
        parted(whole, made_of(one.name, two.name))


def test_merged_moments_are_not_made_again():
    """They are small beside the maps that they come of: each policy keeps them from forward to backward."""
    whole = residual()
    moments = [op for op in whole.ops if op.kind == MOMENTS]
    made = parted(whole, [SplitRegion((op.name,), 3) for op in moments])
    dropped = Repeatable(made, {}).droppable()
    merged = {t for op in made.ops if op.kind == MERGES[MOMENTS] for t in (*op.reads, *op.writes)}
    assert merged and dropped and not dropped & merged


def test_both_passes_take_the_seconds_of_the_op():
    """A cost that was measured of the op is shared out by the bytes that each pass reads and writes."""
    for e in forms(Maker(6)):
        ones = passes(e.op)
        parts = [part_of(one, (i, i + 2), e.op) for one in ones for i in (0, 2, 4)]
        if parts and e.op.reads[0].size > 500:
            assert 5.9 < sum(share(one, 6.0, 0.0) for one in parts) < 7.5, e.name


def test_a_snapshot_names_the_fused_ops_of_a_program_in_parts_as_those_of_the_whole():
    program = residual(as_cuda)
    made = parted(program, regions(program, largest(program) // 20, 2))
    assert "batch_norm.backward_scale_relu" in kinds(program) and kinds(made) == kinds(program)
    assert not {op.kind for op in made.ops} >= set(kinds(program))
