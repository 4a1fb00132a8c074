"""The model of CUDA's caching allocator: its sizes, its choice of blocks, and that bytes are never in two of them."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidnn.torch.caching import GRANULE, MIB, CachingAllocator, reserved
from minidnn.torch.lives import Event
from tests.support.examples import examples


@pytest.mark.parametrize(
    ("nbytes", "taken", "kept"),
    [
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),  # the rest is no more than 1 MiB, and is not split off
        (11 * MIB - 512, 11 * MIB - 512, 12 * MIB),
    ],
)
def test_a_first_request_reserves_a_segment_of_its_class(nbytes, taken, kept):
    allocator = CachingAllocator()
    allocator.take(0, nbytes)
    assert (allocator.allocated, allocator.reserved) == (taken, kept)


def test_small_requests_share_a_segment_and_large_ones_have_another_pool():
    allocator = CachingAllocator()
    for key in range(4):
        allocator.take(key, MIB // 2)
    assert allocator.reserved == 2 * MIB
    allocator.take(4, 1)
    assert allocator.reserved == 4 * MIB
    for key in range(5):
        allocator.give_back(key)
    allocator.take(5, 2 * MIB)  # 4 MiB are free, in the other pool
    assert allocator.reserved == 24 * MIB and allocator.allocated == 2 * MIB


def test_the_smallest_block_that_is_large_enough_is_taken_again():
    allocator = CachingAllocator()
    for key, mib in enumerate((40, 30, 20)):
        allocator.take(key, mib * MIB)
    for key in range(3):
        allocator.give_back(key)
    allocator.take(3, 25 * MIB)  # of the 30
    allocator.take(4, 20 * MIB)
    allocator.take(5, 38 * MIB)
    assert allocator.reserved == 90 * MIB
    allocator.take(6, 5 * MIB - 512)  # the rest of the 30
    assert allocator.reserved == 90 * MIB
    allocator.take(7, 3 * MIB)  # of the 40, 2 MiB are left
    assert allocator.reserved == 110 * MIB


def test_neighbours_that_are_free_become_one_block():
    allocator = CachingAllocator()
    for key in range(4):
        allocator.take(key, 5 * MIB)
    assert allocator.reserved == 20 * MIB
    for key in (0, 2, 1, 3):
        allocator.give_back(key)
    allocator.take(4, 20 * MIB)
    assert allocator.reserved == 20 * MIB


def test_free_bytes_that_do_not_lie_together_are_of_no_use():
    events = [Event(key, 5 * MIB) for key in range(4)] + [Event(0, -5 * MIB), Event(2, -5 * MIB)]
    assert reserved(events) == 20 * MIB
    assert reserved([*events, Event(4, 8 * MIB)]) == 40 * MIB


@examples(40)
@given(st.integers(0, 10**6))
def test_blocks_cover_each_segment_once_whatever_comes(seed):
    draw, allocator, held = random.Random(seed), CachingAllocator(), {}
    for key in range(120):
        if held and draw.random() < 0.45:
            allocator.give_back(gone := draw.choice(sorted(held)))
            del held[gone]
        else:
            held[key] = draw.choice((1, 700, MIB // 3, MIB, MIB + 1, 7 * MIB, 10 * MIB, 33 * MIB + 5)) + draw.randrange(
                99
            )
            allocator.take(key, held[key])
    free = [block for pool in allocator._free.values() for *_, block in pool]
    blocks = sorted([*free, *allocator._used.values()], key=lambda block: block.start)
    assert [b.start for b in blocks] == [sum(b.nbytes for b in blocks[:i]) for i in range(len(blocks))]
    assert sum(b.nbytes for b in blocks) == allocator.reserved
    assert all(allocator._used[key].nbytes >= nbytes for key, nbytes in held.items())
    assert sum(b.nbytes for b in allocator._used.values()) == allocator.allocated
    for one, other in pairwise(blocks):
        assert one.nbytes % GRANULE == 0
        assert (one.after is other) == (other.before is one) and not (one.after is other and one.free and other.free)
    for key in held:
        allocator.give_back(key)
    assert allocator.allocated == 0
    assert all(b.before is None and b.after is None for pool in allocator._free.values() for *_, b in pool)
