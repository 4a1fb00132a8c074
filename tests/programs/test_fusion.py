"""Fusion: which pairs of ops become one and which stay, that nothing that is computed changes, and who is asked."""

from __future__ import annotations

import numpy as np
import pytest

import minidnn
from minidnn.backends import open_device
from minidnn.backends.reference import ReferenceDevice
from minidnn.backends.reference.pooling import maximum
from minidnn.costs import gpu, profile
from minidnn.layers.facts import FACTS
from minidnn.memory.execution.device import Device
from minidnn.memory.plan import in_place_sharing
from minidnn.memory.planning import arrange
from minidnn.nets.net import Net
from minidnn.optimizers import SGD
from minidnn.program import Program, Role
from minidnn.programs.autodiff import differentiate
from minidnn.programs.build import programs
from minidnn.programs.fusion import KINDS, as_cuda, fused, kinds, normalization, pooling, sums
from minidnn.programs.spec import TrainSpec
from minidnn.training.session import Session
from minidnn.zoo import load
from tests.support import op_examples as cpu_ops
from tests.support.graphs import graph
from tests.support.interpret import run
from tests.support.paths import NET_FILES, SMALL_NETS

HEAD = """
- {name: data, type: Input, top: data, input_param: {shape: {dim: [4, 3, 6, 6]}}}
- {name: label, type: Input, top: label, input_param: {shape: {dim: 4}}}
"""
CONV = "convolution_param: {num_output: 3, kernel_size: 3, pad: 1, weight_filler: {type: xavier}}"
END = """
- {name: ip, type: InnerProduct, bottom: x, top: ip, inner_product_param: {num_output: 3}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
"""
SPEC = TrainSpec(SGD(momentum=0.9))


def conv(name: str, bottom: str, top: str, more: str = CONV) -> str:
    return f"- {{name: {name}, type: Convolution, bottom: {bottom}, top: {top}, {more}}}\n"


def relu(bottom: str, top: str, more: str = "", name: str = "relu") -> str:
    return f"- {{name: {name}, type: ReLU, bottom: {bottom}, top: {top}{more}}}\n"


def program(
    layers: str, phase: str = "TRAIN", facts: str = "default", train: TrainSpec | None = SPEC, keep=()
) -> Program:
    g = graph(HEAD + layers + END, phase)
    kept = [b.tensor for n in g.layers for b in n.tops if b.name in keep]
    return differentiate(g, FACTS[facts], train if phase == "TRAIN" else None, kept)


def every(op) -> bool:
    return op.kind in KINDS


def names(p: Program, fuses=every) -> list[str]:
    return [op.name for op in fused(p, fuses).ops if op.kind in KINDS]


IN_PLACE = conv("conv", "data", "x") + relu("x", "x")
BOTH = ["conv+relu.forward", "relu+conv.backward_bias"]


def test_a_convolution_and_its_relu_become_one_op():
    before = program(IN_PLACE)
    after = fused(before, every)
    assert [op.name for op in before.ops][:2] == ["conv.forward", "relu.forward"]
    assert [op.name for op in after.ops] == [
        "conv+relu.forward", "ip.forward", "loss.forward", "objective.forward",
        "loss.backward", "ip.backward_filter", "ip.backward_bias", "ip.backward_data", "ip.update_w", "ip.update_b",
        "relu+conv.backward_bias", "conv.backward_filter", "conv.update_w", "conv.update_b",
    ]  # fmt: skip
    one = after.ops[0]
    conv_op, relu_op = before.ops[:2]
    assert one.reads == conv_op.reads and one.writes == relu_op.writes and one.attrs == conv_op.attrs
    assert one.kind == "convolution.forward_relu" and one.layer == "conv"
    assert one.flops == conv_op.flops + relu_op.flops
    assert conv_op.writes[0] not in after.tensors, "what lay between is nowhere"
    back = next(op for op in after.ops if op.kind == "relu.backward_bias")
    y, dy = back.reads
    dx, db = back.writes
    assert y == relu_op.writes[0] and dx.shape == dy.shape and db.name == "conv.b.grad"
    assert back.inplace == ((dy, dx),) and back.layer == "conv"
    assert after.outputs == before.outputs and after.persistent == before.persistent and after.inputs == before.inputs


def test_it_is_asked_op_by_op():
    p = program(IN_PLACE)
    assert names(p, lambda op: op.kind == "relu.backward_bias") == BOTH[1:]
    assert names(p, lambda op: op.kind == "convolution.forward_relu") == BOTH[:1]
    assert fused(p, lambda op: False).ops == p.ops and fused(p, None) is p
    two = program(conv("a", "data", "y") + relu("y", "y", name="ra") + conv("b", "y", "x") + relu("x", "x", name="rb"))
    assert names(two, lambda op: op.layer == "b") == ["b+rb.forward", "rb+b.backward_bias"]


BIASLESS = CONV[:-1].replace("kernel_size: 3", "kernel_size: 3, bias_term: false") + "}"


@pytest.mark.parametrize(
    ("layers", "found"),
    {
        "not in place": (conv("conv", "data", "a") + relu("a", "x"), BOTH),
        "a slope": (conv("conv", "data", "x") + relu("x", "x", ", relu_param: {negative_slope: 0.1}"), []),
        "a fork": (
            conv("conv", "data", "a") + relu("a", "b")
            + "- {name: sum, type: Eltwise, bottom: [a, b], top: x}\n", [],
        ),
        "a fork behind the relu": (
            conv("conv", "data", "a") + relu("a", "a") + conv("one", "a", "b") + conv("two", "a", "c")
            + "- {name: sum, type: Eltwise, bottom: [b, c], top: x}\n", [BOTH[0], "one+relu.backward_sum"],
        ),
        "dropout between": (
            conv("conv", "data", "x") + "- {name: drop, type: Dropout, bottom: x, top: x}\n" + relu("x", "x"), [],
        ),
        "dropout behind": (
            IN_PLACE + "- {name: drop, type: Dropout, bottom: x, top: x}\n", BOTH,
        ),
        "no bias": (conv("conv", "data", "x", BIASLESS) + relu("x", "x"), BOTH[:1]),
        "a frozen bias": (
            conv("conv", "data", "x", CONV + ", param: [{lr_mult: 1}, {lr_mult: 0}]") + relu("x", "x"), BOTH[:1],
        ),
        "pooling between": (
            conv("conv", "data", "a") + "- {name: p, type: Pooling, bottom: a, top: x, pooling_param: "
            "{pool: MAX, kernel_size: 2, stride: 2}}\n" + relu("x", "x"), [],
        ),
        "two relus": (IN_PLACE + relu("x", "x", name="again"), BOTH),
        "a scale": (
            "- {name: scale, type: Scale, bottom: data, top: a, scale_param: {bias_term: true}}\n" + relu("a", "x"),
            ["relu+scale.backward_bias"],
        ),
        "a sum shares its gradient": (
            conv("one", "data", "a") + conv("two", "data", "b")
            + "- {name: sum, type: Eltwise, bottom: [a, b], top: s}\n" + relu("s", "x"),
            ["sum+relu.forward", "relu+two.backward_bias"],
        ),
        "an inner product": (
            "- {name: fc, type: InnerProduct, bottom: data, top: x, inner_product_param: {num_output: 3}}\n"
            + relu("x", "x"), ["fc+relu.forward", "relu+fc.backward_bias"],
        ),
    }.values(),
)  # fmt: skip
def test_what_is_fused(layers, found):
    assert names(program(layers)) == found


