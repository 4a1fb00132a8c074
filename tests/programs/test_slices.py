"""Slices: which ops before a Concat read their part of its gradient, which do not, and that no bit changes."""

from __future__ import annotations

import pytest

from minidnn.costs import profile
from minidnn.memory.planning import arrange
from minidnn.program import FORWARD, Program
from minidnn.programs.build import programs
from minidnn.programs.fusion import KINDS, as_cuda, fused, slices
from minidnn.zoo import load
from tests.programs.test_fusion import SPEC, conv, every, program, relu, some, trained
from tests.support.interpret import run
from tests.support.paths import NET_FILES
from tests.support.slow import usual_pairs

SLICED = slices.KINDS
POOL = "- {name: pool, type: Pooling, bottom: data, top: b, pooling_param: {kernel_size: 3, stride: 1, pad: 1}}\n"


def branch(name: str, bottom: str = "data") -> str:
    return conv(name, bottom, name) + relu(name, name, name=f"r{name}")


def join(*bottoms: str) -> str:
    return f"- {{name: j, type: Concat, bottom: [{', '.join(bottoms)}], top: j}}\n"


def pool(method: str) -> str:
    more = f"{{pool: {method}, kernel_size: 3, stride: 1, pad: 1}}"
    return f"- {{name: q, type: Pooling, bottom: j, top: x, pooling_param: {more}}}\n"


def without(op) -> bool:
    return op.kind in KINDS - SLICED


AFTER = conv("next", "j", "x")  # reads Concat's top in backward
TWO = branch("a") + branch("b") + join("a", "b") + AFTER


def found(p: Program) -> list[str]:
    """What is left of Concats' backward, and the ops that read slices: from which channel on, and which tensors."""
    return [
        f"{op.kind} {op.attrs.starts}" if op.family == "concat" else
        f"{op.name} {op.attrs.start}: {' '.join(t.name for t in op.reads)}"
        for op in p.ops if op.during not in FORWARD and (op.family == "concat" or op.kind in SLICED)
    ]  # fmt: skip


def test_a_relu_s_backward_reads_its_slice_of_concat_s_gradient_and_of_its_top():
    before, after = fused(program(TWO), without), fused(program(TWO), every)
    assert found(after) == ["ra+a.backward_bias 0: j.y j.y.grad", "rb+b.backward_bias 3: j.y j.y.grad"]
    (apart,) = (op for op in before.ops if op.kind == "concat.backward")
    at = before.ops.index(apart)
    assert [op.kind for op in after.ops[at : at + 2]] == ["relu.backward_bias_slice"] * 2, "where Concat's was"
    gone = {op.name: op for op in before.ops}
    for op in after.ops[at : at + 2]:
        old = gone[op.name]
        assert op.writes == old.writes and op.layer == old.layer and op.flops == old.flops
        assert op.inplace == (), "the gradient is whole until all have read it"
        assert op.nbytes == old.nbytes, "slices, not the whole"
    assert not {*apart.writes} & {*after.tensors}, "the slices of the gradient are nowhere"
    bottoms = next(op for op in after.ops if op.kind == "concat.forward").reads
    assert [op.kind for op in after.ops if {*bottoms} & {*op.reads}] == ["concat.forward"], "bottoms end with forward"
    assert after.outputs == before.outputs and after.persistent == before.persistent


BOTTOMS = ["ra+a.backward_bias 0: ra.y j.y.grad", "rb+b.backward_bias 3: rb.y j.y.grad"]
MASKED = ["rb+b.backward_bias 3: j.y.grad"]
ONE = BOTTOMS[0].replace("ra.y", "j.y")


