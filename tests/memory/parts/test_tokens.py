"""One sequence in parts of its tokens: transformers end with the bytes of whole ops, which work part by part."""

from __future__ import annotations

import pytest

import minidnn
from minidnn.backends import open_device
from minidnn.costs import estimate
from minidnn.memory.parts import parted
from minidnn.memory.parts.kinds import operands
from minidnn.memory.parts.regions import in_equal_parts
from minidnn.program import Op, Pass, Program, Rows, SplitRegion, Tensor
from minidnn.programs.build import programs
from minidnn.training.comparison import restricted
from minidnn.zoo.gpt import GPT2
from minidnn.zoo.llama import Llama
from tests.support.cuda import host as cuda_host
from tests.support.cuda.fake import fake_device

NETS = {
    "gpt2": lambda: GPT2(1, 128, 16, 1, 2, vocabulary=50, dropout=0.1),
    "llama": lambda: Llama(1, 128, 16, 1, 4, 2, 64, vocabulary=50),
}
LOCAL = {
    "gpt2": {"inner_product", "unary", "row_norm", "dropout", "eltwise", "gradient", "broadcast", "batch_reindex"},
    "llama": {"inner_product", "unary", "row_norm", "rotary", "eltwise", "gradient", "broadcast", "batch_reindex"},
}


def trained(net, device, policy, **options):
    """(the bytes of all values, the losses, the arrangement) after three steps."""
    with minidnn.Solver(
        net, policy=policy, device=device, seed=3, base_lr=0.05, momentum=0.9, max_iter=9, **options
    ) as solver:
        losses = [solver.step().loss for _ in range(3)]
        return {name: a.tobytes() for name, a in solver.values().items()}, losses, solver.arrangement


def whole(net: str = "gpt2") -> Program:
    return programs(NETS[net](), None, ("TRAIN",))["TRAIN"]


def named(program: Program, name: str) -> Op:
    return next(op for op in program.ops if op.name == name)


def test_an_mlp_runs_part_by_part_over_tensors_of_some_tokens():
    mlp = ("block1/norm2.forward", "block1/mlp1.forward", "block1/gelu.forward", "block1/mlp2.forward")
    made = parted(whole(), (SplitRegion((*mlp, "block1/drop2.forward"), 4),))
    last = named(made, "block1/gelu.forward[32:64]")
    assert [repr(t) for t in last.writes] == ["block1/gelu.y[32:64][1, 32, 64]"]
    assert named(made, "block1/sum1.y[32:64].slice").attrs == Rows((32,), 1)
    assert {op.attrs.axis for op in made.ops if isinstance(op.attrs, Rows)} == {1}
    assert named(made, "block1/drop2.forward[32:64]").attrs.block == 32 * 16 // 4
    assert not any(t.name == "block1/gelu.y" and op.during is Pass.FORWARD for op in made.ops for t in op.tensors)


def test_rows_of_a_part_begin_at_its_tokens():
    made = parted(whole("llama"), in_equal_parts(whole("llama"), 8))
    attrs = [op.attrs for op in made.ops if op.kind == "rotary.backward"]
    assert [(a.first, a.tokens) for a in attrs] == [(16 * i, 16) for i in range(8)]


@pytest.mark.parametrize(
    ("region", "why"),
    [
        (SplitRegion(("block1/attention.forward",), 2), "needs all rows at once"),
        (SplitRegion(("loss.forward",), 2), "needs all rows at once"),
        (SplitRegion(("block1/gelu.forward",), 16), "its 128 rows are not 16 equal parts of a multiple of 16"),
    ],
)
def test_what_is_not_local_to_tokens_runs_as_a_whole(region, why):
    with pytest.raises(ValueError, match=why):
        parted(whole(), (region,))


@pytest.mark.parametrize(
    ("kind", "shapes"),
    [
        ("unary.forward", [(1, 32), (1, 32)]),  # the numbers of one row
        ("inner_product.forward", [(1, 32), (32, 32), (1, 32)]),
        ("scale.forward", [(1, 32, 8), (32,), (1, 32, 8)]),  # a channel is a token
        ("relu.forward", [(1, 32, 4, 4), (1, 32, 4, 4)]),  # an image
    ],
)
def test_what_is_no_sequence_has_one_row(kind, shapes):
    *reads, y = (Tensor(f"t{i}", shape) for i, shape in enumerate(shapes))
    found = operands(Op(kind, kind, "layer", Pass.FORWARD, tuple(reads), (y,)))
    assert found is None or found.rows == 1


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("policy", ["recompute_all:m@8", "vdnn_all:m@2"])
def test_tokens_in_parts_end_with_the_bytes_of_the_whole(net, device, policy):
    got, losses, arrangement = trained(NETS[net](), device, policy, debug=True)
    program = arrangement.schedules["TRAIN"].program
    if policy.endswith("@8"):
        assert {op.family for op in program.ops if op.part} >= LOCAL[net]
    forced = restricted(estimate(open_device(device)), arrangement)
    want, want_losses, whole = trained(NETS[net](), device, "baseline:p", costs=forced)
    assert not whole.schedules["TRAIN"].program.parts
    assert losses == want_losses
    assert [name for name in want if want[name] != got[name]] == []


@pytest.mark.extended
@pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++ to run CUDA sources with")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("net", "format"), [("gpt2", "float32"), ("llama", "bfloat16")])
def test_on_cuda_two_policies_in_parts_give_the_same_bytes(net, format):
    whole, parts, travelling = (
        trained(NETS[net](), fake_device(i), policy, debug=True, format=format)
        for i, policy in enumerate(("liveness:p", "liveness:p@8", "vdnn_all:p@8"))
    )
    assert parts[0] == travelling[0] and parts[1] == travelling[1]
    assert parts[1] == pytest.approx(whole[1], rel=1e-4 if format == "float32" else 2e-2)