def norm(bottom: str, top: str, name: str = "bn") -> str:
    return f"- {{name: {name}, type: BatchNorm, bottom: {bottom}, top: {top}}}\n"


def scale(bottom: str, top: str, name: str = "scale") -> str:
    return f"- {{name: {name}, type: Scale, bottom: {bottom}, top: {top}, scale_param: {{bias_term: true}}}}\n"


NORMALIZED = conv("conv", "data", "a", BIASLESS) + norm("a", "b") + scale("b", "c")
ALL = NORMALIZED + relu("c", "x")
ONCE = ["bn.moments", "bn+scale+relu.forward", "relu+scale+bn.backward"]


def test_a_batch_norm_its_scale_and_its_relu_become_two_ops_forward_and_one_backward():
    before = program(ALL)
    after = fused(before, every)
    assert [op.name for op in after.ops] == [
        "conv.forward", ONCE[0], "bn.statistics", ONCE[1], "ip.forward", "loss.forward", "objective.forward",
        "loss.backward", "ip.backward_filter", "ip.backward_bias", "ip.backward_data", "ip.update_w", "ip.update_b",
        ONCE[2], "scale.update_gamma", "scale.update_beta", "conv.backward_filter", "conv.update_w",
    ]  # fmt: skip
    moments, forward, backward = (op for op in after.ops if op.name in ONCE)
    apart = {op.name: op for op in before.ops}
    assert [op.kind.removeprefix("batch_norm.") for op in (moments, forward, backward)] == [
        "moments", "normalize_scale_relu", "backward_scale_relu",
    ]  # fmt: skip
    assert [op.layer for op in (moments, forward, backward)] == ["bn", "scale", "scale"]
    assert {op.attrs for op in (moments, forward, backward)} == {apart["bn.forward"].attrs}
    (x, mean, variance, gamma, beta), (y,) = forward.reads, forward.writes
    assert (gamma.name, beta.name, y) == ("scale.gamma", "scale.beta", *apart["relu.forward"].writes)
    assert (x,) == moments.reads == apart["bn.forward"].reads and forward.inplace == ((x, y),)
    assert (mean, variance) == moments.writes == apart["bn.forward"].writes[1:]
    dy, (dx, dgamma, dbeta) = apart["relu.backward"].reads[1], backward.writes
    assert backward.reads == (x, mean, variance, gamma, beta, dy), "y is not read"
    assert (dx, dgamma.name, dbeta.name) == (*apart["bn.backward"].writes, "scale.gamma.grad", "scale.beta.grad")
    assert backward.inplace == ((dy, dx), (x, dx)), "the bytes of whichever nobody reads later"
    assert moments.flops + forward.flops == sum(apart[f"{layer}.forward"].flops for layer in ("bn", "scale", "relu"))
    between = {t.name for t in before.tensors} - {t.name for t in after.tensors}
    assert between == {"bn.y", "scale.y", "scale.y.grad", "bn.y.grad"}, "nowhere"
    assert names(program(ALL, "TEST")) == ONCE[1:2]
    (inference,) = (op for op in fused(program(ALL, "TEST"), every).ops if op.name == ONCE[1])
    assert inference.kind == "batch_norm.inference_scale_relu" and inference.inplace == ((x, y),)


def test_forward_and_backward_of_a_batch_norm_are_fused_together_or_not_at_all():
    p = program(ALL)
    for lacking in ("moments", "normalize_scale_relu", "backward_scale_relu"):
        assert fused(p, lambda op, k=lacking: op.family == "batch_norm" and not op.kind.endswith(f".{k}")).ops == p.ops
    assert names(p, lambda op: op.kind == "relu.backward_bias") == ["relu+scale.backward_bias"]
    assert names(p, lambda op: op.kind.startswith(("batch_norm", "relu"))) == ONCE, "the most goes first"
    assert names(p, as_cuda) == ONCE


FROZEN = ", param: [{{lr_mult: {}}}, {{lr_mult: {}}}]}}\n"


def fuses_to(layers, found, values=lambda x: x) -> None:
    """These ops are what is fused of the layers, and on the reference what remains is the same bytes."""
    assert names(program(layers)) == found
    before, random = program(layers), np.random.default_rng(2)
    given = {
        t.name: random.integers(0, 3, t.shape).astype(t.dtype) if t.dtype != "float32" else
        values(random.standard_normal(t.shape).astype(t.dtype)) for t in (*before.inputs, *before.persistent)
    }  # fmt: skip
    want, got = run(before, given), run(fused(before, every), given)
    assert [n for n in got if want[n].tobytes() != got[n].tobytes()] == []


