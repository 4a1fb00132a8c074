"""The link between ranks: the fit finds the numbers that made it, and all ranks find the same."""

import threading

import pytest

from minidnn.backends import open_device
from minidnn.cli.main import main
from minidnn.costs.links import network, text
from minidnn.costs.net import Link
from minidnn.measuring import ranks
from minidnn.measuring.link import ops
from minidnn.measuring.ranks import TRIED, Trial, fitted
from minidnn.ranks.threads import Group


@pytest.mark.parametrize("latency, gap, bandwidth", [(5e-6, 1e-6, 1e10), (2e-6, 2e-6, 1e9), (1e-4, 0.0, 1e8)])
@pytest.mark.parametrize("peers", [1, 3])
def test_the_fit_finds_the_numbers(latency, gap, bandwidth, peers):
    link = Link(bandwidth, latency, gap)
    found = [Trial(count, nbytes, link.carry(peers, count, count * nbytes)) for count, nbytes in TRIED]
    assert fitted(found, peers) == pytest.approx((latency, gap, 1 / bandwidth), rel=1e-6, abs=1e-12)


def test_no_number_is_below_zero():
    """Many messages that are quicker than one: a gap below zero would fit best."""
    found = [Trial(1, 1000, 5e-5), Trial(16, 1000, 4e-5), Trial(1, 1 << 20, 1e-3), Trial(4, 1 << 20, 4e-3)]
    latency, gap, per_byte = fitted(found, 1)
    assert latency > 0 and gap == 0 and per_byte > 0


def test_all_ranks_find_the_same(monkeypatch, tmp_path):
    monkeypatch.setattr(ranks, "TRIED", ((1, 64), (4, 64), (1, 1 << 16)))
    monkeypatch.setattr(ranks, "ROUNDS", 2)
    monkeypatch.setattr(ranks, "BESIDE", 1 << 16)
    monkeypatch.setattr(ranks, "ops", lambda: ops(1024, 64))
    group, found = Group(2), [None, None]

    def run(rank):
        found[rank] = ranks.link(group.engine(rank), open_device("reference"), tries=3)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (link, tried), other = found
    assert other == found[0] and len(tried) == 3
    assert link.bandwidth > 0 and link.latency >= 0 and 0 <= link.drag <= 0.95
    file = tmp_path / "link.yaml"
    file.write_text(text(link, "a test"))
    again = network(str(file))
    assert again.bandwidth == pytest.approx(link.bandwidth, rel=1e-3)
    assert again.own == pytest.approx(link.own, rel=1e-3) and link.own > 0 and again.title == link.title


def test_one_rank_has_no_link(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["devices", "reference", "--link", "link.yaml"]) == 2
    assert "mpiexec -n 2 minidnn" in capsys.readouterr().err
    assert main(["devices", "--link", "link.txt"]) == 2
    assert "ends in .yaml" in capsys.readouterr().err
