"""Planned addresses: the C allocator with the host's malloc as CUDA's, misuse included, and whole steps on it."""

from __future__ import annotations

import copy
import threading

import pytest

from minidnn.compiled import NotCompiled, find_compiler
from minidnn.errors import Failed, InvalidInput
from minidnn.torch.addresses import library as native
from minidnn.torch.addresses.library import Event
from minidnn.torch.addresses.stepping import Addresses, Stepping
from tests.torch.driver import Driver

KIB = 1 << 10


@pytest.fixture
def driver():
    return Driver(1 << 20)


@pytest.fixture
def library(driver):
    try:
        find_compiler()
    except NotCompiled as reason:
        pytest.skip(str(reason))
    result = native.Library(native.SOURCES.load())
    # the process has one state: what an earlier test left is given back to that test's driver
    result.drop_kept()
    result.forget()
    result.setup(driver.take, driver.give)
    result.bytes(reset=True)
    yield result
    result.drop_kept()
    result.forget()


def test_blocks_are_kept_for_their_own_stream(library, driver):
    a = library.alloc(1000, 0, 1)
    library.free(a, 1000, 0, 1)
    assert library.alloc(1000, 0, 2) != a, "another stream"
    assert library.alloc(1000, 1, 1) != a, "another device"
    assert library.alloc(100, 0, 1) != a, "it would waste most of it"
    assert library.alloc(1024, 0, 1) == a, "as many units"
    assert library.bytes().in_use == 3 * KIB + 512 == library.bytes().reserved
    assert driver.left == (1 << 20) - library.bytes().reserved


def test_what_another_stream_uses_goes_back_to_the_driver(library, driver):
    a, b = library.alloc(KIB, 0, 1), library.alloc(KIB, 0, 1)
    library.record_stream(a, 1)
    library.record_stream(b, 2)
    for at in (a, b):
        library.free(at, KIB, 0, 1)
    assert list(driver.given) == [a] and library.bytes().in_use == 0


def test_kept_blocks_are_given_up_before_there_is_no_memory(library, driver, capfd):
    a = library.alloc(600 * KIB, 0, 1)
    library.free(a, 600 * KIB, 0, 1)
    assert library.alloc(700 * KIB, 0, 1), "in the place of the first"
    assert library.bytes() == (700 * KIB, 700 * KIB, 700 * KIB, 700 * KIB)
    assert library.alloc(700 * KIB, 0, 1) is None
    assert "the GPU has no 716800 bytes left (716800 are in use, 716800 reserved)" in capfd.readouterr().err


def test_odd_requests_take_nothing(library):
    assert library.alloc(0, 0, 1) is None and library.alloc(8, -1, 1) is None and library.alloc(8, 64, 1) is None
    library.free(None, 0, 0, 1)
    library.free(12345, 8, 0, 1)
    assert library.bytes() == (0, 0, 0, 0)


# ---- recorded and planned requests


def ask(library, sizes, stream=1):
    return [library.alloc(n, 0, stream) for n in sizes]


def give(library, at, sizes):
    for a, n in zip(at, sizes, strict=True):
        library.free(a, n, 0, 1)


def test_a_recording_has_all_requests_of_its_thread_and_what_is_given_back(library):
    library.record()
    assert library.enter(0, 1, None) == native.FINE
    library.note(7)
    a, b = ask(library, [100, 200])
    other = []
    thread = threading.Thread(target=lambda: other.append(library.alloc(300, 0, 1)))
    thread.start()
    thread.join()
    library.free(a, 100, 0, 1)
    assert library.number(b) == 1 and library.number(a) == -1 and library.number(other[0]) == -1
    assert library.leave(False).requests == 2
    between = library.alloc(400, 0, 1)
    library.free(b, 200, 0, 1)
    assert library.recorded() == [(False, 0, 100, 7), (False, 1, 200, 7), (True, 0, 0, 7), (True, 1, 0, 7)]
    for at, n in ((other[0], 300), (between, 400)):
        library.free(at, n, 0, 1)