@pytest.mark.parametrize(
    ("layers", "found"),
    {
        "no relu": (NORMALIZED.replace("top: c", "top: x"), ["bn.moments", "bn+scale.forward", "scale+bn.backward"]),
        "in place": (
            conv("conv", "data", "x", BIASLESS) + norm("x", "x") + scale("x", "x") + relu("x", "x"), ONCE,
        ),
        "a slope": (
            NORMALIZED + relu("c", "x", ", relu_param: {negative_slope: 0.1}"),
            ["bn.moments", "bn+scale.forward", "scale+bn.backward"],
        ),
        "no scale": (conv("conv", "data", "a", BIASLESS) + norm("a", "b") + relu("b", "x"), []),
        "a scale without a bias": (ALL.replace("bias_term: true", "bias_term: false"), []),
        "a frozen beta": (ALL.replace("true}}\n", "true}" + FROZEN.format(1, 0)), []),
        "a frozen gamma": (
            ALL.replace("true}}\n", "true}" + FROZEN.format(0, 1)), [*ONCE[:2], "relu+scale.backward_bias"],
        ),
        "nothing learns below": (
            ALL.replace("{type: xavier}}}", "{type: xavier}}, param: [{lr_mult: 0}]}"), ["relu+scale.backward_bias"],
        ),
        "running statistics": (
            ALL.replace("top: b}", "top: b, batch_norm_param: {use_global_stats: true}}"), ["relu+scale.backward_bias"],
        ),
        "the normalized is read": (
            NORMALIZED + relu("c", "d") + "- {name: sum, type: Eltwise, bottom: [b, d], top: x}\n",
            ["relu+scale.backward_bias"],
        ),
        "the scaled is read": (
            NORMALIZED + relu("c", "d") + "- {name: sum, type: Eltwise, bottom: [c, d], top: x}\n",
            ["bn.moments", "bn+scale.forward", "scale+bn.backward"],
        ),
        "two share a gradient": (
            NORMALIZED + conv("other", "data", "e", BIASLESS)
            + norm("e", "f", "bm") + scale("f", "g", "stretch")
            + "- {name: sum, type: Eltwise, bottom: [c, g], top: s}\n" + relu("s", "x"),
            [
                "bn.moments", "bn+scale.forward", "bm.moments", "bm+stretch+sum+relu.forward",
                "stretch+bm.backward", "scale+bn.backward",
            ],
        ),
        "dropout behind": (ALL + "- {name: drop, type: Dropout, bottom: x, top: x}\n", ONCE),
    }.values(),
)  # fmt: skip
def test_what_is_fused_of_a_batch_norm(layers, found):
    fuses_to(layers, found, lambda x: x**2)


def test_what_is_kept_of_a_batch_norm_is_not_fused_away():
    assert names(program(ALL, keep=["b"])) == ["relu+scale.backward_bias"]
    assert names(program(ALL, keep=["c"])) == ["bn.moments", "bn+scale.forward", "scale+bn.backward"]
    assert names(program(ALL, keep=["a", "x"])) == ONCE
    assert names(program(ALL, facts="caffe")) == ["relu+scale.backward_bias"], "a copy is kept"


def test_of_16_bits_a_batch_norm_is_fused_with_float32_parameters():
    g = Net.from_text(f"name: net\nlayer:\n{HEAD}{ALL}{END}").graph("TRAIN", format="bfloat16")
    p = differentiate(g, FACTS["default"], SPEC)
    assert names(p) == ONCE
    _, forward, backward = (op for op in fused(p, every).ops if op.kind in KINDS)
    assert [t.dtype for t in forward.reads] == ["bfloat16", *["float32"] * 4]
    assert [t.dtype for t in backward.writes] == ["bfloat16", "float32", "float32"]


def test_the_peak_falls_by_what_lay_between():
    """Where ip's data gradient is made conv.y, bn.y and relu.y waited for it, now conv.y alone."""
    peaks = []
    for p in (program(ALL), fused(program(ALL), every)):
        schedule = arrange([p], "liveness:m", profile("titan_x")).schedules["TRAIN"]
        (point,) = (i for i, op in enumerate(schedule.plan.order) if op.name == "ip.backward_data")
        peaks.append(schedule.live_peak)
        live = {t.name for b in schedule.live(point) for t in (s.tensor for s in b.residencies)}
        assert ("bn.y" in live, "relu.y" in live, "conv.y" in live) == ((len(peaks) == 1,) * 2 + (True,))
    assert peaks[0] - peaks[1] == 2 * 4 * 3 * 6 * 6 * 4


def pool(bottom: str, top: str, name: str = "pool", more: str = "pool: MAX, kernel_size: 3, stride: 2") -> str:
    return f"- {{name: {name}, type: Pooling, bottom: {bottom}, top: {top}, pooling_param: {{{more}}}}}\n"


DROP = "- {name: drop, type: Dropout, bottom: a, top: a}\n"
RECTIFIED = conv("conv", "data", "a") + relu("a", "a")
POOLED = ["conv+relu.forward", "pool+relu.backward"]


def test_the_backward_of_a_pooling_and_of_the_relu_before_it_become_one_op():
    before = program(RECTIFIED + pool("a", "x"))
    after = fused(before, every)
    assert [op.name for op in after.ops] == [
        POOLED[0], "pool.forward", "ip.forward", "loss.forward", "objective.forward",
        "loss.backward", "ip.backward_filter", "ip.backward_bias", "ip.backward_data", "ip.update_w", "ip.update_b",
        POOLED[1], "conv.backward_filter", "conv.backward_bias", "conv.update_w", "conv.update_b",
    ]  # fmt: skip
    apart = {op.name: op for op in before.ops}
    (one,) = (op for op in after.ops if op.name == POOLED[1])
    (index, dy), (y, _) = apart["pool.backward"].reads, apart["pool.forward"].writes
    assert one.kind == "pooling.backward_relu" and one.layer == "pool" and one.attrs == apart["pool.backward"].attrs
    assert one.reads == (index, y, dy) and one.writes == apart["relu.backward"].writes and one.inplace == ()
    assert one.flops == apart["pool.backward"].flops + apart["relu.backward"].flops
    assert {t.name for t in before.tensors} - {t.name for t in after.tensors} == {"conv.y", "relu.y.grad"}
    assert names(before, lambda op: every(op) and op.kind != one.kind) == BOTH, "else with the bias gradient"
    assert names(before, as_cuda) == POOLED


