"""vDNN (MICRO 2016): which maps leave, beside which layers, when they come back, and what vdnn_dyn tries, in order.

The paper's figures are in tests/papers/test_vdnn.py, its listings in tests/golden."""

from __future__ import annotations

import pytest

from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.plan import complete
from minidnn.memory.planning import arrange
from minidnn.memory.policies import find
from minidnn.memory.policies.papers import vdnn
from minidnn.memory.policies.papers.vdnn import Layer, feature_extraction
from minidnn.memory.schedule import Compute, Offload, Prefetch, Wait
from minidnn.nets.net import Net
from minidnn.program import Program, Tensor
from minidnn.programs.build import programs
from tests.support.oracle import broken
from tests.support.paths import NET_FILES
from tests.support.programs import KB, PROGRAMS, Builder, chain, costs, normed
from tests.support.schedules import positions


def small_net(name: str) -> Program:
    return programs(Net.from_file(NET_FILES / f"{name}.yaml"), None, ("TRAIN",))["TRAIN"]


def offloads(program: Program, policy: str) -> dict[str, tuple[str, str, str, str]]:
    """{tensor: the ops at which it goes out, is free, begins to come back, has arrived}."""
    name = [op.name for op in program.ops]
    return {
        t.tensor.name: (name[t.offload_at], name[t.free_at], name[t.prefetch_at], name[t.needed_at])
        for t in find(policy)(program, costs(), 1 << 40).offloads
    }


# ---- who leaves


def test_vdnn_all_offloads_every_x_and_vdnn_conv_those_of_convolutions():
    """Not what a ReLU in place overwrites, nor the classifier's X, nor the X of a sum: nothing in backward reads it."""
    program = normed(2)
    everything = {
        "data",
        "stem.y",
        "conv0.y",
        "relu0.y",
        "conv1.y",
        "relu1.y",
    }  # of batch_norm: conv.y; of pool: relu1.y
    assert set(offloads(program, "vdnn_all:m")) == everything
    assert set(offloads(program, "vdnn_conv:m")) == {"data", "stem.y", "relu0.y"}


@pytest.mark.parametrize(
    ("net", "everything", "of_convolutions"),
    [
        ("chain", {"data", "relu1.y", "pool1.y", "relu2.y"}, {"data", "pool1.y"}),  # of LRN and of a pooling, too
        ("lenet", {"data", "pool1.y"}, {"data", "pool1.y"}),  # max pooling keeps indices, so that its X is not read
        ("nested", {"data", "rd.y", "a.y", "c.y", "ri.y"}, {"data", "a.y", "c.y"}),  # of products of maps
        (
            "residual",
            {"data", "stem.y", "bn_stem.y", "relu0.y", "r1.y", "r2.y"}  # of BatchNorm, of Scale, of convolutions
            | {f"{x}{part}.y" for x in ("c", "bn_c") for part in ("1a", "1b", "2a", "2b")}
            | {"r1a.y", "r2a.y"},
            {"data", "r1a.y", "relu0.y", "r2a.y", "r1.y"},
        ),
    ],
)
def test_who_leaves_of_real_layers(net, everything, of_convolutions):
    program = small_net(net)
    assert set(offloads(program, "vdnn_all:m")) == everything
    assert set(offloads(program, "vdnn_conv:m")) == of_convolutions


def test_a_layer_of_two_ops_sends_its_x_from_its_first_op_and_frees_it_after_its_last():
    """BatchNorm, then its statistics."""
    assert offloads(small_net("residual"), "vdnn_all:m")["stem.y"][:2] == ("bn_stem.forward", "scale_stem.forward")


def test_a_forked_map_leaves_with_its_last_consumer():
    s = arrange([PROGRAMS["nested"]()], "vdnn_all:m", costs()).schedules["TRAIN"]
    out = positions(s, Offload, "c.y")[0]
    last = max(i for i, x in enumerate(s.instructions) if isinstance(x, Compute) and "forward" in x.op.name
               and any(t.name == "c.y" for t in x.op.reads))  # fmt: skip
    assert out < last
    earlier = [i for i, x in enumerate(s.instructions) if isinstance(x, Compute) and "forward" in x.op.name
               and any(t.name == "c.y" for t in x.op.reads) and i < last]  # fmt: skip
    assert max(earlier) < out


def forked() -> Program:
    """`a` is read by a convolution and, after that, by two poolings; `c` by a pooling and by the classifier."""
    b = Builder()
    a = b.add("a", "convolution", "data")
    c, d, e = b.add("c", "convolution", a), b.add("d", "pooling", a), b.add("e", "pooling", a)
    x = b.add("join", "concat", b.add("f", "pooling", c), d, e, c)
    b.add("fc", "inner_product", b.add("all", "concat", b.add("low", "inner_product", c, size=4), x), size=4)
    return b.program()


