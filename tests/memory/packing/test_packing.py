"""Packing: hand-drawn problems of known height, properties that always hold, and the search in C against both."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidnn.memory.packing import Problem, ProblemError, Solution, lowest, pack, packer, read, write
from minidnn.memory.packing.apart import small_apart
from minidnn.memory.packing.greedy import online, solutions
from minidnn.memory.packing.tight import ENDLESS, Impossible, Work, missing, tight
from tests.support.examples import examples

compiled = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def problem(*rows: tuple[int, int, int]) -> Problem:
    """Of rows (size, lo, hi)."""
    size, lo, hi = np.array(rows, np.int64).reshape(-1, 3).T
    return Problem(lo, hi, size)


@pytest.mark.parametrize(
    ("rows", "height"),
    [
        ([(4, 0, 1)], 4),
        ([(4, 0, 2), (4, 2, 4)], 4),  # one after the other
        ([(4, 0, 3), (4, 2, 4)], 8),  # overlapping by one point
        ([(1, 0, 9), (2, 1, 8), (3, 2, 7), (4, 3, 6)], 10),  # nested, as liveness is
        ([(2, 0, 2), (2, 0, 4), (4, 2, 4)], 6),  # the hole of the first is too small for the last
        ([(4, 0, 2), (2, 0, 4), (4, 2, 4)], 6),  # the hole fits exactly
    ],
)
def test_hand_drawn(rows, height):
    p = problem(*rows)
    found = pack(p)
    assert found.overlap(p) is None and found.height == height


def test_a_tight_problem_on_which_the_order_of_time_fails_and_the_portfolio_does_not():
    """Start order puts the short 3 at the bottom and splits the space that the 6 needs later."""
    p = problem((3, 0, 2), (2, 1, 6), (3, 2, 3), (6, 3, 6))
    by_time = int((online(p, best_fit=False) + p.size).max())
    found = pack(p)
    assert found.overlap(p) is None
    assert found.height == p.load == 8 < by_time


rows = st.lists(
    st.tuples(st.integers(1, 5000), st.integers(0, 30), st.integers(1, 12)).map(lambda r: (r[0], r[1], r[1] + r[2])),
    min_size=1,
    max_size=40,
)


@given(rows)
@examples(60)
def test_every_solution_is_right_and_no_lower_than_the_load(given):
    p = problem(*given)
    heights = []
    for solution in [*solutions(p), pack(p)]:
        assert solution.overlap(p) is None
        assert solution.height == (solution.offset + p.size).max() >= p.load
        heights.append(solution.height)
    assert heights[-1] <= min(heights)


def perfect(seed: int, buffers: int, height: int, times: int) -> Problem:
    """A rectangle cut into so many buffers, in an order that tells nothing: its load is its height, at every time."""
    r = random.Random(seed)
    parts = [(0, height, 0, times)]
    while len(parts) < buffers:
        parts.sort(key=lambda part: (part[1] - part[0]) * (part[3] - part[2]))
        y0, y1, x0, x1 = parts.pop()
        if (x1 - x0 < 2 or r.random() < 0.5) and y1 - y0 > 1:
            cut = r.randint(y0 + 1, y1 - 1)
            parts += [(y0, cut, x0, x1), (cut, y1, x0, x1)]
        else:
            cut = r.randint(x0 + 1, x1 - 1)
            parts += [(y0, y1, x0, cut), (y0, y1, cut, x1)]
    r.shuffle(parts)
    return problem(*((y1 - y0, x0, x1) for y0, y1, x0, x1 in parts))


@compiled
@pytest.mark.parametrize("seed", range(6))
def test_the_search_solves_what_has_no_byte_to_spare(seed):
    p = perfect(seed, 24, 4096, 64)
    assert p.load == 4096
    greedy = min(s.height for s in solutions(p))
    found = pack(p, steps=500_000)
    assert found.overlap(p) is None
    assert found.height == 4096 <= greedy


def full(r: random.Random, height: int, times: int) -> Problem:
    """Buffers whose sizes add up to the height at every time. Most such problems have no packing of that height."""
    rows, alive = [], []
    for t in range(times):
        ending = [b for b in alive if r.random() < 0.5] if t else []
        alive = [b for b in alive if b not in ending]
        rows += [(size, lo, t) for size, lo in ending]
        room = height - sum(size for size, _ in alive)
        while room:
            size = r.randint(1, room)
            room -= size
            alive.append((size, t + room * 1e-6))  # so that no two are equal
    rows += [(size, lo, times) for size, lo in alive]
    return problem(*((size, int(lo), hi) for size, lo, hi in rows))


def fits(p: Problem, capacity: int) -> bool:
    """Whether a packing exists, by trying every offset of every buffer."""
    order = np.argsort(p.lo).tolist()

    def rest(placed: list[tuple[int, int]]) -> bool:
        if len(placed) == len(p):
            return True
        b = order[len(placed)]
        for y in range(capacity - int(p.size[b]) + 1):
            apart = (
                p.lo[o] >= p.hi[b] or p.hi[o] <= p.lo[b] or z >= y + p.size[b] or z + p.size[o] <= y for o, z in placed
            )
            if all(apart) and rest([*placed, (b, y)]):
                return True
        return False

    return rest([])


@compiled
def test_the_search_is_right_where_it_says_that_nothing_fits():
    r, impossible = random.Random(3), 0
    for _ in range(3000):
        p = full(r, 12, 8)
        try:
            offset = tight(p, p.load, 100_000)
        except Impossible:
            assert not fits(p, p.load)
            impossible += 1
            continue
        assert offset is None or (offset + p.size).max() == p.load
    assert impossible > 3


@compiled
def test_equal_problems_have_equal_answers_and_few_steps_give_up():
    p = perfect(1, 40, 4096, 64)
    assert tight(p, 4096, 3) is None
    again = [pack(p, steps=2000).offset.tolist() for _ in range(2)]
    assert again[0] == again[1]


@compiled
def test_work_ends_a_search_and_what_is_left_comes_back():
    p = perfect(1, 40, 4096, 64)
    work = Work(1000)
    assert tight(p, 4096, ENDLESS, work) is None and work.left.value < 0
    plenty = Work(1 << 40)
    part = plenty.part(1 << 30)
    assert tight(p, 4096, ENDLESS, part) is not None and part.left.value > 0
    plenty.back(part)
    assert (1 << 40) - (1 << 30) < plenty.left.value < 1 << 40


@compiled
@pytest.mark.parametrize("seed", range(4))
def test_the_gap_above_a_load_that_cannot_be_reached_is_halved(seed):
    """A packing without a byte to spare has one buffer that must move, and there is no room for it."""
    p = full(random.Random(seed), 40, 30)
    told: list[int] = []
    found = lowest(p, 30_000_000, tell=lambda capacity, best: told.append(capacity))
    assert found.overlap(p) is None and found.height <= pack(p).height
    assert lowest(p, 30_000_000).offset.tolist() == found.offset.tolist()
    assert told[0] == p.load and min(told) == p.load and len(told) > 3


@compiled
def test_the_lowest_of_very_many_buffers_leaves_the_small_ones_apart(monkeypatch):
    both = with_crumbs(3)[1]
    monkeypatch.setattr(packer, "SEARCHED", 40)
    found = lowest(both, 1 << 30, 41200)
    assert found.height <= 41200 and found.overlap(both) is None


def with_crumbs(seed: int) -> tuple[Problem, Problem]:
    """A problem that is solved at 40960 without a byte to spare; and the same with small buffers besides."""
    p, r = perfect(seed, 24, 40960, 64), random.Random(seed)
    crumbs = [(r.randint(1, 9), lo, lo + r.randint(1, 5)) for lo in r.sample(range(59), 20)]
    return p, Problem(*np.concatenate((np.stack((p.lo, p.hi, p.size)), np.array(crumbs).T[[1, 2, 0]]), axis=1))


@compiled
@pytest.mark.parametrize("seed", range(3))
def test_small_buffers_lie_above_the_others(seed):
    p, both = with_crumbs(seed)
    offset = small_apart(both, 41200, 100_000)
    found = Solution(offset, int((offset + both.size).max()), "")
    assert found.overlap(both) is None and found.height <= 41200
    crumb = both.size < 41200 // 256
    assert offset[crumb].min() >= (offset + both.size)[~crumb].max() == 40960
    assert small_apart(p.part(p.size < 0), 100, 100) is None
    with pytest.raises(Impossible):  # there is no room for the strip
        small_apart(both, 40960, 100_000)


@compiled
def test_of_very_many_buffers_the_large_ones_are_searched(monkeypatch):
    both = with_crumbs(3)[1]
    monkeypatch.setattr(packer, "SEARCHED", 40)
    monkeypatch.setattr(packer, "FEW", 1000)
    found = pack(both, 41200)
    assert found.how == "search/small_apart" and found.height <= 41200 and found.overlap(both) is None


def test_without_a_compiler_the_greedy_orders_are_all_there_is(monkeypatch):
    monkeypatch.setattr(packer, "missing", lambda: "no compiler")
    p = perfect(0, 24, 4096, 64)
    found = pack(p)
    assert found.overlap(p) is None and found.height == min(s.height for s in solutions(p))


def test_csv_there_and_back(tmp_path):
    p = problem((3, 0, 2), (2, 1, 6), (3, 2, 3), (6, 3, 6))
    found = pack(p)
    write(tmp_path / "out.csv", p, found)
    text = (tmp_path / "out.csv").read_text()
    assert text.splitlines()[0] == "id,lower,upper,size,offset"
    again = read(tmp_path / "out.csv")
    assert again.size.tolist() == p.size.tolist() and again.lo.tolist() == p.lo.tolist()
    assert [int(line.split(",")[-1]) for line in text.splitlines()[1:]] == found.offset.tolist()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "csv:1: no column id, lower, upper, size; the first line must name id, lower, upper and size"),
        ("id,lower,upper\n", "csv:1: no column size"),
        ("id,lower,upper,size\na,0,4,-1\n", "csv:2: size is '-1': it must be a whole number"),
        ("id,lower,upper,size\na,0,4\n", "csv:2: size is '': it must be a whole number"),
        ("id,lower,upper,size\na,0,4,8\nb,4,4,8\n", r"csv:3: 'b' is alive over \[4, 4\) with 8 bytes"),
        ("id,lower,upper,size\na,0,4,0\n", "with 0 bytes"),
        ("id,lower,upper,size\na,0,4,99999999999999999999\n", "from 0 to"),
        ("id,lower,upper,size\n" + "a,0,4,1099511627776\n" * 2, "all sizes together"),
        ("\udcff", "csv:1: no CSV text"),
    ],
)
def test_files_that_are_no_problems_are_refused(tmp_path, text, says):
    path = tmp_path / "p.csv"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ProblemError, match=says):
        read(path)


def test_a_file_without_buffers_is_a_problem_of_height_0(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("id,lower,upper,size\n")
    assert pack(read(path)).height == 0