@pytest.mark.parametrize(
    ("layers", "found"),
    {
        "not in place": (conv("conv", "data", "a") + relu("a", "b") + pool("b", "x"), POOLED),
        "averages": (RECTIFIED + pool("a", "x", more="pool: AVE, kernel_size: 2"), BOTH),
        "a slope": (
            conv("conv", "data", "a") + relu("a", "a", ", relu_param: {negative_slope: 0.1}") + pool("a", "x"), [],
        ),
        "all read": (
            RECTIFIED + pool("a", "b", more="pool: MAX, kernel_size: 3, pad: 1")
            + "- {name: sum, type: Eltwise, bottom: [a, b], top: x}\n", [BOTH[0], "pool+relu.backward_sum"],
        ),
        "two pools of one": (
            RECTIFIED + pool("a", "b") + pool("a", "c", "other")
            + "- {name: sum, type: Eltwise, bottom: [b, c], top: x}\n", [BOTH[0], "pool+relu.backward_sum"],
        ),
        "dropout between": (RECTIFIED + DROP + pool("a", "x"), BOTH),
        "a relu behind": (RECTIFIED + pool("a", "x") + relu("x", "x", name="again"), POOLED),
        "a pool behind": (RECTIFIED + pool("a", "b") + pool("b", "x", "other", "pool: MAX, kernel_size: 2"), POOLED),
        "overlapping": (RECTIFIED + pool("a", "x", more="pool: MAX, kernel_size: 3, pad: 1"), POOLED),
        "no bias": (conv("conv", "data", "a", BIASLESS) + relu("a", "a") + pool("a", "x"), POOLED),
        "a batch norm": (NORMALIZED + relu("c", "d") + pool("d", "x"), ONCE),
        "a sum": (
            conv("one", "data", "a") + conv("two", "data", "b")
            + "- {name: sum, type: Eltwise, bottom: [a, b], top: s}\n" + relu("s", "c") + pool("c", "x"),
            ["sum+relu.forward", POOLED[1]],
        ),
    }.values(),
)  # fmt: skip
def test_what_is_fused_of_a_pooling(layers, found):
    fuses_to(layers, found)


def test_of_other_facts_a_pooling_and_a_relu_stay_apart():
    layers = conv("conv", "data", "a") + relu("a", "b") + pool("b", "x")
    assert names(program(layers, keep=["b", "x"])) == POOLED
    assert names(program(layers, facts="vdnn2016")) == BOTH, "pooling's backward reads x"
    assert names(program(layers, facts="superneurons")) == [], "and ReLU's, too"


def test_a_relu_s_output_need_not_wait_behind_a_pooling():
    """The peak is behind the inner product's weight gradient: what both ReLUs wrote waited there, and now, of both
    poolings', the second's, which no weight gradient reads any more (the first's is a bottom of conv2)."""
    layers = RECTIFIED + pool("a", "b", "pool1", "pool: MAX, kernel_size: 2, stride: 2")
    layers += conv("conv2", "b", "c") + relu("c", "c", name="relu2") + pool("c", "d", "pool2")
    layers += "- {name: wide, type: InnerProduct, bottom: d, top: x, inner_product_param: {num_output: 3000}}\n"
    peaks = []
    for fuses in (lambda op: every(op) and op.kind != pooling.POOLED, every):
        schedule = arrange([fused(program(layers), fuses)], "liveness:m", profile("titan_x")).schedules["TRAIN"]
        peaks.append(schedule.live_peak)
    assert peaks[0] - peaks[1] == 4 * 4 * 3 * (6 * 6 + 3 * 3 - 1 * 1)


def fusing(name):
    """The device, if it fuses: without our own kernels cpu does not, and oneDNN's ReLU passes the gradient of NaN."""
    device = open_device(name)
    if name == "cpu" and device.native is None:
        pytest.skip("none of our own kernels")
    return device


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pad", "out"),
    [((8, 9), 2, 2, 0, (4, 5)), ((9, 9), 3, 1, 1, (9, 9)), ((10, 8), 3, 2, 1, (6, 5)), ((9, 7), 2, 3, 0, (3, 3)),
     ((20, 20), 17, 2, 0, (3, 3))],
)  # fmt: skip
def test_of_a_pooling_and_its_relu_every_bit_is_the_same(device, size, kernel, stride, pad, out):
    """Also of zeros and of what is not finite, where windows overlap, are padded or hang over, or miss pixels."""
    device, m = fusing(device), cpu_ops.Maker(5)

    def computed(kind, *reads, a):
        e = m.example(kind, list(reads), [(3, 19, *size)], a)
        return cpu_ops.run(device, e, device.algorithms(e.op)[0])[0]

    pooling = dict(method="MAX", kernel=(kernel,) * 2, stride=(stride,) * 2, pad=(pad,) * 2, saved="index")
    a = cpu_ops.attrs(**pooling)
    for values in ([], [np.nan], [np.inf], [np.nan, np.inf, -np.inf, -0.0, 3e38, -3e38]):
        x, dy = m.normal(3, 19, *size) - 1, m.normal(3, 19, *out)
        for i, value in enumerate(values * 3):
            x[(x + i) % 1 < 0.02], dy[(dy + i) % 1 < 0.02] = abs(value), value
        x = np.where(x > 0, x, x - x)  # as a ReLU leaves it
        y, index = maximum(x, a, out)
        index = index.astype("uint8" if kernel <= 16 else "int32")
        between = computed("pooling.backward", index, dy, a=a)
        want = computed("relu.backward", x, between, a=cpu_ops.attrs(negative_slope=0.0, saved="y"))
        got = computed("pooling.backward_relu", index, y, dy, a=a)
        assert got.tobytes() == want.tobytes() and want.any()


TWICE = (
    RECTIFIED + pool("a", "b") + relu("b", "b", name="behind")
    + conv("conv2", "b", "c") + relu("c", "d", name="relu2")
    + pool("d", "x", "pool2", "pool: MAX, kernel_size: 3, pad: 1")
)  # fmt: skip


def test_what_a_pooling_wrote_is_not_overwritten_in_place():
    """A ReLU behind it, in place, would take its bytes."""
    p = program(TWICE)
    (op,) = (op for op in p.ops if op.name == "behind.forward")
    pair = {op.writes[0]: op.reads[0]}
    assert pair.items() <= in_place_sharing(p).items() and not pair.keys() & in_place_sharing(fused(p, every)).keys()


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_poolings_train_to_the_same_bytes_under_every_policy(device):
    net = Net.from_text(f"name: net\nlayer:\n{HEAD}{TWICE}{END}")
    fusing(device)
    random = np.random.default_rng(7)
    data = random.standard_normal((12, 3, 6, 6)).astype(np.float32), random.integers(0, 3, 12).astype(np.int32)
    p = dict(base_lr=0.05, momentum=0.9, lr_policy="fixed", max_iter=9, seed=3, data=data, device=device, debug=True)
    made = []
    for policy in ("baseline:m", "liveness:m", "vdnn_all:m", "superneurons_memory:m", "recompute_all:m", "sqrt_n:m"):
        with minidnn.Solver(net, policy=policy, **p) as solver:
            assert sum(op.kind == pooling.POOLED for op in solver.session.programs["TRAIN"].ops) == 2
            losses = [solver.step().loss for _ in range(2)]
            made.append((losses, {name: array.tobytes() for name, array in solver.values().items()}))
    if device == "reference":
        with minidnn.Solver(net, policy="liveness:m", fuse=False, **p) as solver:
            losses = [solver.step().loss for _ in range(2)]
            made.append((losses, {name: array.tobytes() for name, array in solver.values().items()}))
    assert all(one == made[0] for one in made)