def test_a_forked_map_is_offloaded_where_any_of_its_consumers_is_of_a_kind_that_is():
    program = forked()
    assert offloads(program, "vdnn_conv:m")["a.y"][0] == "e.forward", "a convolution's X, and a pooling reads it last"
    assert "c.y" not in offloads(program, "vdnn_all:m"), "the classifier reads it last: it stays"


def test_weights_and_the_classifier_never_leave():
    for make in PROGRAMS.values():
        s = arrange([make()], "vdnn_all:m", costs()).schedules["TRAIN"]
        moved = {x.residency.tensor.name for x in s.instructions if isinstance(x, (Offload, Prefetch))}
        assert not any(name.endswith((".w", "grad")) or name.startswith("fc") for name in moved)


def test_the_classifier_is_all_that_an_inner_product_feeds():
    b = Builder()
    low = b.add("low", "inner_product", b.add("a", "convolution", "data"), size=16)
    after = b.add("after", "relu", b.add("late", "convolution", low), size=64)
    aside = b.add("aside", "pooling", "a", size=16)
    b.add("top", "inner_product", b.add("join", "concat", after, aside), size=4)
    assert [layer.name for layer in feature_extraction(b.program())] == ["a", "aside"]


# ---- when


def test_vdnn_all_is_the_papers_machinery_on_a_chain():
    """Rhu et al. III-B: offload beside the layer, a barrier at its end; prefetch by Figure 10's window, done before
    the next layer's backward."""
    s = arrange([chain(4)], "vdnn_all:m", costs()).schedules["TRAIN"]
    x = s.instructions
    for n in range(1, 4):
        conv = positions(s, Compute, f"conv{n}.forward")[0]
        out = positions(s, Offload, f"relu{n - 1}.y")[0]
        following = positions(s, Compute, f"relu{n}.forward")[0]
        assert out < conv < following  # issued beside FWD(n)
        barrier = [i for i, w in enumerate(x) if isinstance(w, Wait) and w.stream == "compute" and w.on == out]
        assert conv < barrier[0] < following  # n+1 does not start before the copy is done
    # Figure 10 from conv3's backward finds conv2; its X comes back beside BWD(conv3), done before BWD(relu2)
    fetch = positions(s, Prefetch, "relu1.y")[0]
    assert positions(s, Compute, "relu3.backward.0")[0] < fetch < positions(s, Compute, "conv3.backward_filter")[0]
    arrive = next(i for i, w in enumerate(x) if isinstance(w, Wait) and w.stream == "compute" and w.on == fetch)
    assert arrive < positions(s, Compute, "relu2.backward.0")[0]


def test_the_offloads_of_a_chain():
    """Out beside the layer, free at its end; back beside the layer whose search finds it, there at that layer's end.
    (What comes after a convolution's backward is its update.)"""
    assert offloads(chain(3), "vdnn_all:m") == {
        "data": ("conv0.forward", "relu0.forward", "conv1.backward_filter", "conv1.update_w"),
        "relu0.y": ("conv1.forward", "relu1.forward", "conv2.backward_filter", "conv2.update_w"),
        "relu1.y": ("conv2.forward", "relu2.forward", "pool.backward.0", "relu2.backward.0"),
        # no layer's search finds the last one's X: it is fetched where it is read
        "relu2.y": ("pool.forward", "fc.forward", "pool.backward.0", "pool.backward.0"),
    }


def test_beside_a_layer_without_a_backward_a_map_is_fetched_where_it_is_read():
    """Nothing of a pooling of the batch runs in backward, and its search is the one that finds `left`."""
    b = Builder()
    left = b.add("left", "convolution", b.add("first", "convolution", "data"))
    b.add("top", "inner_product", b.add("join", "concat", left, b.add("thumb", "pooling", "data", size=16)), size=4)
    found = offloads(b.program(), "vdnn_all:m")
    assert found["data"] == ("thumb.forward", "join.forward", "join.backward.0", "left.backward_filter")
    assert found["first.y"] == ("left.forward", "thumb.forward", "left.backward_filter", "left.backward_filter")