@pytest.fixture
def plan(library):
    """Two places at the arena's start, one behind them, and one that lies elsewhere."""
    sizes, places = [1000, 1000, 512, 64], [0, 1024, 0, native.NOWHERE]
    assert library.reserve(0, 2048) == native.FINE
    result = library.plan(sizes, places)
    yield result
    library.drop_plan(result)


def test_requests_get_their_places(library, driver, plan):
    assert library.enter(0, 1, plan, 0, 4) == native.FINE
    a, b = ask(library, [1000, 1000])
    assert b - a == 1024 and [n for _, n in driver.given.values()] == [2048]
    library.free(a, 1000, 0, 1)
    c, d = ask(library, [512, 64])
    assert c == a and not a <= d < a + 2048
    give(library, [b, c, d], [1000, 512, 64])
    assert library.leave(True) == (native.FINE, 0, 0, 4)
    assert library.bytes().reserved == 2048 + 512


@pytest.mark.parametrize(
    ("sizes", "stream", "status", "wrong"),
    [
        ([1000, 999], 1, native.OTHER_SIZE, 1),
        ([1000, 1000, 512], 1, native.IN_USE, 2),
        ([1000], 1, native.TOO_FEW, 1),
        ([1000], 2, native.OTHER_STREAM, 0),
    ],
)
def test_a_request_that_differs_gets_other_bytes_and_is_told(library, plan, sizes, stream, status, wrong):
    assert library.enter(0, 1, plan, 0, 4) == native.FINE
    at = ask(library, [*sizes, *([] if status == native.TOO_FEW else [1000, 64])], stream)
    assert len(set(at)) == len(at) and None not in at
    left = library.leave(True)
    assert (left.status, left.wrong) == (status, wrong)
    for a, n in zip(at, [*sizes, 1000, 64], strict=False):
        library.free(a, n, 0, stream)
    assert library.bytes().in_use == 0


def test_a_request_too_many(library, plan):
    assert library.enter(0, 1, plan, 0, 1) == native.FINE
    at = ask(library, [1000, 1000])
    assert library.leave(True)[:3] == (native.TOO_MANY, 1, 1000)
    give(library, at, [1000, 1000])


def test_other_threads_and_devices_are_left_alone(library, plan):
    assert library.enter(0, 1, plan, 0, 4) == native.FINE
    other = [library.alloc(77, 1, 1)]
    thread = threading.Thread(target=lambda: other.append(library.alloc(77, 0, 1)))
    thread.start()
    thread.join()
    assert all(other)
    assert library.leave(False) == (native.FINE, 0, 0, 0)


def test_one_step_at_a_time_and_the_arena_stays_while_it_is_used(library, plan):
    assert library.enter(0, 1, None) == native.IN_USE, "nothing is recorded"
    assert library.enter(0, 1, plan, 0, 4) == native.FINE
    assert library.enter(0, 1, plan, 0, 4) == native.IN_USE
    (a,) = ask(library, [1000])
    library.leave(False)
    assert library.reserve(0, 4096) == native.IN_USE
    library.free(a, 1000, 0, 1)
    assert library.reserve(0, 4096) == native.FINE and library.bytes().reserved == 4096
    assert library.reserve(0, 4 << 20) == native.NO_MEMORY
    assert library.reserve(0, 4096) == native.FINE


def test_addresses_are_packed_by_time():
    events = [Event(False, 0, 1000, 3), Event(False, 1, 600, 4), Event(True, 0, 0, 4), Event(False, 2, 900, 5)]
    events += [Event(False, 3, 50, 5), Event(True, 1, 0, 6), Event(True, 2, 0, 6), Event(True, 3, 0, 7)]
    found = Addresses.of(events, 2, left=[3])
    assert found.arena == 2048 and found.beside == 512 and found.half == 2 and found.made_by == (3, 4, 5, 5)
    assert found.places[0] == found.places[2] and found.places[3] == native.NOWHERE
    assert Addresses.of([], 0, []).arena == 0


# ---- steps


class Tensor:
    def __init__(self, library, size):
        self.library, self.size, self.at = library, size, library.alloc(size, 0, 1)

    def untyped_storage(self):
        return self

    def data_ptr(self):
        return self.at

    def end(self):
        self.library.free(self.at, self.size, 0, 1)