def fork(*consumers: str, of: str = "a") -> str:
    """A convolution for each name, all of one bottom, and the sum of their tops, x."""
    convs = "".join(conv(name, of, f"{name}.y", BIASLESS) for name in consumers)
    return convs + plus(*(f"{name}.y" for name in consumers), "x")


def plus(*bottoms_and_top: str) -> str:
    *bottoms, top = bottoms_and_top
    return f"- {{name: {top}_sum, type: Eltwise, bottom: [{', '.join(bottoms)}], top: {top}}}\n"


STEM = conv("stem", "data", "a", BIASLESS)
WITH_Z = fork("b", "c", of="s").replace("[b.y", "[z.y, b.y")


def test_the_gradients_of_a_fork_are_summed_by_one_op():
    before = program(STEM + fork("b", "c", "d", "e"))
    after = fused(before, every)
    first, second, third = (op for op in before.ops if op.kind == "gradient.add")
    (one,) = (op for op in after.ops if op.kind == "gradient.sum")
    assert one.name == "d+c+b.sum_stem.y.grad" and one.layer == "b" and one.during is third.during
    assert one.reads == (*first.reads, second.reads[1], third.reads[1]), "in the order in which they arrive"
    assert [t.name for t in one.reads] == [f"stem.y.grad.{layer}" for layer in "edcb"]
    assert one.writes == third.writes and one.inplace == tuple((t, one.writes[0]) for t in one.reads)
    assert one.flops == sum(op.flops for op in (first, second, third))
    names_of = [op.name for op in after.ops]
    assert names_of.index("b.backward_data") < names_of.index(one.name) < names_of.index("stem.backward_filter")
    assert {t.name for t in before.tensors} - {t.name for t in after.tensors} == {
        "stem.y.grad.sum2",
        "stem.y.grad.sum3",
    }
    assert kinds(fused(before, as_cuda)) == ["gradient.sum"]


@pytest.mark.parametrize(
    ("layers", "found"),
    {
        "two": (STEM + fork("b", "c"), []),
        "three": (STEM + fork("b", "c", "d"), ["c+b.sum_stem.y.grad"]),
        "five": (STEM + fork(*"bcdef"), ["e+d+c.sum_stem.y.grad.sum4"]),
        "seven": (STEM + fork(*"bcdefgh"), ["g+f+e.sum_stem.y.grad.sum4", "d+c+b.sum_stem.y.grad"]),
        "a sum is the first": (
            STEM + conv("z", "a", "z.y", BIASLESS) + plus("a", "data", "s") + WITH_Z, ["b+z.sum_stem.y.grad"],
        ),
        "a sum is the second": (STEM + plus("a", "data", "s") + conv("z", "a", "z.y", BIASLESS) + WITH_Z, []),
        "a sum is added to itself": (STEM + plus("a", "a", "s") + fork("b", "c", of="s"), []),
    }.values(),
)  # fmt: skip
def test_which_gradients_are_summed_by_one_op(layers, found):
    fuses_to(layers, found)


def block(join: str, rectify: str = "") -> str:
    """A residual block: s = a, with what it is joined to, and y = relu(s), which forks into two convolutions."""
    return STEM + conv("branch", "a", "b", BIASLESS) + join + relu("s", "y", rectify) + fork("c", "d", of="y")


JOINED = plus("a", "b", "s")
RESIDUAL = ["s_sum+relu.forward", "c+relu.backward_sum"]


def test_the_sums_of_a_residual_block_and_their_relu_become_one_op_forward_and_one_backward():
    before = program(block(JOINED))
    after = fused(before, every)
    assert [op.name for op in after.ops if "update" not in op.name] == [
        "stem.forward", "branch.forward", RESIDUAL[0], "c.forward", "d.forward", "x_sum.forward", "ip.forward",
        "loss.forward", "objective.forward", "loss.backward",
        "ip.backward_filter", "ip.backward_bias", "ip.backward_data", "d.backward_filter", "d.backward_data",
        "c.backward_filter", "c.backward_data", RESIDUAL[1], "branch.backward_filter", "branch.backward_data",
        "branch.add_stem.y.grad", "stem.backward_filter",
    ]  # fmt: skip
    apart = {op.name: op for op in before.ops}
    forward, backward = (op for op in after.ops if op.name in RESIDUAL)
    eltwise, add, back = apart["s_sum.forward"], apart["c.add_relu.y.grad"], apart["relu.backward"]
    assert (forward.kind, forward.reads, forward.attrs) == ("eltwise.forward_relu", eltwise.reads, eltwise.attrs)
    assert forward.writes == (y := apart["relu.forward"].writes) and forward.layer == backward.layer == "relu"
    assert forward.inplace == tuple((x, *y) for x in eltwise.reads)
    assert forward.flops == eltwise.flops + apart["relu.forward"].flops
    assert (backward.kind, backward.reads) == ("gradient.sum_relu", (*y, *add.reads))
    assert backward.writes == back.writes and backward.inplace == tuple((dy, *back.writes) for dy in add.reads)
    assert backward.flops == add.flops + back.flops
    assert {t.name for t in before.tensors} - {t.name for t in after.tensors} == {"s_sum.y", "relu.y.grad"}
    assert kinds(fused(before, as_cuda)) == ["eltwise.forward_relu", "gradient.sum_relu"]
    assert names(program(block(JOINED), "TEST")) == RESIDUAL[:1]


def eltwise(more: str, *bottoms: str) -> str:
    return f"- {{name: s_sum, type: Eltwise, bottom: [{', '.join(bottoms)}], top: s, eltwise_param: {{{more}}}}}\n"


