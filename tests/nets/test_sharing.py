"""Parameters that layers share by name: one tensor with one gradient, one momentum, one blob in files."""

from __future__ import annotations

import numpy as np
import pytest

import minidnn
from minidnn.layers.base import ShapeError
from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.placement import place
from minidnn.memory.plan import Plan, complete
from minidnn.memory.planning import arrange
from minidnn.memory.policies import CHOOSING
from minidnn.memory.proof.verify import ScheduleError, verify
from minidnn.nets.net import Net
from minidnn.optimizers import SGD
from minidnn.programs.autodiff import differentiate
from minidnn.programs.spec import TrainSpec
from minidnn.schema import InvalidFile
from minidnn.training.parameters import WeightsError
from tests.programs.test_autodiff import in_torch, start
from tests.support.graphs import graph, net
from tests.support.interpret import run
from tests.support.mutate import without
from tests.support.policies import FEW
from tests.support.programs import costs
from tests.support.slow import quick_are
from tests.support.trains import train

DATA = "- {name: data, type: Input, top: data, input_param: {shape: {dim: [4, 6]}}}\n"
IP = (
    "- {{name: {0}, type: InnerProduct, bottom: {1}, top: {0}, param: {2}, inner_product_param: {{num_output: {3}}}}}\n"
)


def ip(name, bottom="data", param="{name: w}", outputs=6):
    return IP.format(name, bottom, param, outputs)


def parameter(text, layer, phase="TRAIN"):
    return graph(DATA + text, phase)[layer].parameters[0]


# ---- one tensor


def test_the_first_layer_of_the_file_gives_tensor_and_filler():
    g = net("shared")
    own = [[g[layer].tensor_name(p) for p in g[layer].parameters] for layer in ("left", "right", "third", "again")]
    assert own == [["left.w", "left.b"], ["left.w", "left.b"], ["left.w"], ["scale.gamma"]]
    drawn = minidnn.load("tests/support/nets/shared.yaml").initial(seed=5)
    assert {"left.w", "left.b"} <= drawn.keys() and not {"right.w", "third.w"} & drawn.keys()
    assert drawn["left.w"].any(), "the filler of the first, as right and third have none"


def test_a_program_has_one_weight_one_momentum_and_one_update():
    program = differentiate(net("shared"), train=TrainSpec(SGD(momentum=0.9)))
    assert [t.name for t in program.persistent if t.name.startswith(("left.", "right.", "third.", "again."))] == [
        "left.w", "left.b", "left.w.momentum", "left.b.momentum",
    ]  # fmt: skip
    ops = {op.name: op for op in program.ops}
    parts = [f"left.w.grad.part.{layer}" for layer in ("third", "right", "left")]
    assert [t.name for t in ops["right.add_left.w.grad.sum2"].reads] == parts[:2]
    assert [t.name for t in ops["left.add_left.w.grad"].reads] == ["left.w.grad.sum2", parts[2]]
    order = list(ops)
    readers = [op.name for op in program.ops if any(t.name == "left.w" for t in op.reads)]
    assert readers[-1] == "left.update_w" and order.index("left.add_left.w.grad") < order.index("left.update_w")


def test_an_owner_that_has_no_backward_leaves_the_sum_to_the_others():
    text = f"""{DATA}{ip("a")}{ip("b")}{ip("c", "b")}
- {{name: label, type: Input, top: label, input_param: {{shape: {{dim: 4}}}}}}
- {{name: loss, type: SoftmaxWithLoss, bottom: [c, label], top: loss}}
"""
    ops = [op.name for op in differentiate(graph(text), train=TrainSpec()).ops]
    assert "b.add_a.w.grad" in ops and "b.update_w" in ops and "a.backward_filter" not in ops


