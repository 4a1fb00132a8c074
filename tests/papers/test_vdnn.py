"""The vDNN paper's own accounting (MICRO 2016, Figures 1, 4, 10 to 12 and 15), from plans: exact to the MiB.

Weight gradients, workspace, softmax output and labels stand apart, as in the paper. Its VGG-16 is our vgg19.
"""

from __future__ import annotations

import pytest

from minidnn.costs import profile
from minidnn.jobs.compare import simulated
from minidnn.jobs.solver_file import understand
from minidnn.layers import FACTS
from minidnn.programs.build import programs

MIB = 2**20


def rows(name, batch, policies, budget=None):
    net, _, _ = understand(name, batch=batch)
    lowered = programs(net, None, ("TRAIN",), facts=FACTS["vdnn2016"])
    found = simulated(tuple(lowered.values()), policies, profile("titan_x"), budget, None, "vdnn2016", "TRAIN")
    return {r.policy: r.row() for r in found}


@pytest.mark.parametrize(
    "name, batch, base, conv, everything, peak",
    [
        ("alexnet", 128, 780, 164.9, 348.9, 295),
        ("overfeat", 128, 2819, 385.4, 1157.2, 1298),
        ("vgg19", 64, 6155, 2535.8, 4030.2, 2624),
        ("vgg19", 128, 11761, 5071.5, 8060.5, 5172),
        ("vgg19", 256, 22975, 10143.0, 16121.0, 10268),
        pytest.param("vgg116", 32, 18716, None, 16960.1, None, marks=pytest.mark.slow),
        pytest.param("vgg416", 32, 64808, None, 61795.1, None, marks=pytest.mark.slow),
    ],
)
def test_bytes(name, batch, base, conv, everything, peak):
    found = rows(name, batch, ["baseline:m", "vdnn_conv:m", "vdnn_all:m"])
    assert round(found["baseline:m"]["paper_peak_bytes"] / MIB) == base
    if conv is not None:
        assert round(found["vdnn_conv:m"]["offload_bytes"] / MIB, 1) == conv
    if everything is not None:
        assert round(found["vdnn_all:m"]["offload_bytes"] / MIB, 1) == everything
    if peak is not None:
        assert round(found["vdnn_all:m"]["paper_peak_bytes"] / MIB) == peak
    for policy in ("vdnn_conv:m", "vdnn_all:m"):  # what leaves comes back
        assert found[policy]["offload_bytes"] == found[policy]["prefetch_bytes"]


@pytest.mark.extended
def test_vgg_256_in_12_gib_of_a_titan_x():
    found = rows(
        "vgg19", 256, ["baseline:m", "baseline:p", "vdnn_conv:p", "vdnn_all:p", "vdnn_all:m", "vdnn_dyn"], 12 << 30
    )
    assert {policy: row["fits"] for policy, row in found.items()} == {
        "baseline:m": False,
        "baseline:p": False,
        "vdnn_conv:p": False,
        "vdnn_all:p": False,
        "vdnn_all:m": True,
        "vdnn_dyn": True,
    }
    assert found["vdnn_dyn"]["step_seconds"] < found["vdnn_all:m"]["step_seconds"]