@pytest.mark.parametrize(
    ("layers", "keep", "expected"),
    {
        "a top that backward does not read": (TWO.replace(AFTER, pool("AVE")), (), BOTTOMS),
        "a pooling behind": (TWO.replace(AFTER, pool("MAX")), (), ["ra+a.backward_bias 0: j.y.grad", *MASKED]),
        "a pooling and more behind": (
            TWO.replace("top: x", "top: u") + pool("MAX").replace("top: x", "top: p") + conv("more", "p", "v")
            + "- {name: s, type: Eltwise, bottom: [u, v], top: x}\n", (),
            [ONE, BOTTOMS[1].replace("rb.y", "j.y")],
        ),
        "a pooling behind, and a part that is no ReLU's": (
            (branch("a") + conv("b", "data", "b") + join("a", "b") + pool("MAX")), (),
            ["concat.backward (3,)", BOTTOMS[0]],
        ),
        "a bottom that is an output": (TWO, ["a"], [BOTTOMS[0], BOTTOMS[1].replace("rb.y", "j.y")]),
        "a part without a gradient": (branch("a") + POOL + join("a", "b") + AFTER, (), [ONE]),
        "a part that is no ReLU's": (
            branch("a") + conv("b", "data", "b") + join("a", "b") + AFTER, (), ["concat.backward (3,)", ONE]
        ),
        "a part with a fork": (
            branch("a") + branch("b") + conv("c", "b", "c") + join("a", "b", "c") + AFTER, (),
            ["concat.backward (3, 6)", ONE],
        ),
        "a bottom twice": (branch("a") + join("a", "a") + AFTER, (), ["concat.backward (0, 3)"]),
        "a fork of what is no ReLU's": (
            conv("a", "data", "a") + branch("b", "a") + join("b", "a") + AFTER, (),
            ["rb+b.backward_bias 0: j.y j.y.grad", "b.add_a.y.grad 3: j.y.grad a.y.grad.b"],
        ),
        "that twice": (
            conv("a", "data", "a") + join("a", "a") + AFTER, (),
            ["concat.backward (3,)", "j.add_a.y.grad 0: j.y.grad a.y.grad.j.1"],
        ),
        "that in two concats": (
            conv("a", "data", "a") + branch("b") + join("a", "b")
            + join("j", "a").replace("name: j", "name: k").replace("top: j", "top: k")
            + AFTER.replace("bottom: j", "bottom: k"), (),
            ["concat.backward (0,)", "concat.backward (0,)", BOTTOMS[1], "j.add_a.y.grad 6: k.y.grad a.y.grad.j"],
        ),
        "a concat of a concat": (
            TWO.replace(AFTER, "") + branch("c")
            + join("j", "c").replace("name: j", "name: k").replace("top: j", "top: k")
            + AFTER.replace("bottom: j", "bottom: k"), (),
            ["concat.backward (0,)", "rc+c.backward_bias 6: k.y k.y.grad", *BOTTOMS],
        ),
        "along another axis": (
            TWO.replace("top: j", "top: j, concat_param: {axis: 2}"), (), ["concat.backward (0, 6)"]
        ),
        "no images": (
            "".join(
                f"- {{name: {n}, type: InnerProduct, bottom: data, top: {n}, inner_product_param: {{num_output: 3}}}}\n"
                + relu(n, n, name=f"r{n}") for n in "ab"
            ) + join("a", "b").replace("top: j", "top: x"), (), ["concat.backward (0, 3)"],
        ),
    }.values(),
    ids=lambda value: "",
)  # fmt: skip
def test_which_parts_are_sliced(layers, keep, expected):
    p = program(layers, keep=keep)
    after, values = fused(p, every), some(p)
    assert found(after) == expected
    want, got = run(p, values), run(after, values)
    masked = {t.name for op in after.ops if op.kind == "pooling.backward_relu" for t in op.writes}
    assert [n for n in got if n not in masked and want[n].tobytes() != got[n].tobytes()] == []


def test_the_device_is_asked_for_each_slice():
    assert found(fused(program(TWO), without)) == ["concat.backward (0, 3)"]
    after = fused(program(TWO), lambda op: every(op) and not (op.kind in SLICED and op.attrs.start))
    assert found(after) == ["concat.backward (3,)", "ra+a.backward_bias 0: j.y j.y.grad"]