@pytest.mark.peer("torch")
def test_the_gradient_is_the_sum_of_all_layers():
    g = net("shared")
    program = differentiate(g)
    values = start(program, 4)
    for node in g.layers:  # PyTorch has a tensor of its own for each layer
        values |= {f"{node.name}.{p.name}": values[node.tensor_name(p)] for p in node.parameters}
    held = run(program, values, "float64")
    objective, learned = in_torch(g, values)
    objective.backward()
    for shared, layers in {"left.w": ["left", "right", "third"], "left.b": ["left", "right"]}.items():
        own = [learned[f"{layer}.{shared[-1]}"].grad.numpy() for layer in layers]
        assert all(part.any() for part in own)
        np.testing.assert_allclose(held[f"{shared}.grad"], sum(own), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("format", ["bfloat16", "float16"])
def test_in_16_bits_one_cast_makes_one_copy(format):
    g = minidnn.load("tests/support/nets/shared.yaml").graph("TRAIN", format=format)
    program = differentiate(g, train=TrainSpec(iter_size=2))
    casts = [op for op in program.ops if op.kind == "cast.forward" and op.reads[0].name == "left.w"]
    assert [op.name for op in casts] == ["left.cast_w"]
    adds = {op.writes[0].name: op.writes[0].dtype for op in program.ops if op.kind == "gradient.add"}
    assert adds["left.w.grad"] == format and adds["scale.gamma.grad"] == "float32"


# ---- Caffe's rules


@pytest.mark.parametrize(
    ("first", "second", "mults"),
    [
        ("{name: w}", "{name: w}", (1, 1)),
        ("{name: w, lr_mult: 3}", "{name: w, decay_mult: 0}", (3, 0)),
        ("{name: w}", "{name: w, lr_mult: 0}", (0, 1)),
        ("{name: w, lr_mult: 2}", "{name: w, lr_mult: 2, share_mode: PERMISSIVE}", (2, 1)),
    ],
)
def test_a_multiplier_holds_for_all_if_one_gives_it(first, second, mults):
    for layer in "ab":
        p = parameter(ip("a", param=first) + ip("b", param=second), layer)
        assert (p.lr_mult, p.decay_mult) == mults


@pytest.mark.parametrize("field", ["lr_mult", "decay_mult"])
def test_two_multipliers_that_differ_are_refused(field):
    with pytest.raises(InvalidFile, match=rf"param\.{field}: layer 'a' shares 'w' and gives it 1, got 2; give one"):
        Net.from_text(
            f"layer:\n{DATA}{ip('a', param=f'{{name: w, {field}: 1}}')}{ip('b', param=f'{{name: w, {field}: 2}}')}"
        )


def test_two_parameters_of_one_layer_have_two_names():
    with pytest.raises(InvalidFile, match="another parameter of the layer is called 'w'"):
        Net.from_text(f"layer:\n{DATA}{ip('a', param='[{name: w}, {name: w}]')}")


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (ip("b", outputs=5), r"its w of 5x6 cannot be the w of layer 'a', 6x6: layers share 'w' only in one shape"),
        (
            "- {name: b, type: BatchNorm, bottom: data, top: b, param: [{name: x}, {name: w2}]}\n",
            r"its variance_sum and the b of layer 'a' are a running statistic and a weight: they cannot share",
        ),
    ],
)
def test_what_cannot_be_shared_is_refused(second, says):
    with pytest.raises(ShapeError, match=says):
        parameter(ip("a", param="[{name: w}, {name: w2}]") + second, "a")


def test_a_phase_without_the_owner_has_its_tensor_all_the_same():
    first = ip("a").replace("type:", "include: {phase: TRAIN}, type:", 1)
    made = Net.from_text(f"layer:\n{DATA}{first}{ip('b')}")
    for phase in ("TRAIN", "TEST"):
        g = made.graph(phase)
        assert g["b"].tensor_name(g["b"].parameters[0]) == "a.w"


def test_a_test_net_that_shares_otherwise_is_refused():
    """Caffe's test net would take the shared blob by the layer's name; here the names must say so."""
    text = "- {name: label, type: Input, top: label, input_param: {shape: {dim: 4}}}\n" + ip("a")
    end = "- {name: loss, type: SoftmaxWithLoss, bottom: [b, label], top: loss}\n"
    test = Net.from_text(f"layer:\n{DATA}{text}{ip('b', 'a', '[]')}{end}")
    made = Net.from_text(f"layer:\n{DATA}{text}{ip('b', 'a')}{end}")
    with pytest.raises(ShapeError, match=r"layer 'b': its w is b\.w in phase TEST, but a\.w in phase TRAIN"):
        minidnn.Session(made, phases=("TRAIN", "TEST"), tests=[test])


