"""benchmarks/monet.py: MONeT's tables as they are cited, and what is told of a row."""

from __future__ import annotations

import pytest

from benchmarks import monet
from benchmarks.monet import EXCLUDED, MONET


@pytest.mark.parametrize("network", MONET)
def test_less_memory_takes_longer_in_its_tables(network):
    published = MONET[network]
    sizes, overheads = list(published.overhead), list(published.overhead.values())
    assert published.whole > sizes[0] and sizes == sorted(sizes, reverse=True)
    assert overheads == sorted(overheads) and overheads[0] > 0


@pytest.mark.parametrize(
    ("ours", "bound", "said"),
    [(4.4, 1.0, "yes"), (4.5, 4.3, "no"), (4.6, 4.5, EXCLUDED), (None, 1.0, "no"),
     (None, None, EXCLUDED)],
)  # fmt: skip
def test_whether_a_goal_is_reached(ours, bound, said):
    row = {"monet_percent": 4.0, "alone_percent": ours, "alone_bound_percent": bound}
    assert monet.reached(row, "alone", 1.1) == said


def test_a_net_without_a_table_is_refused(capsys):
    with pytest.raises(SystemExit):
        monet.main(["--networks", "resnet18"])
    assert "MONeT's table of resnet18 is not here; there are resnet50, googlenet" in capsys.readouterr().err