def test_before_a_pooling_the_whole_gradient_passes_the_relus_at_once():
    p = program(TWO.replace(AFTER, pool("MAX")))
    after = fused(p, every)
    back = next(op for op in after.ops if op.kind == "pooling.backward_relu")
    assert [t.name for t in back.reads] == ["q.index", "q.y", "q.y.grad"]
    assert [t.name for t in back.writes] == ["j.y.grad"] and back.name == "q+j.backward"
    last = {t.name: op.name for op in after.ops for t in op.reads}
    assert last["ra.y"] == last["rb.y"] == "j.forward" and last["j.y"] == "q.forward"
    refused = fused(p, lambda op: every(op) and op.kind != "pooling.backward_relu")
    assert found(refused) == BOTTOMS
    refused = fused(p, lambda op: every(op) and not (op.kind in SLICED and len(op.reads) == 1))
    assert found(refused) == BOTTOMS and "pooling.backward_relu" not in {op.kind for op in refused.ops}


def test_a_program_without_backward_stays_as_it_is():
    p = program(TWO, "TEST")
    assert [op.kind for op in fused(p, every).ops] == [op.kind for op in fused(p, without).ops]


CHANGES = {  # of the net inception: texts and what comes in their stead
    "as it is": [],
    "a pooling behind": [
        ("Dropout, bottom: out2, top: out2", "Pooling, bottom: out2, top: drop, pooling_param: {kernel_size: 3}"),
        ("InnerProduct, bottom: out2", "InnerProduct, bottom: drop"),
    ],
    "a fork of what is no ReLU's": [
        ("- {name: pool1, type: Pooling, bottom: stem", conv("fork", "data", "fork") + "- {name: pool1, type: Pooling, "
         "bottom: fork"),
        ("bottom: [one1,", "bottom: [fork, one1,"),
    ],
}  # fmt: skip
FOUND = {"a pooling behind": "pooling.backward_relu", "a fork of what is no ReLU's": "gradient.add_slice"}


@pytest.mark.parametrize(
    ("device", "change"),
    usual_pairs(["cpu", "reference"], [pytest.param(c, marks=pytest.mark.slow if c in FOUND else ()) for c in CHANGES]),
)
def test_training_gives_the_same_bytes_with_and_without_slices(device, change, monkeypatch, tmp_path):
    net = (NET_FILES / "inception.yaml").read_text()
    for old, new in CHANGES[change]:
        assert net.count(old) == 1
        net = net.replace(old, new)
    (tmp_path / "net.yaml").write_text(net)
    want = trained(str(tmp_path / "net"), device, True)
    assert trained(str(tmp_path / "net"), device, True, "sqrt_n:m") == want
    assert {"relu.backward_bias_slice", FOUND.get(change, "relu.backward_bias_slice")} <= {*want[2]}
    monkeypatch.setattr(slices, "sliced", lambda program, fuses: program)
    got = trained(str(tmp_path / "net"), device, True)
    assert want[:2] == got[:2] and not SLICED & {*got[2]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "saved"),
    [("liveness:m", 0.79), ("sqrt_n:m", 1), ("recompute_cheap:m", 1), ("vdnn_all:m", 1), ("vdnn_conv:m", 1)],
)
def test_googlenet_s_peak_shrinks_and_no_policy_s_grows(policy, saved):
    net, costs, peaks = load("googlenet", 128), profile("h200"), []
    for fuses in (lambda op: as_cuda(op) and op.kind not in SLICED, as_cuda):
        p = programs(net, SPEC, ("TRAIN",), fuses=fuses)["TRAIN"]
        peaks.append(arrange([p], policy, costs).schedules["TRAIN"].live_peak)
    assert peaks[1] <= saved * peaks[0]
