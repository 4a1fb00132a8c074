"""A schedule without one of its waits: the imitation of torch.cuda notices each that the proof needs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random

import pytest

from minidnn.memory.budget import BudgetError
from minidnn.memory.proof.verify import ScheduleError, verify
from minidnn.memory.schedule import Alloc, Compute, Free, Wait
from tests.torch.test_cuda_runtime import RING, started

pytestmark = pytest.mark.peer("torch")


def run(planned, schedule, args):
    """One step of a schedule; the races that it has."""
    import torch

    from minidnn.torch.code import written
    from tests.torch.imitation import Imitation, Race
    from tests.torch.imitation_host import runtime_on

    imitation = Imitation(hurry=True)
    function = written(
        planned.capture, schedule, runtime_on(imitation)(torch.device("cpu"), schedule, planned.runtime.disk)
    )
    given = [value(args) for value in planned.values]
    with imitation, torch.no_grad():
        steps = function(*given)
        try:
            next(steps)
            steps.send((torch.ones(()),))
        except StopIteration:
            pass
        except Race:
            assert imitation.races
        finally:
            steps.close()
    return imitation.races


@cache
def planned_of(net, items, tmp_path):
    import torch

    from minidnn.torch.arguments import Arguments
    from tests.torch.imitation import Imitation

    torch.manual_seed(0)
    step, _, args, _ = started(Imitation(), net, dict(items), tmp_path)
    planned = step.plan(*args)
    planned.runtime.disk = planned.runtime.disk and planned.runtime.disk.disk
    return planned, Arguments.of(args).tensors


def without(schedule, i):
    """The schedule without the wait at that place."""
    instructions = list(schedule.instructions)
    assert isinstance(instructions[i], Wait)
    instructions[i] = Alloc(schedule.buffers[0])  # which enqueues nothing
    return replace(schedule, instructions=tuple(instructions))


def is_needed(schedule, i):
    """Whether the proof refuses the schedule without the wait."""
    left = replace(schedule, instructions=tuple(shifted(schedule.instructions, i)))
    try:
        verify(left)
    except ScheduleError:
        return True
    return False


def shifted(instructions, i):
    for k, x in enumerate(instructions):
        if k != i:
            yield replace(x, on=x.on - (x.on > i)) if isinstance(x, Wait) else x


def is_implied(planned, i):
    """Whether another wait of the same stream, before it does anything, is for a later instruction of the same one. The
    end of the step is one for all."""
    instructions, x = planned.schedule.instructions, planned.schedule.instructions[i]
    for y in instructions[i + 1 :]:
        if isinstance(y, Wait) and y.stream == x.stream and y.on > x.on:
            if instructions[y.on].stream == instructions[x.on].stream:
                return True
        elif not isinstance(y, Wait | Alloc | Free) and y.stream == x.stream and touches(planned, y):
            return False
    return True


def touches(planned, x):
    """Whether the instruction writes new bytes: not if it only hands the gradients over, or changes what is there."""
    made = [c for c in planned.capture.calls[x.op.name] if c.makes] if isinstance(x, Compute) else [None]
    return any(c is None or not c.target.__name__.startswith("empty.") for c in made)


def lost(net, given, tmp_path, most=None):
    """{a wait that the proof needs: the races of a step without it}"""
    planned, args = planned_of(net, tuple(given.items()), tmp_path)
    schedule = planned.schedule
    assert not run(planned, schedule, args), "the schedule itself has none"
    waits = [i for i, x in enumerate(schedule.instructions) if isinstance(x, Wait) and is_needed(schedule, i)]
    waits = [i for i in waits if not is_implied(planned, i)]
    chosen = waits if most is None else sorted(Random(0).sample(waits, min(most, len(waits))))
    return {(i, schedule.instructions[i]): run(planned, without(schedule, i), args) for i in chosen}


@pytest.mark.parametrize(
    ("net", "given"), [("gpt", {"policy": "layrub"}), ("cnn", {"policy": "vdnn_all", "host_ring": "64KiB"})], ids=str
)
def test_a_lost_wait_is_noticed(net, given, tmp_path):
    races = lost(net, given, tmp_path, most=10)
    assert len(races) == 10 and all(races.values()), [x for x, found in races.items() if not found]


@pytest.mark.extended
@pytest.mark.parametrize(
    ("net", "given"),
    [
        ("gpt", {"budget": "60%"}),
        ("gpt", {"budget": "60%", **RING}),
        ("cnn", {"policy": "vdnn_all", **RING, "disk": "."}),
    ],
    ids=str,
)
def test_each_lost_wait_is_noticed(net, given, tmp_path):
    races = lost(net, given, tmp_path)
    assert len(races) > 5 and all(races.values()), [x for x, found in races.items() if not found]


def test_where_the_allocator_chooses_addresses_copies_back_wait_for_all_freed_bytes(tmp_path):
    """As `best` plans them, they wait for those alone that used the bytes at their planned offset. Under which budget
    that shows depends on the version of PyTorch, and on the number of its threads."""
    import torch

    from minidnn.torch.arguments import Arguments
    from minidnn.torch.devices import suited
    from tests.torch.imitation import Imitation

    races = []
    for percent in range(38, 80):
        try:
            step, _, args, _ = started(Imitation(), "cnn", {"budget": f"{percent}%"}, tmp_path)
            step._suited = lambda device, schedule: suited(torch.device("cpu"), schedule)
            planned = step.plan(*args)
        except BudgetError:  # a CPU's convolutions need their own bytes of scratch
            continue
        assert planned.schedule.plan.asap
        tensors = Arguments.of(args).tensors
        assert not run(planned, suited(torch.device("cuda", 0), planned.schedule), tensors)
        races += run(planned, planned.schedule, tensors)
        if races:
            break
    assert races
