"""What communications cost: formulas by hand, links by name, and what slows compute down."""

from dataclasses import replace

import pytest

from minidnn.costs import Costs, ProfileError
from minidnn.costs.links import LINKS, links, network
from minidnn.costs.net import LINK, Link, Nodes, among, sent, unhindered
from minidnn.program import Tensor
from minidnn.programs.ranks import net
from minidnn.ranks import shards

RATE = 1e6


def all_to_all(ranks, *sizes):
    reads = [Tensor(f"g{i}", (size,)) for i, size in enumerate(sizes)]
    rows = [Tensor(f"{g.name}.rows", (ranks * shards.length(g.size, ranks),)) for g in reads]
    return net("net.all_to_all", "net.all_to_all", reads, rows, ranks)


def all_gather(ranks, *sizes):
    whole = [Tensor(f"w{i}", (size,)) for i, size in enumerate(sizes)]
    own = [Tensor(f"{w.name}.shard", (shards.length(w.size, ranks),)) for w in whole]
    return net("net.all_gather", "net.all_gather", own, whole, ranks)


@pytest.mark.parametrize("make", [all_to_all, all_gather])
def test_messages_and_bytes_of_the_first_rank(make):
    """4 ranks, 4 blocks of 4096 and one of 100 elements: the first rank has 4096 + 100 of them for each of 3 others."""
    op, link = make(4, 4 * 4096, 100), Link(RATE, 1.0, 0.25)
    assert sent(op) == 3 * 4 * (4096 + 100)
    assert link.seconds(op) == pytest.approx(1.0 + 5 * 0.25 + sent(op) / RATE)
    assert replace(link, own=2 * RATE).seconds(op) == pytest.approx(link.seconds(op) + sent(op) / 3 / (2 * RATE))
    assert replace(link, gap=None).seconds(op) == pytest.approx(6 * 1.0 + sent(op) / RATE), "the model of Thakur et al."


def test_a_tensor_of_few_blocks_loads_the_first_ranks():
    """Shards are whole blocks. On 64 ranks a tensor of two blocks is all with two of them, which send it to 63."""
    op = all_gather(64, 2 * 4096)
    assert sent(op) == 63 * 4 * 4096 and sent(all_gather(2, 2 * 4096)) == 4 * 4096


def test_nodes_have_two_kinds_of_links_at_work_at_once():
    """8 ranks in nodes of 4, 64 blocks: a shard is 8 blocks, 128 KiB. A node's ranks share the link to the others."""
    op, shard = all_to_all(8, 64 * 4096), 8 * 4096 * 4
    within, between = Link(10 * RATE, 0.0, 0.0), Link(RATE, 0.5, 0.125)
    slow = 0.5 + 3 * 0.125 + 4 * 4 * shard / RATE
    assert Nodes(within, between, 4).seconds(op) == pytest.approx(slow)
    assert Nodes(within, between, 4, 4).seconds(op) == pytest.approx(0.5 + 3 * 0.125 + 4 * shard / RATE)
    assert Nodes(within, replace(between, bandwidth=1e12, latency=0.0, gap=0.0), 4).seconds(op) == pytest.approx(
        3 * shard / (10 * RATE)
    )
    assert Nodes(within, between, 8).seconds(op) == within.seconds(op), "one node is enough"


def test_costs_of_ops_stay_and_communication_can_be_free():
    given = Costs("any", 1, 1.0, 1.0, lambda op: ())
    op = all_to_all(2, 8 * 4096)
    linked = among(given, Link(RATE, 1.0, drag=0.5))
    (choice,) = linked.choices(op)
    assert choice.seconds == pytest.approx(1.0 + 4 * 4096 * 4 / RATE) and linked.net_drag == 0.5
    free = unhindered(linked)
    assert free.choices(op)[0].seconds == 0 and free.net_drag == 0


# ---- names


@pytest.mark.parametrize("name", links())
def test_every_number_of_a_known_link_has_a_source(name):
    found = network(name)
    assert found.bandwidth > 1e8 and 0 < found.gap <= found.latency < 1e-3 and found.title
    text = (LINKS / f"{name}.yaml").read_text()
    assert text.count("source:") == text.count("value:") == 3


def test_numbers_nodes_and_files(tmp_path):
    assert network("10GB,20us") == Link(10e9, 20e-6, title="10 GB/s and 20 µs")
    assert network("2GiB").latency == LINK.latency
    found = network("8xnvlink4+4xib100")
    assert (found.each, found.rails) == (8, 4) and found.between == network("ib100")
    assert found.title == "NVLink 4 (H100) in nodes of 8, and 4 x InfiniBand EDR (100 Gb/s) between nodes"
    file = tmp_path / "mine.yaml"
    rate, latency = "{value: 3.0e+9, source: measured}", "{value: 1.0e-5, source: measured}"
    file.write_text(f"title: mine\nbandwidth: {rate}\nlatency: {latency}\n")
    assert network(str(file)) == Link(3e9, 1e-5, title="mine")
    file.write_text(f"title: mine\nbandwidth: {rate}\nlatency: {latency}\nown: {rate}\n")
    assert network(str(file)) == Link(3e9, 1e-5, title="mine", own=3e9)
    assert network(f"2x{file}+eth10").within == network(str(file))


@pytest.mark.parametrize(
    "text, says",
    [
        ("nvlink9", "did you mean 'nvlink"),
        ("10GB,fast", "no link is called"),
        ("10GB,1e9s", "a latency of 1e+09 s"),
        ("1e-3", "no link is called"),
        ("8xnvlink4", "8xnvlink4+ib100"),
        ("nvlink4+ib100", "two ranks or more"),
        ("0xnvlink4+ib100", "two ranks or more"),
        ("", "no link is called"),
    ],
)
def test_what_is_no_link_is_told(text, says):
    with pytest.raises(ProfileError, match=says.replace("+", r"\+")):
        network(text)


@pytest.mark.parametrize(
    "fields, says",
    [
        ("title: x\nlatency: {value: 1, source: y}\n", "bandwidth: Field required"),
        ("title: x\nbandwidth: {value: 1, source: y}\nlatency: {value: 1, source: y}\n", "a bandwidth of 1 bytes"),
        ("title: x\nwidth: 1\n", "width"),
    ],
)
def test_a_wrong_file_is_told(tmp_path, fields, says):
    file = tmp_path / "mine.yaml"
    file.write_text(fields)
    with pytest.raises(ProfileError, match=says):
        network(str(file))
