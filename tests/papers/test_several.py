"""Several GPUs of a paper: their plans are simulated with the link that is named."""

from dataclasses import replace

import pytest

from minidnn.costs import profile
from minidnn.costs.links import named
from minidnn_papers import layrub
from minidnn_papers.layrub_plans import OWN, TRAINING, caffes, lowered
from minidnn_papers.numbers import layrub as paper
from minidnn_papers.several import together


def make(ranks):
    return lowered("lenet", 64, "layrub2018", replace(TRAINING, ranks=ranks))


def test_a_slower_link_gives_less():
    costs = caffes(profile("k40"))
    found = [together(make, OWN, costs, named(link), 2, 64) for link in ("eth1", "eth10", "pcie3")]
    speeds = [each.speed_up for each in found]
    assert speeds == sorted(speeds) and 0 < speeds[0] < speeds[-1] < 2
    assert found[0].ranks.exposed > found[-1].ranks.exposed and found[0].ranks.sent == found[-1].ranks.sent
    assert found[0].efficiency == pytest.approx(speeds[0] / 2)


@pytest.mark.slow
def test_layrub_s_nodes(monkeypatch):
    monkeypatch.setattr(paper, "NODES", {key: v for key, v in paper.NODES.items() if key[0] != "resnet1001"})
    rows = list(layrub._nodes(print))
    assert [row.paper for row in rows] == [1.98, 1.98]
    assert all(row.ours < row.trial.ours <= 2 and "MB that each node sends" in row.said for row in rows)