@pytest.mark.parametrize(
    ("layers", "found"),
    [
        ("conv* conv* conv*", {1: 2, 0: 1}),
        ("conv* relu conv* relu pool*", {2: 4, 0: 2}),  # pool looks past relu; from relu, conv* ends the window
        ("conv* pool*", {0: 1}),  # nobody finds the last layer's
        ("conv* pool* norm* pool*", {2: 3, 1: 2, 0: 1}),  # one for each layer, the nearest first
        ("conv* relu relu relu", {0: 3}),  # found from the last layer, and not again
        ("conv* conv pool pool*", {0: 1}),  # a convolution ends the window also if its X stays ...
        ("conv* conv pool", {0: 1}),  # ... and is where the search goes on
        ("conv* norm relu conv norm* relu", {4: 5, 0: 3}),
        ("pool* conv relu", {0: 1}),  # pool's lies below the convolution
        ("conv* pool* conv", {1: 2, 0: 1}),
        ("pool pool", {}),
    ],
)
def test_the_window_of_figure_10(layers, found):
    """{layer: layer beside whose backward its X comes back}; a star: its X is on the host."""
    of = [
        Layer(str(k), convolution=name.startswith("conv"), leaving=[Tensor("x", (1,))] if name.endswith("*") else [])
        for k, name in enumerate(layers.split())
    ]
    assert {int(k): int(m.name) for k, m in vdnn._prefetches(of).items()} == found


# ---- vdnn_dyn


FIXED = ("liveness:p", "vdnn_conv:p", "vdnn_all:p", "vdnn_all:m")  # in the order of trials; the last is the leanest


def arena(program, policy, budget=None):
    return arrange([program], policy, costs(), budget).arena


def decided(program, policy, budget=0):
    plan = complete(program, costs(), find(policy)(program, costs(), budget))
    return plan.order, plan.offloads, plan.algorithm, plan.share, plan.hold


def taken(program, budget):
    """Which fixed policy's plan vdnn_dyn takes; None: one of its own."""
    dyn = decided(program, "vdnn_dyn", budget)
    return next((name for name in FIXED if decided(program, name) == dyn), None)


def test_vdnn_dyn_tries_no_offload_then_conv_then_all_with_the_fastest_algorithms():
    program = normed()
    sizes = {policy: arena(program, policy) for policy in FIXED}
    assert sorted(set(sizes.values()), reverse=True) == list(sizes.values()), "each takes less than the one before"
    *fastest, (leanest, least) = sizes.items()
    for policy, size in fastest:
        assert taken(program, size) == policy
        assert taken(program, size - 1) != policy
    for budget in (least - 1, 0):  # where not even all(m) fits it is all(m) that a refusal names
        assert taken(program, budget) == leanest


@pytest.mark.parametrize(("program", "policy"), [(chain(4), "vdnn_conv:m"), (normed(), "vdnn_all:m")])
def test_then_algorithms_are_chosen_greedily_with_the_offloads_of_conv_and_then_of_all(program, policy):
    """Where all(p) does not fit. On a chain of convolutions conv moves enough; with BatchNorm it does not."""
    budget = arena(program, "vdnn_all:p") - 4 * KB
    assert taken(program, budget) is None
    _, offloads, algorithm, _, _ = decided(program, "vdnn_dyn", budget)
    assert offloads == decided(program, policy)[1]
    assert {a.name for op, a in algorithm.items() if op.family == "convolution"} == {"slow", "fast"}


def test_the_greedy_choice_is_the_fastest_that_fits_beside_what_is_live():
    """Maps of several sizes: a convolution takes the 40 KiB where so much is free beside what is live at it, however
    many others do. (It may have to be a little more, for the placement's sake.)"""
    b, x = Builder(64), "data"
    for i, size in enumerate((32, 64, 48, 64)):
        x = b.add(f"relu{i}", "relu", b.add(f"conv{i}", "convolution", x, size=size), size=size)
    b.add("fc", "inner_product", x, size=4)
    program = b.program()
    slow = []
    for budget in range(arena(program, "vdnn_conv:m"), arena(program, "vdnn_conv:p"), 4 * KB):
        s = arrange([program], "vdnn_dyn", costs(), budget).schedules["TRAIN"]
        assert s.arena <= budget and broken(s) is None
        needs = {"slow": [], "fast": []}
        for op, nbytes in zip(program.ops, s.curve(), strict=True):
            if op.family == "convolution":
                algorithm = s.plan.algorithm[op]
                needs[algorithm.name].append(nbytes - algorithm.workspace + 40 * KB)
        assert max(needs["fast"]) < min(needs["slow"])
        slow.append(len(needs["slow"]))
    assert sorted(slow, reverse=True) == slow and set(slow) == {3, 2, 1}, "more memory, more of the fastest"


def test_vdnn_dyn_keeps_its_budget_is_no_slower_with_more_and_names_its_leanest_when_nothing_fits():
    program = PROGRAMS["chain"]()
    free, lean = arena(program, "liveness:p"), arena(program, "vdnn_all:m")
    seconds = []
    for budget in (free, (free + lean) // 2, lean):
        s = arrange([program], "vdnn_dyn", costs(), budget=budget).schedules["TRAIN"]
        assert s.arena <= budget
        seconds.append(simulate(s, costs()).seconds)
    assert seconds == sorted(seconds)
    with pytest.raises(BudgetError) as e:
        arrange([program], "vdnn_dyn", costs(), budget=lean - 256)
    assert e.value.smallest == lean
