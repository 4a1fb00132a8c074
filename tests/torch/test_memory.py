"""Bytes of PyTorch's allocators: by the code before the allocator, by the profiler, by a GPU's counters."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from minidnn.compiled import NotCompiled, find_compiler
from minidnn.errors import InvalidInput
from minidnn.torch import memory

pytestmark = pytest.mark.peer("torch")

KIB = 1 << 10


@pytest.fixture
def hook():
    try:
        find_compiler()
    except NotCompiled as reason:
        pytest.skip(str(reason))
    assert not memory.without_hook()


@pytest.fixture
def no_hook(monkeypatch):
    monkeypatch.setattr(memory, "without_hook", lambda: "needs a C compiler once")


def test_blocks_of_code_have_the_bytes_above_their_start(hook):
    import torch

    with memory.followed() as outer:
        first = torch.empty(10 * KIB, dtype=torch.uint8)
        assert (outer.current, outer.peak) == (10 * KIB, 10 * KIB)
        with memory.followed() as inner:
            del first
            assert (inner.current, inner.peak) == (-10 * KIB, 0)
            second = torch.empty(4 * KIB, dtype=torch.uint8)
            assert (inner.current, inner.peak) == (-6 * KIB, 0)
        del second
        third = torch.empty(11 * KIB, dtype=torch.uint8)
    assert (outer.current, outer.peak) == (11 * KIB, 11 * KIB)
    assert (inner.current, inner.peak) == (-6 * KIB, 0)
    del third
    assert outer.current == 11 * KIB  # as it was at the end


def test_blocks_grow_and_are_shared(hook):
    import torch

    with memory.followed() as m:
        a = torch.empty(KIB, dtype=torch.uint8)
        b = a[KIB // 2 :]
        del a
        assert m.current == KIB
        b.resize_(4 * KIB)
        assert m.current >= 4 * KIB
        del b
        assert m.current == 0
        torch.from_numpy(torch.zeros(8).numpy().copy())
    assert m.current == 0


def test_all_threads_count(hook):
    import torch

    def make_and_drop(k: int) -> int:
        for size in range(1, 400):
            torch.empty(size * (k + 1), dtype=torch.uint8)
        return k

    with memory.followed() as m, ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(make_and_drop, range(4))) == [0, 1, 2, 3]
        kept = pool.submit(torch.empty, 5 * KIB, dtype=torch.uint8).result()
        assert m.current == 5 * KIB
    assert m.peak >= 5 * KIB and len(kept) == 5 * KIB


def test_threads_in_turn_and_at_once_have_one_bound(hook):
    import torch

    both = Barrier(2)

    def at_once(k: int) -> None:
        block = torch.empty((k + 1) * KIB, dtype=torch.uint8)
        both.wait()
        both.wait()
        del block

    with memory.followed() as together, ThreadPoolExecutor(2) as pool:
        list(pool.map(at_once, range(2)))
    with memory.followed() as in_turn:
        for k in range(2):
            with ThreadPoolExecutor(1) as pool:
                pool.submit(torch.empty, (k + 1) * KIB, dtype=torch.uint8).exception()
    assert (together.peak, in_turn.peak) == (3 * KIB, 2 * KIB)
    assert together.bound == in_turn.bound == 3 * KIB


def test_a_child_process_can_allocate(hook):
    import torch

    with memory.followed() as m:
        child = os.fork()
        if not child:
            os._exit(int(len(torch.empty(KIB)) != KIB))
        assert os.waitpid(child, 0)[1] == 0
    assert m.current == 0


def _work() -> None:
    """A convolution by oneDNN forward and backward, an LSTM and attention."""
    import torch
    from torch import nn

    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 8, 1))
    net(torch.rand(4, 3, 12, 12)).sum().backward()
    nn.LSTM(16, 8)(torch.rand(5, 4, 16))[0].sum().backward()
    x = torch.rand(2, 4, 40, 8, requires_grad=True)
    nn.functional.scaled_dot_product_attention(x, x, x).sum().backward()


def test_the_profiler_counts_the_same(hook, monkeypatch):
    import gc

    import torch

    _work()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the profiler sees one
    gc.disable()  # what Python frees late is freed at the same places in both
    try:
        with memory.followed() as ours:
            _work()
        monkeypatch.setattr(memory, "without_hook", lambda: "left out")
        with memory.followed() as profiler:
            _work()
    finally:
        gc.enable()
        torch.set_num_threads(threads)
    assert (ours.peak, ours.current) == (profiler.peak, profiler.current)
    assert ours.peak > 4 * 16 * 12 * 12 * 4


def test_without_a_compiler_the_profiler_counts_and_says_so(no_hook):
    import torch

    with memory.following() as section:
        with section() as first:
            a = torch.empty(3 * KIB, dtype=torch.uint8)
            torch.empty(KIB, dtype=torch.uint8)
        torch.empty(100 * KIB, dtype=torch.uint8)  # in no section
        with section() as second:
            del a
        with pytest.raises(InvalidInput, match=r"known when its run has ended \(needs a C compiler once\)"):
            _ = second.peak
    assert (first.current, first.peak) == (3 * KIB, 4 * KIB)
    assert (second.current, second.peak) == (-3 * KIB, 0)


def test_one_profiler_at_a_time(no_hook):
    from torch.profiler import profile

    why = r"PyTorch's profiler runs already.*\(needs a C compiler once\)"
    with profile(), pytest.raises(InvalidInput, match=why), memory.followed():
        pass


def test_a_missing_compiler_is_the_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "absent-compiler")
    memory._library.cache_clear()
    try:
        assert memory.without_hook.__wrapped__() == "needs a C compiler once (CC=absent-compiler is not there)"
    finally:
        memory._library.cache_clear()


def test_a_gpu_has_counters_of_its_own(counters):
    with memory.followed("cuda") as outer:
        counters.take(1000)
        with memory.followed("cuda:0") as inner:
            counters.take(5000)
            counters.give(5000)
            counters.give(1000)
        assert (inner.current, inner.peak) == (-1000, 5000)
        counters.take(600)
    assert (outer.current, outer.peak) == (600, 6000)