@pytest.mark.parametrize(
    ("layers", "found"),
    {
        "coefficients": (block(eltwise("coeff: [0.5, -2]", "a", "b")), RESIDUAL),
        "a bottom twice": (block(plus("a", "a", "b", "s")), [RESIDUAL[0], RESIDUAL[1], "s_sum+branch.sum_stem.y.grad"]),
        "five bottoms": (
            block(eltwise("coeff: [1, 2, 3, 4, 5]", *"aabab")), [RESIDUAL[1], "s_sum+branch.sum_stem.y.grad"],
        ),
        "a product": (block(eltwise("operation: PROD", "a", "b")), RESIDUAL[1:]),
        "a maximum": (block(eltwise("operation: MAX", "a", "b")), RESIDUAL[1:]),
        "a slope": (block(JOINED, ", relu_param: {negative_slope: 0.1}"), []),
        "the sum is read": (block(JOINED) + plus("x", "s", "z"), RESIDUAL[1:]),
        "a biased convolution": (RECTIFIED + fork("b", "c", "d"), [BOTH[0], "b+relu.backward_sum"]),
        "a batch norm's relu": (
            NORMALIZED + relu("c", "y") + fork(*"pqr", of="y"), [*ONCE[:2], "q+p.sum_relu.y.grad", ONCE[2]],
        ),
        "five gradients": (RECTIFIED + fork(*"bcdef"), [BOTH[0], "e+d+c.sum_relu.y.grad.sum4", "b+relu.backward_sum"]),
    }.values(),
)  # fmt: skip
def test_what_is_fused_of_a_residual_block(layers, found):
    fuses_to(layers, found)


SHORTCUT = conv("short", "data", "s", BIASLESS)
ADDED = SHORTCUT + NORMALIZED + plus("s", "c", "t") + relu("t", "x")
FORKED = SHORTCUT + NORMALIZED + plus("s", "c", "t") + relu("t", "u")
SLOPE = ", relu_param: {negative_slope: 0.1}"
TOGETHER = ["bn.moments", "bn+scale+t_sum+relu.forward", "scale+bn.backward"]


def test_a_batch_norm_its_scale_a_sum_and_its_relu_become_two_ops_forward():
    before = program(ADDED)
    after, apart = fused(before, every), {op.name: op for op in before.ops}
    moments, forward, backward = (op for op in after.ops if op.name in TOGETHER)
    assert names(before) == TOGETHER and (forward.kind, forward.layer) == (
        "batch_norm.normalize_scale_add_relu", "scale",
    )  # fmt: skip
    (x, shortcut, *_), (y,) = forward.reads, forward.writes
    assert forward.reads[2:] == (*moments.writes, *apart["scale.forward"].reads[1:])
    assert (x, shortcut, y) == (*moments.reads, *apart["short.forward"].writes, *apart["relu.forward"].writes)
    assert forward.inplace == ((x, y), (shortcut, y)) and forward.attrs == apart["bn.forward"].attrs
    assert moments.flops + forward.flops == sum(apart[f"{of}.forward"].flops for of in ("bn", "scale", "t_sum", "relu"))
    assert (backward.kind, backward.reads[-1]) == ("batch_norm.backward_scale", *apart["relu.backward"].writes)
    assert {t.name for t in before.tensors} - {t.name for t in after.tensors} == {
        "bn.y", "scale.y", "t_sum.y", "bn.y.grad",
    }  # fmt: skip
    (inference,) = (op for op in fused(program(ADDED, "TEST"), every).ops if op.kind in KINDS)
    assert (inference.kind, inference.inplace) == ("batch_norm.inference_scale_add_relu", forward.inplace)
    assert names(before, as_cuda) == TOGETHER


def test_a_sum_that_no_kernel_adds_to_a_batch_norm_stays_with_its_relu():
    apart = ["bn.moments", "bn+scale.forward", "t_sum+relu.forward", "scale+bn.backward"]
    for phase, found in (("TRAIN", apart), ("TEST", apart[1:3])):
        after = fused(program(ADDED, phase), lambda op: op.kind not in normalization.JOINED)
        assert [op.name for op in after.ops if op.kind in KINDS] == found


@pytest.mark.parametrize(
    ("layers", "joins"),
    {
        "the shortcut second": (ADDED.replace("[s, c]", "[c, s]"), True),
        "in place": (
            SHORTCUT + conv("conv", "data", "a", BIASLESS) + norm("a", "a") + scale("a", "a")
            + plus("s", "a", "t") + relu("t", "t") + relu("t", "x", name="again"), True,
        ),
        "a frozen gamma": (ADDED.replace("true}}\n", "true}" + FROZEN.format(0, 1)), True),
        "a fork behind": (FORKED + fork("p", "q", of="u"), True),
        "the shortcut is later": (NORMALIZED + SHORTCUT + plus("s", "c", "t") + relu("t", "x"), False),
        "coefficients": (ADDED.replace("top: t}", "top: t, eltwise_param: {coeff: [1, 2]}}"), False),
        "a maximum": (ADDED.replace("top: t}", "top: t, eltwise_param: {operation: MAX}}"), False),
        "three": (ADDED.replace("[s, c]", "[s, c, s]"), False),
        "itself": (ADDED.replace("[s, c]", "[c, c]"), False),
        "the scaled is read": (FORKED + plus("u", "c", "x"), False),
        "the sum is read": (FORKED + plus("u", "t", "x"), False),
        "a slope": (SHORTCUT + NORMALIZED + plus("s", "c", "t") + relu("t", "x", SLOPE), False),
        "no relu": (SHORTCUT + NORMALIZED + plus("s", "c", "x"), False),
    }.values(),
)  # fmt: skip
def test_which_sums_join_a_batch_norm(layers, joins):
    (found,) = (name for name in names(program(layers)) if name.startswith("bn+scale"))
    assert ("sum" in found) == joins
    fuses_to(layers, names(program(layers)), lambda x: x**2)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_of_a_batch_norm_and_a_sum_every_bit_is_the_same(device):
    """Also of zeros and of what is not finite."""
    device, m = fusing(device), cpu_ops.Maker(6)

    def computed(kind, *reads, a):
        e = m.example(kind, list(reads), [reads[0].shape], a)
        (got,) = cpu_ops.run(device, e, device.algorithms(e.op)[0])
        return np.where(np.isnan(got), np.float32(np.nan), got)  # all NaN alike: their signs and payloads may differ

    for c in (3, 8, 21):
        x, shortcut, a = m.normal(3, c, 7, 5), m.normal(3, c, 7, 5), cpu_ops.attrs(eps=1e-5)
        shortcut[0, 0, 0, :3], x[1, 1, 1, :3] = (np.nan, np.inf, -0.0), (np.inf, -np.inf, 0)
        channels = [m.normal(c), m.normal(c) ** 2, m.normal(c), m.normal(c)]
        running = [*channels[:2], np.float32([2.5]), *channels[2:]]
        plain = cpu_ops.attrs(operation="SUM", coeff=(1.0, 1.0), index=None)
        for what, given in (("normalize", channels), ("inference", running)):
            u = computed(f"batch_norm.{what}_scale", x, *given, a=a)
            want = computed("eltwise.forward_relu", shortcut, u, a=plain)
            got = computed(f"batch_norm.{what}_scale_add_relu", x, shortcut, *given, a=a)
            assert got.tobytes() == want.tobytes() and (got > 0).any() and (got == 0).any()