# ---- the promise


@pytest.mark.parametrize("options", [{}, dict(clip_gradients=0.5, iter_size=2)], ids=["", "clipped"])
@pytest.mark.parametrize("policy", quick_are(["vdnn_all:m"], [*FEW, "recompute_all:m", "superneurons", "best"]))
def test_bit_identical_to_baseline(policy, options):
    device = "reference" if policy in CHOOSING else "cpu"  # where all have the same algorithms
    suffix = "p" if policy.endswith(":p") else "m"
    want, losses, algorithms = train("shared", device, f"baseline:{suffix}", **options)
    got, got_losses, got_algorithms = train("shared", device, policy, debug=True, delays=1e-3, **options)
    assert got_algorithms == algorithms and got_losses == losses and got == want


def test_the_proof_knows_that_the_weight_is_one():
    """Update it before another layer's backward has read it, leave out a part of its gradient: both are refused."""
    program = differentiate(net("shared"), train=TrainSpec(SGD(momentum=0.9)))
    order = list(program.ops)
    at = {op.name: i for i, op in enumerate(order)}
    order.insert(at["left.backward_filter"], order.pop(at["left.update_w"]))
    with pytest.raises(ValueError, match="left"):
        verify(place(lower(program, complete(program, costs(), Plan(order=tuple(order))))))
    s = arrange([program], "vdnn_all:m", costs()).schedules["TRAIN"]
    verify(s)
    for name in ("left.add_left.w.grad", "right.add_left.w.grad.sum2", "third.backward_filter"):
        i = next(i for i, x in enumerate(s.instructions) if getattr(getattr(x, "op", None), "name", "") == name)
        with pytest.raises(ScheduleError):
            verify(without(s, i))


# ---- snapshots and weights


@pytest.fixture
def session():
    with minidnn.Session(minidnn.load("tests/support/nets/shared.yaml"), device="reference") as s:
        yield s


def test_a_snapshot_has_one_blob_and_each_layer_shows_it(session):
    assert [name for name in session.weights() if name.split("/")[0] in ("left", "right", "third")] == [
        "left/w", "left/b",
    ]  # fmt: skip
    session.params["third"]["w"] = np.full((6, 6, 3, 3), 2, np.float32)
    assert (session.params["left"]["w"] == 2).all() and (session.weights()["left/w"] == 2).all()


def test_weights_may_have_the_name_of_any_layer_as_in_caffe_s_files(session):
    w = np.full((6, 6, 3, 3), 3, np.float32)
    loaded = session.load({"right/w": w})
    assert (session.params["left"]["w"] == 3).all() and "left/w" not in loaded.missing and "left/b" in loaded.missing
    session.load({name: 4 * w / 3 for name in ("left/w", "right/w", "third/w")})
    with pytest.raises(WeightsError, match="left/w and third/w are one parameter, but are given with different values"):
        session.load({"left/w": w, "third/w": w + 1})
    assert (session.params["left"]["w"] == 4).all()


def test_a_run_resumed_is_the_run(tmp_path):
    def solver(**options):
        random = np.random.default_rng(1)
        data = random.standard_normal((12, 3, 12, 12)).astype(np.float32), random.integers(0, 5, 12)
        return minidnn.Solver(
            minidnn.load("tests/support/nets/shared.yaml"), data=data, seed=3, device="reference", momentum=0.9,
            snapshot_prefix=str(tmp_path / "s"), **options,
        )  # fmt: skip

    with solver() as one:
        one.step(2)
        path = one.save().path
        one.step(2)
    with solver(resume=path) as other:
        other.step(2)
        assert {k: v.tobytes() for k, v in one.values().items()} == {k: v.tobytes() for k, v in other.values().items()}
