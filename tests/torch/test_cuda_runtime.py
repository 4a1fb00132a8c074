"""A step on a GPU's streams, on an imitation that checks the order of all accesses. No GPU has run it yet."""

from __future__ import annotations

import copy
from contextlib import nullcontext

import pytest

from minidnn.errors import InvalidInput
from minidnn.memory.schedule import Compute, Fetch, Prefetch, Stash

pytestmark = pytest.mark.peer("torch")

RING = {"host_ring": "96KiB"}
RINGED = {"policy": "vdnn_all", "host_ring": "64KiB", "disk": "."}
QUICK = [
    ("gpt", {"policy": "layrub"}),
    ("gpt", {"policy": "sqrt_n"}),
    ("cnn", {"budget": "60%"}),
    pytest.param("cnn", {"policy": "vdnn_all", "host_ring": "64KiB"}, marks=pytest.mark.extended),
    ("cnn", RINGED),
]
BESIDE = ({}, RING, {**RING, "disk": "."})
MORE = [
    (net, {"budget": share, **more}) for net in ("deep_gpt", "deep_cnn") for share in ("60%", "30%") for more in BESIDE
]
MORE += [(net, {"policy": policy}) for net in ("gpt", "cnn") for policy in ("superneurons", "vdnn_all", "layrub")]


def started(imitation, net, given, tmp_path):
    """A step on the imitation, its module, arguments and loss function."""
    import torch

    from minidnn.torch.devices import suited
    from minidnn.torch.step import compile
    from tests.torch.imitation_host import runtime_on
    from tests.torch.small import NETS

    module, args, loss = NETS[net]()
    if "disk" in given:
        given = {**given, "disk": tmp_path}
    step = compile(module, loss=loss, **given)
    step._runtime = runtime_on(imitation)
    step._suited = lambda _, schedule: suited(torch.device("cuda", 0), schedule)
    return step, module, args, loss


def losses_and_gradients(step, module, args):
    """Those of two optimizer steps of two micro-batches each, and the buffers."""
    import torch

    torch.manual_seed(5)
    result = []
    for _ in range(2):
        for _ in range(2):
            loss = step(*args)
            (loss / 2).backward()
            result.append(loss.detach().clone())
        result += [p.grad.clone() for p in module.parameters()]
        module.zero_grad()
    return [*result, *(b.clone() for b in module.buffers())]


def equals_eager(net, given, tmp_path):
    import torch

    from tests.torch.imitation import Imitation

    imitation = Imitation(delay=0.0005)
    step, module, args, loss = started(imitation, net, given, tmp_path)
    eager = copy.deepcopy(module)
    expected = losses_and_gradients(lambda *a: loss(eager(*a[:-1]), a[-1]), eager, args)
    with imitation:
        found = losses_and_gradients(step, module, args)
    assert all(map(torch.equal, found, expected)) and len(found) == len(expected)
    for planned in step.plans.values():
        assert isinstance(planned.runtime.cuda, Imitation)
    return imitation, [p.schedule for p in step.plans.values()]


@pytest.mark.parametrize(("net", "given"), QUICK, ids=str)
def test_gradients_are_those_of_eager_mode(net, given, tmp_path):
    imitation, schedules = equals_eager(net, given, tmp_path)
    counted = sum(2 * isinstance(x, Prefetch) for s in schedules for x in s.instructions)
    assert imitation.counts["in"] == counted
    by_host = sum(4 * isinstance(x, Stash | Fetch) for s in schedules for x in s.instructions)
    assert imitation.counts["host"] == by_host
    if "host_ring" in given:
        assert imitation.counts["host"] > 0


@pytest.mark.extended
@pytest.mark.parametrize(("net", "given"), MORE, ids=str)
def test_gradients_are_those_of_eager_mode_under_more_plans(net, given, tmp_path):
    equals_eager(net, given, tmp_path)


# ---- what goes wrong


def test_a_disk_that_fails_ends_the_step_and_not_the_next_one(tmp_path, monkeypatch):
    import torch

    from minidnn.memory.execution.disk import DiskFailed
    from tests.torch.imitation import Imitation
    from tests.torch.imitation_host import WatchedDisk

    imitation = Imitation(delay=0.0005)
    step, module, args, _ = started(imitation, "cnn", RINGED, tmp_path)
    with imitation:
        step(*args).backward()
        right = [p.grad.clone() for p in module.parameters()]
        for method in ("write", "read"):
            module.zero_grad()
            with monkeypatch.context() as patch:
                patch.setattr(WatchedDisk, method, fail)
                with pytest.raises(DiskFailed, match="worn out"):
                    step(*args).backward()
            module.zero_grad()
            torch.manual_seed(2)
            step(*args).backward()
    assert all(p.grad is not None and p.grad.shape == g.shape for p, g in zip(module.parameters(), right, strict=True))