@pytest.mark.parametrize("policy", ["baseline:m", "liveness:m", "sqrt_n:m", "vdnn_all:m"])
def test_a_shortcut_that_joins_a_batch_norm_does_not_raise_resnet18_s_peak(policy):
    net, peaks = load("resnet18", 8), []
    for fuses in (lambda op: op.kind not in normalization.JOINED, every):
        made = programs(net, SPEC, ("TRAIN", "TEST"), fuses=fuses)
        schedules = arrange(list(made.values()), policy, profile("titan_x")).schedules
        peaks.append([schedules[phase].live_peak for phase in made])
    assert all(after <= before for before, after in zip(*peaks, strict=True))


def test_of_a_residual_block_only_what_the_device_has_is_fused():
    p = program(RECTIFIED + fork("b", "c", "d"))
    assert names(p, lambda op: every(op) and op.kind != sums.BACKWARD) == [BOTH[0], "c+b.sum_relu.y.grad", BOTH[1]]
    p = program(block(JOINED))
    assert names(p, lambda op: op.kind == sums.FORWARD) == RESIDUAL[:1]
    assert names(p, lambda op: op.kind == sums.BACKWARD) == RESIDUAL[1:]


def test_what_is_kept_of_a_residual_block_is_not_fused_away():
    assert names(program(block(JOINED), keep=["s"])) == RESIDUAL[1:]
    assert names(program(block(JOINED), keep=["y"])) == RESIDUAL
    assert names(program(block(JOINED), facts="layrub")) == [], "a mask is written, and backward reads it"
    assert names(program(block(JOINED), facts="superneurons")) == [], "ReLU's backward reads x and y"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_of_a_sum_and_its_relu_every_bit_is_the_same(device):
    """Also of zeros and of what is not finite."""
    device, m = fusing(device), cpu_ops.Maker(6)
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38, -3e38, 1e-42, 1, -1], np.float32)

    def computed(kind, *reads, a=None):
        e = m.example(kind, list(reads), [reads[0].shape], a)
        (got,) = cpu_ops.run(device, e, device.algorithms(e.op)[0])
        return np.where(np.isnan(got), np.float32(np.nan), got)  # all NaN alike: their signs and payloads may differ

    y, *xs = (m.random.choice(special, 40_000) for _ in range(5))
    a = cpu_ops.attrs(negative_slope=0.0, saved="y")
    for count in (2, 3, 4):
        total = xs[0]
        for x in xs[1:count]:
            total = computed("gradient.add", total, x)
        if count > 2:
            assert computed("gradient.sum", *xs[:count]).tobytes() == total.tobytes()
        want = computed("relu.backward", y, total, a=a)
        assert computed("gradient.sum_relu", y, *xs[:count]).tobytes() == want.tobytes()
        plain = cpu_ops.attrs(operation="SUM", coeff=(1.0,) * count, index=None)
        want = computed("relu.forward", computed("eltwise.forward", *xs[:count], a=plain), a=a)
        assert computed("eltwise.forward_relu", *xs[:count], a=plain).tobytes() == want.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["liveness:m", "sqrt_n:m", "vdnn_all:m"])
def test_gradients_that_wait_for_their_sum_do_not_raise_googlenet_s_peak(policy):
    net, peaks = load("googlenet", 8), []
    for fuses in (lambda op: every(op) and op.kind != sums.SUM, every):
        p = programs(net, SPEC, ("TRAIN",), fuses=fuses)["TRAIN"]
        peaks.append(arrange([p], policy, profile("titan_x")).schedules["TRAIN"].live_peak)
    assert peaks[1] <= peaks[0]


def test_what_is_kept_or_an_output_is_not_fused_away():
    apart = conv("conv", "data", "a") + relu("a", "x")
    assert names(program(apart, keep=["a"])) == BOTH[1:]
    assert names(program(apart, keep=["x"])) == BOTH
    scores = HEAD + conv("conv", "data", "a") + relu("a", "b")
    assert names(differentiate(graph(scores, "TEST"), FACTS["default"])) == ["conv+relu.forward"]


def test_other_facts_are_not_fused():
    assert names(program(IN_PLACE, facts="superneurons")) == [], "ReLU's backward reads x and y"
    assert names(program(IN_PLACE, facts="layrub")) == [], "a mask is written, too"
    net = load(NET_FILES / "lenet.yaml")
    for facts in FACTS:
        made = programs(net, SPEC, ("TRAIN", "TEST"), facts=FACTS[facts], fuses=every)
        assert bool(kinds(made["TRAIN"])) == bool(kinds(made["TEST"])) == (facts == "default"), facts


def test_without_updates_and_with_clipping_or_accumulation():
    for train in (None, TrainSpec(clip_gradients=1.0), TrainSpec(iter_size=2), TrainSpec(iter_size=2, accumulate=True)):
        assert names(program(IN_PLACE, train=train)) == BOTH
    assert names(program(IN_PLACE, "TEST")) == BOTH[:1]


def some(p: Program) -> dict[str, np.ndarray]:
    """Values of inputs and persistent tensors, by name."""
    random, values = np.random.default_rng(1), {}
    for t in (*p.inputs, *p.persistent):
        ints = t.role is Role.LABEL or t.dtype == "int64"
        values[t.name] = random.integers(0, 3, t.shape).astype(t.dtype) if ints else (
            random.standard_normal(t.shape).astype(t.dtype) ** 2 * 0.1
        )  # fmt: skip
    return values


