"""Recomputation: what runs again, how much it saves, and that masks and statistics come out as if nothing did."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minidnn
from minidnn.backends.reference import KERNELS
from minidnn.memory.plan import in_place_sharing
from minidnn.memory.planning import arrange
from minidnn.memory.policies.shared.recompute import Repeatable
from minidnn.optimizers import SGD
from minidnn.program import FORWARD, Pass, Role
from minidnn.programs.build import programs
from minidnn.programs.fusion import as_cuda
from minidnn.programs.spec import TrainSpec
from tests.support.examples import examples
from tests.support.oracle import broken
from tests.support.paths import NET_FILES
from tests.support.programs import PROGRAMS, chain, costs, random_graph, wild_graph

POLICIES = [
    "sqrt_n:m",
    "recompute_all:m",
    "recompute_cheap:m",
    "superneurons_speed:m",
    "superneurons_memory:m",
    "superneurons_cost_aware:m",
]


def scheduled(program, policy):
    return arrange([program], policy, costs()).schedules["TRAIN"]


@pytest.mark.parametrize("policy", POLICIES)
@given(st.integers(0, 1 << 30), st.integers(2, 20))
@examples(10)
def test_any_graph_is_proved_and_the_oracle_agrees(policy, seed, layers):
    assert broken(scheduled(random_graph(seed, layers), policy)) is None


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_only_forward_runs_again_and_no_more_is_held(name, policy):
    p = PROGRAMS[name]()
    s = scheduled(p, policy)
    runs = Counter(s.plan.order)
    assert set(runs) == set(p.ops)
    assert all(op.during in FORWARD for op, count in runs.items() if count > 1)
    assert s.live_peak <= scheduled(p, "liveness:m").live_peak


@pytest.mark.parametrize("policy", POLICIES)
def test_a_fused_batch_norm_runs_again_without_its_moments(policy):
    """They are kept, since backward reads them. So x is read once."""
    net = minidnn.load(NET_FILES / "residual.yaml")
    s = scheduled(programs(net, TrainSpec(SGD()), ("TRAIN",), fuses=as_cuda)["TRAIN"], policy)
    again = {op.kind for op in Counter(s.plan.order) - Counter(s.program.ops)}
    assert "batch_norm.moments" in {op.kind for op in s.program.ops}
    assert "batch_norm.normalize_scale_relu" in again and "batch_norm.moments" not in again


def maps(n, policy):
    """Most bytes of feature maps and gradients held at once, in maps, and the runs of a chain of 2n equal layers."""
    p = chain(n)
    s = scheduled(p, policy)
    held = s.curve(frozenset({Role.ACTIVATION, Role.GRADIENT, Role.EXTRA})).max() / (64 << 10)
    return held, len(s.plan.order) - len(p.ops)


def test_sqrt_n_holds_the_root_of_a_chain_for_one_more_forward_pass():
    for n in (16, 64, 144):
        held, again = maps(n, "sqrt_n:m")
        assert held <= 2 * n**0.5 + 4
        assert again <= 2 * n + 2


@pytest.mark.slow
def test_halving_holds_the_logarithm_of_a_chain():
    for n in (16, 64, 256):
        held, again = maps(n, "recompute_all:m")
        assert held <= 2 * np.log2(n) + 4
        assert again <= 2 * n * np.log2(n)
    assert maps(256, "recompute_all:m")[0] < maps(256, "sqrt_n:m")[0]


def test_what_backward_is_done_with_is_not_made_again_of_an_updated_weight():
    """Two convolutions of the batch: the later one's backward reads nothing that was dropped, and so updates its weight
    before the part of forward that both are in runs again."""
    s = scheduled(wild_graph(1032, 12), "recompute_all:m")  # proved; it was refused
    updated = set()
    for op in s.plan.order:
        assert not (op.during in FORWARD and updated.intersection(op.reads))
        updated.update(op.writes if op.during is Pass.UPDATE else ())


def test_what_updates_or_leaves_never_runs_again():
    p = programs(minidnn.load(NET_FILES / "residual.yaml"), TrainSpec(SGD(momentum=0.9)), ("TRAIN",))["TRAIN"]
    able = Repeatable(p, in_place_sharing(p))
    kinds = {op.kind for op in able.maker.values()}
    assert "batch_norm.forward" in kinds
    assert not kinds & {"batch_norm.statistics", "softmax_loss.forward", "objective.forward"}
    runs = Counter(op.name for op in scheduled(p, "superneurons_memory:m").plan.order)
    assert max(runs.values()) > 1
    assert all(count == 1 for name, count in runs.items() if "statistics" in name)


BLOCK = """
- {{name: conv{k}, type: Convolution, bottom: {bottom}, top: conv{k},
   convolution_param: {{num_output: 8, kernel_size: 3, pad: 1, weight_filler: {{type: msra}}}}}}
- {{name: norm{k}, type: BatchNorm, bottom: conv{k}, top: norm{k}}}
- {{name: drop{k}, type: Dropout, bottom: norm{k}, top: drop{k}, dropout_param: {{dropout_ratio: 0.4}}}}
- {{name: relu{k}, type: ReLU, bottom: drop{k}, top: relu{k}}}"""
BLOCKS = 6
NET = f"""
name: masked
layer:
- {{name: data, type: Input, top: data, input_param: {{shape: {{dim: [6, 3, 12, 12]}}}}}}
- {{name: label, type: Input, top: label, input_param: {{shape: {{dim: 6}}}}}}
{"".join(BLOCK.format(k=k, bottom=f"relu{k - 1}" if k else "data") for k in range(BLOCKS))}
- {{name: ip, type: InnerProduct, bottom: relu{BLOCKS - 1}, top: ip,
   inner_product_param: {{num_output: 5, weight_filler: {{type: xavier}}}}}}
- {{name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}}
"""


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_dropout_masks_and_statistics_are_those_of_no_recomputation(policy, monkeypatch):
    kernel = KERNELS["dropout.forward"]

    def trained(name):
        drawn = []  # (layer, iteration, what was dropped) of each run
        monkeypatch.setitem(KERNELS, "dropout.forward", lambda a, reads, writes: spied(drawn, a, reads, writes))
        random = np.random.default_rng(7)
        data = random.standard_normal((24, 3, 12, 12)).astype(np.float32), random.integers(0, 5, 24).astype(np.int32)
        with minidnn.Solver(
            minidnn.Net.from_text(NET), policy=name, device="reference", seed=3, data=data, debug=True,
            base_lr=0.02, momentum=0.9, lr_policy="fixed", max_iter=9,
        ) as solver:  # fmt: skip
            losses = [solver.step().loss for _ in range(3)]
            return drawn, losses, {k: v.tobytes() for k, v in solver.values().items()}

    def spied(drawn, attrs, reads, writes):
        kernel(attrs, reads, writes)
        drawn.append((attrs.key, int(reads[1][0]), (writes[0] == 0).tobytes()))

    want, losses, values = trained("liveness:m")
    drawn, same_losses, same_values = trained(policy)
    assert len(drawn) > len(want) == BLOCKS * 3, "it does run again"
    assert set(drawn) == set(want), "and draws what it drew"
    assert same_losses == losses
    assert {name for name in values if values[name] != same_values[name]} == set()
    assert any(name.startswith("norm1/") for name in values), "running statistics among them"
