"""How a program looks whose ops run in parts, and what cannot."""

from __future__ import annotations

import pytest

from minidnn.memory.parts import parted
from minidnn.memory.parts.kinds import operands
from minidnn.memory.parts.regions import largest, regions
from minidnn.program import Op, Pass, Program, Role, Rows, SplitRegion, Tensor
from minidnn.programs.build import programs
from minidnn.programs.fusion import as_cuda
from minidnn.zoo import load

FIRST = ("conv1_1+relu1_1.forward", "conv1_2+relu1_2.forward", "pool1.forward")


def vgg(batch: int = 8, phase: str = "TRAIN") -> Program:
    return programs(load("vgg19").with_batch(batch), None, (phase,), fuses=as_cuda)[phase]


def named(program: Program, name: str) -> Op:
    return next(op for op in program.ops if op.name == name)


def test_a_region_runs_part_by_part_over_tensors_of_some_rows():
    program = parted(vgg(), (SplitRegion(FIRST, 4),))
    forward = [op.name for op in program.ops[:18]]
    assert forward[:5] == [
        "data[6:8].slice", "conv1_1+relu1_1.forward[6:8]", "conv1_2+relu1_2.forward[6:8]", "pool1.forward[6:8]",
        "data[4:6].slice",
    ]  # fmt: skip
    last = named(program, "conv1_2+relu1_2.forward[2:4]")
    assert [repr(t) for t in last.reads[:1]] == ["relu1_1.y[2:4][2, 64, 224, 224]"]
    assert last.part.of.name == FIRST[1] and (last.part.first, last.part.last) == (2, 4)
    assert last.kind == "convolution.forward_relu" and last.flops * 4 == last.part.of.flops
    assert {t for op in program.ops for t in op.writes} >= {
        t for op in vgg().ops for t in op.writes if t.role is Role.PARAM_GRADIENT
    }


def test_what_reads_all_rows_gets_them_by_a_join():
    program = parted(vgg(), (SplitRegion(FIRST, 4),))
    join = named(program, "pool1.y.concat")
    assert join.kind == "concat.forward" and join.attrs == Rows((0, 2, 4, 6))
    assert [t.name for t in join.reads] == [f"pool1.y[{i}:{i + 2}]" for i in (0, 2, 4, 6)]
    assert named(program, "conv2_1+relu2_1.forward").reads[0] == join.writes[0]


def test_a_gradient_is_added_up_in_the_order_of_the_rows():
    program = parted(vgg(), (SplitRegion(("conv5_4.backward_filter",), 4),))
    adds = [op for op in program.ops if "add_conv5_4.w.grad" in op.name]
    assert [[t.name for t in (*op.reads, *op.writes)] for op in adds] == [
        ["conv5_4.w.grad[0:2]", "conv5_4.w.grad[2:4]", "conv5_4.w.grad[0:4]"],
        ["conv5_4.w.grad[0:4]", "conv5_4.w.grad[4:6]", "conv5_4.w.grad[0:6]"],
        ["conv5_4.w.grad[0:6]", "conv5_4.w.grad[6:8]", "conv5_4.w.grad"],
    ]


def test_regions_leave_no_large_tensor_of_an_op_that_may_run_in_parts():
    program = vgg()
    most = largest(program) // 8
    made = parted(program, regions(program, most))
    able = [(op, operands(op)) for op in made.ops if not isinstance(op.attrs, Rows)]
    assert [op for op, found in able if found is not None and found.largest > most] == []


def test_equal_parts_need_no_join_between_them():
    program = vgg()
    made = parted(program, regions(program, largest(program) // 8, 8))
    assert [op.name for op in made.ops if op.name.endswith(".concat")] == ["pool3.y.concat"]


def test_outputs_are_whole_at_the_end():
    program = vgg(phase="TEST")
    kept = next(t for op in program.ops for t in op.writes if t.name == "relu1_1.y")
    made = parted(
        Program("TEST", program.ops, program.inputs, program.persistent, (*program.outputs, kept)),
        (SplitRegion(FIRST, 2),),
    )
    assert any(kept in op.writes for op in made.ops)


def test_what_is_read_whole_is_made_before():
    x, y, z = (Tensor(name, (8, 4)) for name in "xyz")
    index = Tensor("index", (8,), "int32")
    kinds = ("relu.forward", (x,), (y,)), ("batch_reindex.forward", (y, index), (z,))
    ops = tuple(Op(kind, kind, kind, Pass.FORWARD, reads, writes) for kind, reads, writes in kinds)
    program = Program("TEST", ops, (x, index), (), (z,))
    with pytest.raises(ValueError, match="y needs all rows of them"):
        parted(program, (SplitRegion(tuple(op.name for op in ops), 2),))
    made = parted(program, regions(program, y.nbytes // 2))
    assert [region.ops for region in made.parts] == [(op.name,) for op in ops]
    assert all(y in op.reads for op in made.ops if op.kind == "batch_reindex.forward")


@pytest.mark.parametrize(
    ("region", "why"),
    [
        (SplitRegion(FIRST, 3), "its 8 rows are not 3 equal parts"),
        (SplitRegion(("loss.forward",), 2), "an op of kind softmax_loss.forward needs all rows at once"),
        (SplitRegion(("nosuch",), 2), "has no such op"),
        (SplitRegion(FIRST[::-1], 2), "is not in the program's order"),
        (SplitRegion((FIRST[0], "conv5_4.backward_filter"), 2), "or in both passes"),
        (SplitRegion((FIRST[0], "conv2_1+relu2_1.forward"), 2), "is between them"),
    ],
)
def test_what_cannot_run_in_parts_is_refused(region, why):
    with pytest.raises(ValueError, match=why):
        parted(vgg(), (region,))


@pytest.mark.parametrize(
    ("kind", "shapes", "dtype"),
    [
        ("batch_norm.backward", ((4, 3, 2, 2), (3,)), "float32"),
        ("batch_norm.moments", ((4, 3, 2, 2), (3,)), "bfloat16"),  # each part's own would be rounded
        ("dropout.forward", ((4, 3), (4, 3)), "float32"),
        ("users.own", ((4, 3), (4, 3)), "float32"),
        ("convolution.backward_bias", ((4, 3, 2, 2), (3,)), "float16"),  # each part would be rounded
        ("inner_product.forward", ((4, 3), (5,)), "float32"),  # all axes are multiplied: there are no rows
    ],
)
def test_kinds_that_need_all_images_at_once(kind, shapes, dtype):
    x, y = (Tensor(name, shape, dtype) for name, shape in zip("xy", shapes, strict=True))
    assert operands(Op(kind, kind, "layer", Pass.FORWARD, (x,), (y,))) is None