def stepping(library, sizes):
    """A step whose requests have these sizes, which may change; the loss and the last one are the caller's."""

    def step(kept):
        first, second = Tensor(library, sizes[0]), Tensor(library, sizes[1])
        loss = Tensor(library, 4)
        kept.append(loss)
        first.end()
        yield loss
        rest = [Tensor(library, n) for n in sizes[2:]]
        second.end()
        for t in rest[:-1]:
            t.end()
        kept.append(rest[-1])
        return rest[-1:]

    class Schedule:
        instructions = ()

    return Stepping(library, step, step, Schedule(), 0, lambda: 1)


def run(function):
    kept = []
    steps = function(kept)
    next(steps)
    with pytest.raises(StopIteration) as end:
        steps.send(None)
    assert end.value.value == kept[1:]
    return kept


def test_a_step_repeats_its_addresses_and_reserves_what_was_planned(library, driver):
    function = stepping(library, [3000, 5000, 4000, 700])
    for t in run(function):
        t.end()
    assert function.reserved == function.addresses.arena + 512 + 1024 and function.addresses.arena == 3072 + 5120 + 1024
    kept = [t for _ in range(3) for t in run(function)]
    assert library.bytes().reserved == function.addresses.arena + 3 * (512 + 1024), "the caller keeps three steps'"
    assert len({t.at for t in kept}) == 6
    for t in kept:
        t.end()


def test_a_step_that_asks_differently_is_recorded_again_and_at_last_refused(library):
    sizes = [3000, 5000, 4000, 700]
    function = stepping(library, sizes)
    for size in (5000, 5001, 5001, 5002, 5002):
        sizes[1] = size
        for t in run(function):
            t.end()
    assert function.recordings == 3
    sizes[1] = 5003
    kept = []
    with pytest.raises(Failed, match="request 2 of a planned step asked for 5003 bytes, and 5002 were planned"):
        next(function(kept))


def test_a_step_left_half_way_is_no_recording(library):
    function = stepping(library, [3000, 5000, 4000, 700])
    steps = function([])
    next(steps)
    steps.close()
    assert function.addresses is None
    run(function)
    assert function.addresses is not None
    steps = function([])
    next(steps)
    steps.close()
    run(function)


@pytest.mark.peer("torch")
@pytest.mark.parametrize(
    ("net", "policy"), [("gpt", "layrub"), pytest.param("cnn", "vdnn_all", marks=pytest.mark.extended)]
)
def test_steps_of_modules_on_the_imitation(library, driver, net, policy, tmp_path, monkeypatch):
    import torch

    from minidnn.torch import devices
    from tests.torch.imitation import Imitation
    from tests.torch.test_cuda_runtime import losses_and_gradients, started

    driver.left = 64 << 20
    monkeypatch.setattr(devices, "installed", lambda: library)
    imitation = Imitation(allocator=library)
    step, module, args, loss = started(imitation, net, {"policy": policy}, tmp_path)
    eager = copy.deepcopy(module)
    expected = [losses_and_gradients(lambda *a: loss(eager(*a[:-1]), a[-1]), eager, args) for _ in range(3)]
    with imitation:
        found = [losses_and_gradients(step, module, args) for _ in range(3)]
    assert all(torch.equal(a, b) for x, y in zip(found, expected, strict=True) for a, b in zip(x, y, strict=True))
    for planned in step.plans.values():
        function = planned.repeated
        assert function.recordings == 1 and not function._again
        own = sum(t.nbytes for t in planned.capture.program.persistent)
        assert 0 < function.addresses.arena <= planned.peak - own + 512 * 300
        assert planned.reserved > function.addresses.arena
        assert planned.why_no_graph == "cuda_graph=True was not given"


@pytest.mark.peer("torch")
def test_without_cuda_it_is_refused():
    import torch

    from minidnn.torch.addresses.api import planned_addresses, reserved

    with pytest.raises(InvalidInput, match=r"planned_addresses\(\) was not called"):
        reserved()
    if not hasattr(torch._C, "_cuda_customAllocator"):
        with pytest.raises(InvalidInput, match="has no CUDA"):
            planned_addresses()