@pytest.mark.parametrize("net", SMALL_NETS)
def test_the_same_values_op_by_op(net):
    """All that is still there has the same bytes (tests/support/interpret.py also tries each op in place)."""
    loaded = load(NET_FILES / f"{net}.yaml")
    for before in programs(loaded, SPEC, ("TRAIN", "TEST")).values():
        after, values = fused(before, every), some(before)
        assert len(after.ops) < len(before.ops) or net == "diamond"
        want, got = run(before, values), run(after, values)
        assert [n for n in got if want[n].tobytes() != got[n].tobytes()] == []
        assert want.keys() - got.keys() == {t.name for t in before.tensors} - {t.name for t in after.tensors}


def trained(net: str, device: str, fuse: bool, policy: str = "vdnn_all:m") -> tuple[dict, list[float], list[str]]:
    random = np.random.default_rng(7)
    data = random.standard_normal((24, 3, 12, 12)).astype(np.float32), random.integers(0, 5, 24).astype(np.int32)
    p = dict(base_lr=0.02, momentum=0.9, weight_decay=5e-4, lr_policy="fixed", max_iter=9)
    with minidnn.Solver(
        load(NET_FILES / f"{net}.yaml"), policy=policy, device=device, seed=3, data=data, test_data=data, fuse=fuse, **p
    ) as solver:
        losses = [solver.step().loss for _ in range(3)]
        tested = solver.test()
        values = {name: array.tobytes() for name, array in solver.values().items()}
        return values, [*losses, *tested.outputs.values()], kinds(solver.session.programs["TRAIN"])


@pytest.mark.parametrize("net", ["chain", "residual", "nested", "lenet"])
def test_trains_to_the_same_bytes_with_and_without(net):
    want, losses, none = trained(net, "reference", False)
    got, got_losses, some = trained(net, "reference", True)
    assert none == [] and some != [] and got_losses == losses
    assert [n for n in want if want[n] != got[n]] == []


def test_the_cpu_fuses_where_it_has_kernels_of_its_own():
    if open_device("cpu").native is None:
        pytest.skip("none of our own kernels")
    _, losses, none = trained("chain", "cpu", False)
    _, got, some = trained("chain", "cpu", True)
    assert none == [] and {"convolution.forward_relu", "relu.backward_bias"} <= set(some)
    assert np.allclose(got, losses, rtol=1e-4)


def test_a_snapshot_says_what_was_fused(tmp_path):
    data = np.zeros((8, 3, 12, 12), np.float32), np.zeros(8, np.int32)
    given = dict(device="reference", seed=1, data=data, base_lr=0.01, lr_policy="fixed", max_iter=2)
    with minidnn.Solver(load(NET_FILES / "lenet.yaml"), **given) as solver:
        solver.step()
        path = solver.save(tmp_path / "a").path
        assert solver.session.programs["TRAIN"].ops[0].name == "conv1.forward", "lenet pools before its only ReLU"
    with minidnn.Solver(load(NET_FILES / "lenet.yaml"), **given, fuse=False, resume=path) as solver:
        (note,) = [n for n in solver.notes if n.startswith("fused")]
        assert "last bits may differ" in note and "relu.backward_bias" in note
    with minidnn.Solver(load(NET_FILES / "lenet.yaml"), **given, resume=path) as solver:
        assert solver.notes == []


def test_a_device_that_says_nothing_of_fusion_fuses_nothing():
    class Plain(ReferenceDevice):
        """As a user's own may be."""

        fuses = Device.fuses

    with Session(load(NET_FILES / "lenet.yaml"), None, ("TRAIN",), device=Plain()) as session:
        assert kinds(session.programs["TRAIN"]) == []


def test_a_simulated_gpu_costs_a_fused_op_as_its_convolution():
    before = program(IN_PLACE)
    after, costs = fused(before, as_cuda), profile("titan_x")
    (one,), apart = (op for op in after.ops if op.kind == "convolution.forward_relu"), before.ops[:2]
    assert [c.algorithm for c in costs.choices(one)] == [c.algorithm for c in costs.choices(apart[0])]
    assert len(costs.choices(one)) == 2, "with and without a workspace"
    assert one.nbytes < sum(op.nbytes for op in apart)
    for c in costs.choices(one):
        assert c.seconds < sum(costs.seconds(op, costs.choices(op)[0].algorithm) for op in apart)
    back = next(op for op in after.ops if op.kind == "relu.backward_bias")
    pair = [op for op in before.ops if op.name in ("relu.backward", "conv.backward_bias")]
    assert gpu("titan_x").choices(back)[0].seconds < sum(gpu("titan_x").choices(op)[0].seconds for op in pair)
    plans = [arrange([p], "vdnn_all:p", costs) for p in (before, after)]
    assert plans[1].arena <= plans[0].arena
    assert "compute   conv+relu.forward" in str(plans[1].schedules["TRAIN"])


def test_a_simulated_gpu_costs_a_fused_batch_norm_as_three_passes_over_memory_and_its_backward_as_five():
    """One for the moments, two to normalize. Backward reads x and dy twice, since its sums come first, by a kernel of
    their own."""
    after, titan = fused(program(ALL), as_cuda), gpu("titan_x")
    rate = titan.memory_bandwidth.value * titan.bandwidth.value
    for name, passes, kernels in zip(ONCE, (1, 2, 5), (1, 1, 2), strict=True):
        op = next(op for op in after.ops if op.name == name)
        moved = (titan.choices(op)[0].seconds - kernels * titan.launch_latency.value) * rate
        assert moved == pytest.approx(passes * op.reads[0].nbytes, rel=0.05), "parameters and statistics are small"


def test_a_gpu_has_a_product_with_a_relu_where_it_adds_a_bias():
    p = program(conv("conv", "data", "x", BIASLESS) + relu("x", "x"))
    assert names(p) and names(p, as_cuda) == []


def test_a_pair_is_taken_once():
    """An op belongs to one pair only: what is fused forward is no more what backward's pair was made of."""
    p = fused(program(IN_PLACE), every)
    assert fused(p, every).ops == p.ops
    assert open_device("reference").fuses(p.ops[0])
