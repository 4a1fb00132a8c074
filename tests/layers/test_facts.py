"""The papers' memory facts: what differentiation makes of them. Their figures are in tests of each system."""

from __future__ import annotations

import pytest

from minidnn.jobs.solver_file import understand
from minidnn.layers import FACTS
from minidnn.memory.plan import in_place_sharing
from minidnn.program import FORWARD, Role, nbytes
from minidnn.programs.build import programs
from tests.support.paths import NET_FILES

MIB = 2**20


def program(name, facts, batch=None):
    net, _, _ = understand(name, batch=batch)
    return programs(net, None, ("TRAIN",), facts=FACTS[facts])["TRAIN"]


def small(name, facts):
    return program(NET_FILES / f"{name}.yaml", facts)


@pytest.mark.parametrize("facts", ["superneurons", "caffe"])
def test_no_backend_runs_them(facts):
    assert FACTS[facts].planning_only()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, data_and_diff",
    [
        ("resnet50", 5374),  # as drawn; to 10 MiB
        ("resnet152", 11.61 * 1024),  # as written: 11.61 GB
    ],
)
def test_caffe_has_a_diff_for_every_data(name, data_and_diff):
    """Layrub's Figure 9 (Jin et al., TACO 2018): Caffe's intermediate data at batch 32."""
    p = program(name, "caffe", 32)
    share = in_place_sharing(p)
    blobs = [t for t in p.tensors if t.role in (Role.INPUT, Role.ACTIVATION, Role.GRADIENT) and t not in share]
    assert abs(nbytes(blobs) / MIB - data_and_diff) < 10


def test_caffes_split_has_a_diff_at_each_end():
    p = small("nested", "caffe")
    share = in_place_sharing(p)
    adds = [op for op in p.ops if op.kind == "gradient.add"]
    assert adds
    for op in adds:
        before, _ = op.reads
        (total,) = op.writes
        assert share.get(total) in (None, before)
        assert total not in share or before.name.endswith(".grad.sum2"), "but the third part adds to the sum of two"


def test_superneurons_layers_have_tensors_of_their_own():
    p = small("residual", "superneurons")
    share = in_place_sharing(p)
    assert share
    assert {op.kind for op in p.ops for t in op.writes if t in share} == {"relu.backward", "softmax_loss.backward"}
    forks = [op for op in p.ops if op.kind == "split.forward"]
    assert forks
    before = [op for op in p.ops if op.during in FORWARD]
    for op in forks:
        assert [o for o in before if op.reads[0] in o.reads] == [op], "only FORK reads what it copies"
        assert sum(op.writes[0] in o.reads for o in before) > 1
