"""Every policy plans every kind of program, wherever what lives from step to step lives; the proof judges the plans."""

from __future__ import annotations

from functools import cache

import pytest

from minidnn.memory.planning import arrange
from minidnn.memory.policies import SOME_NETS, names
from minidnn.nets.net import Net
from minidnn.optimizers import SGD
from minidnn.programs.build import programs
from minidnn.programs.spec import TrainSpec
from tests.support.paths import NET_FILES
from tests.support.programs import costs

TRAINED = {
    "gradients alone": None,
    "momentum": TrainSpec(SGD(momentum=0.9)),
    "clipped sums": TrainSpec(SGD(momentum=0.9), iter_size=3, clip_gradients=1.0),
}


@cache
def made(train="gradients alone", state="device", net="diamond", format="float32", batch=2):
    of = Net.from_file(NET_FILES / f"{net}.yaml").with_batch(batch)
    return list(programs(of, TRAINED[train], ("TRAIN", "TEST"), state=state, format=format).values())


@pytest.mark.parametrize(
    ("state", "train", "parts"),
    [
        ("all", "gradients alone", ""), ("host", "gradients alone", "@2"), ("device", "clipped sums", "@2"),
        pytest.param("all", "momentum", "@2", marks=pytest.mark.extended), ("all", "clipped sums", ""),
    ],
)  # fmt: skip
def test_every_policy_has_a_proved_plan(state, train, parts):
    for policy in set(names()) - SOME_NETS:
        arrange(made(train, state), policy + parts, costs())


def test_dtr_takes_nothing_for_what_another_program_uses():
    """The gradients of micro-batches are summed by a program that has no use for momenta."""
    some = made("clipped sums", "host")
    whole = arrange(some, "dtr", costs()).arena
    assert arrange(some, "dtr", costs(), whole * 8 // 10).arena < whole


def test_a_joined_map_leaves_once_it_is_joined():
    """Behind the copies of its layer's weights in 16 bits."""
    arrange(made(net="activations", format="float16", batch=4), "vdnn_conv@4", costs())