def fail(*_):
    from minidnn.memory.execution.disk import DiskFailed

    raise DiskFailed("worn out")


@pytest.mark.parametrize("given", [{"policy": "l2l"}, RINGED], ids=["pinned", "disk"])
def test_a_step_may_be_left_half_way(given, tmp_path):
    import torch

    from tests.torch.imitation import Imitation

    imitation = Imitation(delay=0.0005)
    step, module, args, loss = started(imitation, "cnn", given, tmp_path)
    eager = copy.deepcopy(module)
    for function, within in ((lambda *a: loss(eager(*a[:-1]), a[-1]), nullcontext()), (step, imitation)):
        torch.manual_seed(3)
        with within:
            function(*args)
            function(*args)
            function(*args).backward()
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(module.parameters(), eager.parameters(), strict=True))
    assert all(map(torch.equal, module.buffers(), eager.buffers()))


def test_a_step_that_fails_leaves_no_copy_behind(tmp_path):
    """Whatever takes memory afterwards may get that of a copy which was on its way."""
    import torch

    from minidnn.torch.arguments import Arguments
    from minidnn.torch.code import written
    from tests.torch.imitation import Imitation

    imitation = Imitation()
    step, _, args, _ = started(imitation, "cnn", {"policy": "vdnn_all"}, tmp_path)
    planned = step.plan(*args)
    instructions = planned.schedule.instructions
    first = next(i for i, x in enumerate(instructions) if isinstance(x, Prefetch))
    fatal = next(i for i, x in enumerate(instructions) if i > first and isinstance(x, Compute | Prefetch))

    def told(i):
        if i == fatal:
            raise InvalidInput("enough")

    function = written(planned.capture, planned.schedule, planned.runtime, told=told)
    with imitation, torch.no_grad():
        steps = function(*(value(Arguments.of(args).tensors) for value in planned.values))
        next(steps)
        with pytest.raises(InvalidInput, match="enough"):
            steps.send((torch.ones(()),))
        torch.zeros(1000)
    assert imitation.counts["in"] == 1


def test_lines_end_with_their_runtime():
    from minidnn.torch.lines import Lines

    lines = Lines(("store", "load"))
    threads, made = lines._threads, []
    lines.put("store", made.append, 1)
    lines.settle()
    assert made == [1] and all(t.is_alive() for t in threads)
    del lines
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_memory_that_cannot_be_page_locked_is_said_with_its_bytes(tmp_path, monkeypatch):
    from minidnn.errors import Failed
    from tests.torch.imitation import Imitation

    monkeypatch.setattr(Imitation, "cudaHostRegister", lambda *_: 2)
    step, _, args, _ = started(Imitation(), "cnn", {"policy": "vdnn_all"}, tmp_path)
    with pytest.raises(Failed, match=r"KiB of the host's memory cannot be page-locked \(CUDA's error 2\)"):
        step.plan(*args)


def test_seed_and_offset_come_back(tmp_path):
    import torch

    from tests.torch.imitation import Imitation

    step, _, args, _ = started(Imitation(), "cnn", {"policy": "vdnn_all"}, tmp_path)
    read, put = step.plan(*args).runtime.random_state()
    torch.manual_seed(11)
    state = read(())
    first = torch.rand(4)
    torch.manual_seed(12)
    put((), state)
    assert torch.initial_seed() == 11 and torch.equal(torch.rand(4), first)
    beside = torch.Generator().manual_seed(3)
    state, first = read((beside,)), torch.rand(4, generator=beside)
    put((beside,), state)
    assert torch.equal(torch.rand(4, generator=beside), first)


def test_a_module_on_several_devices_is_refused_by_name():
    import torch

    from minidnn.torch.devices import device_of

    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2, device="meta"))
    with pytest.raises(InvalidInput, match=r"2 devices \(0.weight on cpu, 1.weight on meta\).*module.to\('cpu'\)"):
        device_of(module)
    with pytest.raises(InvalidInput, match=r"lies on meta \(weight\)"):
        device_of(module[1])
    assert device_of(torch.nn.ReLU()).type == "cpu"
