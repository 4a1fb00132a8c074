"""Every optimizer, clipping and the loss's scale end with the same bytes on one rank and on several."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minidnn.nets.net import Net
from minidnn.ranks.threads import Group, Threads
from minidnn.training.solver import Solver
from tests.support.slow import usual_are

NET = """
name: two_losses
layer:
- {name: data, type: Input, top: [data, label],
   input_param: {shape: [{dim: [4, 2, 9, 9]}, {dim: [4]}]}}
- {name: conv1, type: Convolution, bottom: data, top: conv1,
   convolution_param: {num_output: 23, kernel_size: 3, weight_filler: {type: msra}}}
- {name: norm1, type: BatchNorm, bottom: conv1, top: norm1}
- {name: scale1, type: Scale, bottom: norm1, top: norm1, scale_param: {bias_term: true}}
- {name: relu1, type: ReLU, bottom: norm1, top: norm1}
- {name: side, type: InnerProduct, bottom: norm1, top: side,
   inner_product_param: {num_output: 5, weight_filler: {type: xavier}}}
- {name: aside, type: SoftmaxWithLoss, bottom: [side, label], top: aside, loss_weight: 0.3}
- {name: conv2, type: Convolution, bottom: norm1, top: conv2,
   convolution_param: {num_output: 41, kernel_size: 3, weight_filler: {type: msra}}}
- {name: drop, type: Dropout, bottom: conv2, top: conv2}
- {name: ip, type: InnerProduct, bottom: conv2, top: ip,
   inner_product_param: {num_output: 5, weight_filler: {type: xavier}}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
"""
PLAIN = """
name: plain
layer:
- {name: data, type: Input, top: [data, label], input_param: {shape: [{dim: [4, 2, 9, 9]}, {dim: [4]}]}}
- {name: ip, type: InnerProduct, bottom: data, top: ip,
   inner_product_param: {num_output: 60, weight_filler: {type: xavier}}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
"""
RULES: dict[str, dict[str, float]] = {  # an optimizer's fields
    "SGD": dict(momentum=0.9),
    "Nesterov": dict(momentum=0.9),
    "AdaGrad": dict(delta=1e-6),
    "RMSProp": dict(rms_decay=0.98, delta=1e-6),
    "AdaDelta": dict(momentum=0.95, delta=1e-6),
    "Adam": dict(momentum=0.9, momentum2=0.99),
    "AdamW": dict(momentum=0.9, momentum2=0.99),
    "LARS": dict(momentum=0.9, trust_coefficient=0.01),
    "LAMB": dict(momentum=0.9, momentum2=0.99),
}
DEVICES = pytest.mark.parametrize("device", ["reference", "cpu"])


def samples(factor: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """48 samples. Those of the second micro-batch are larger by a factor."""
    random = np.random.default_rng(5)
    x, label = random.standard_normal((48, 2, 9, 9)).astype(np.float32), random.integers(0, 5, 48)
    x[4:8] *= factor
    return x, label.astype(np.int32)


def ends(ranks: int, each: int, steps: int = 2, net: str = NET, **options: Any) -> dict[str, bytes]:
    """The bytes of all that lives from step to step, by name, after some steps of one rank, or of several alike."""
    given = dict(base_lr=0.02, lr_policy="fixed", weight_decay=0.001, seed=3, data=samples()) | options

    def train(engine: Threads | None) -> dict[str, bytes]:
        with Solver(Net.from_text(net), iter_size=each, engine=engine, **given) as solver:
            for _ in range(steps):
                solver.step()
            if solver.parameters.snapshot_prefix:
                solver.save()
            return {name: array.tobytes() for name, array in solver.values().items()}

    found = on_threads(ranks, train) if ranks > 1 else [train(None)]
    assert all(one == found[0] for one in found)
    return found[0]


def on_threads(ranks: int, call: Callable[[Threads], Any]) -> list[Any]:
    """The results of call(engine) on each rank."""
    group, found = Group(ranks), [None] * ranks

    def one(rank: int) -> None:
        engine = group.engine(rank)
        try:
            found[rank] = call(engine)
        finally:
            if found[rank] is None:
                engine.close()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@DEVICES
@pytest.mark.parametrize("rule", RULES)
def test_every_optimizer(rule, device):
    options = dict(type=rule, device=device, **RULES[rule])
    assert ends(2, 1, **options) == ends(1, 2, **options)


@pytest.mark.parametrize("rule, device", [("SGD", "reference"), ("LARS", "cpu"), ("LAMB", "cpu")])
@pytest.mark.parametrize("policy", usual_are(["vdnn_all:m"], ["vdnn_all:m", "superneurons"]))
def test_clipping_under_policies(rule, policy, device):
    options = dict(type=rule, device=device, policy=policy, clip_gradients=0.5, **RULES[rule])
    alone = ends(1, 4, **options)
    assert ends(1, 4, **options | dict(clip_gradients=1e9)) != alone
    assert ends(2, 2, **options) == ends(4, 1, **options) == alone


@pytest.mark.parametrize("rule, clip", [("SGD", -1.0), ("LARS", 0.5), ("LAMB", 0.5)])
def test_the_scale_of_the_loss(rule, clip):
    options = dict(type=rule, device="reference", format="float16", clip_gradients=clip, **RULES[rule])
    assert ends(2, 2, **options) == ends(4, 1, **options) == ends(1, 4, **options)


@pytest.mark.parametrize("factor, scale", [(1.0, 1024.0), (1000.0, 512.0)])
def test_a_gradient_that_is_not_finite_on_one_rank_skips_the_update_on_all(factor, scale):
    """The second micro-batch's is too large for float16."""
    options = dict(net=PLAIN, device="reference", format="float16", data=samples(factor))
    options |= dict(minidnn={"loss_scale": 1024.0})
    alone, before = ends(1, 4, 1, **options), ends(1, 4, 0, **options)
    assert np.frombuffer(alone["loss_scale"], np.float32)[0] == scale
    assert (alone["ip/w"] == before["ip/w"]) == (factor > 1)
    assert ends(4, 1, 1, **options) == ends(2, 2, 1, **options) == alone


@DEVICES
def test_a_run_goes_on_with_other_ranks(device, tmp_path):
    options = dict(type="LAMB", device=device, clip_gradients=0.5, **RULES["LAMB"])
    prefix, resumed = str(tmp_path / "run"), {}
    for done, (ranks, each) in enumerate(((4, 1), (1, 4), (2, 2)), 1):
        found = ends(ranks, each, 1, snapshot_prefix=prefix, **options, **resumed)
        resumed = dict(resume=f"{prefix}_iter_{done}.safetensors")
    assert found == ends(1, 4, 3, **options)


@pytest.mark.parametrize("rule, device", [("SGD", "reference"), ("LAMB", "cpu")])
def test_state_on_the_host(rule, device):
    options = dict(type=rule, device=device, clip_gradients=0.5, **RULES[rule])
    assert ends(2, 1, state="host", **options) == ends(1, 2, state="host", **options) == ends(1, 2, **options)
