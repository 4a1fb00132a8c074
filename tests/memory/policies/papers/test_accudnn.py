"""AccUDNN-style swapping: predictions are the simulator's, budgets are kept, vDNN is never better."""

import random
from dataclasses import replace

import numpy as np
import pytest

from minidnn.costs import Choice, Costs, profile
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.execution.trace import copied
from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.placement import place
from minidnn.memory.plan import OffloadInterval, complete
from minidnn.memory.planning import arrange
from minidnn.memory.policies import find
from minidnn.memory.policies.shared.algorithms import choose
from minidnn.memory.policies.shared.swap_model import Model
from minidnn.memory.schedule import aligned, live_peak
from minidnn.nets.net import Net
from minidnn.program import Algorithm
from minidnn.programs.build import programs
from minidnn.zoo import find as model
from tests.support.programs import KB, PROGRAMS, Builder, chain, costs, random_graph
from tests.support.slow import usual_are
from tests.support.trains import train


def zoo(name, batch):
    found = model(name, batch)
    net = found if isinstance(found, Net) else Net.from_file(found, batch)
    return programs(net, None, ("TRAIN",))["TRAIN"]


def arranged(program, policy, prices, budget):
    """(arena, bytes moved, simulated seconds, offload intervals within the step), or None if refused. Proved by
    arrange."""
    try:
        schedule = arrange([program], policy, prices, budget).schedules["TRAIN"]
    except BudgetError:
        return None
    moved = copied(schedule.instructions, schedule)
    offloads = [t for t in schedule.plan.offloads if t.free_at is not None and t.prefetch_at is not None]
    moves = moved["offload_bytes"] + moved["prefetch_bytes"]
    return schedule.arena, moves, simulate(schedule, prices).seconds, offloads


def budgets(program, prices, count, algorithms="m"):
    """From the leanest plan's arena to that of a plan that moves nothing."""
    with pytest.raises(BudgetError) as refused:
        arrange([program], f"accudnn:{algorithms}", prices, 1)
    most = arrange([program], f"liveness:{algorithms}", prices, 1 << 50).arena
    return [int(b) for b in np.linspace(refused.value.smallest, most, count)]


# ---- the performance model


def test_windows_by_hand():
    """Ops of 1 s, copies of 1.5 s. pool0.y is written by op 1 and read by op 2 and then by op 17. Its copy out runs
    from 2 to 3.5, beside op 2, so that its bytes are free from point 4; begun at point 15 the copy back ends at 16.5,
    at point 16 it would come too late."""
    b, x = Builder(64), "data"
    for i in range(4):
        x = b.add(f"pool{i}", "pooling", b.add(f"conv{i}", "convolution", x))
    program = b.program(updates=False)
    prices = Costs("toy", 1 << 40, 64 * KB / 1.5, 64 * KB / 1.5, lambda op: (Choice(Algorithm("only"), 1.0),))
    m = Model(program, prices, choose(program, prices, "m"))
    (c,) = [c for c in m.candidates if c.tensor.name == "pool0.y"]
    assert (c.written, c.last, c.use, c.nbytes) == (2, 3, 17, 64 * KB)
    assert program.ops[17].name == "conv1.backward_filter" and m.idle(c) == 14
    assert m.windows([c], m.peak) == [OffloadInterval(c.tensor, 2, 4, 15, 17)]
    still = m.predict([])
    assert (still.seconds, still.stall) == (len(program.ops) + 1.5, 1.5)  # the batch comes first
    hidden = m.predict([OffloadInterval(c.tensor, 2, 4, 15, 17)])
    assert (hidden.seconds, hidden.stall) == (still.seconds, still.stall)
    # a second sooner each costs half a second: of the copy out, and of the copy back
    exposed = m.predict([OffloadInterval(c.tensor, 2, 3, 16, 17)])
    assert exposed.stall == still.stall + 1 and exposed.exposed[c.tensor] == 1
    lean = next(t for t in m.narrowest() if t.tensor is c.tensor)
    assert lean == OffloadInterval(c.tensor, 2, 3, 17, 17)


@pytest.mark.slow
@pytest.mark.parametrize("bandwidth", [1e8, 1e9])
@pytest.mark.parametrize("name", [*PROGRAMS, 1, 2, 3])
def test_predictions_are_what_the_simulator_finds(name, bandwidth):
    """Also of offload intervals at random points, and of vDNN's."""
    program = PROGRAMS[name]() if isinstance(name, str) else random_graph(name, 20)
    prices = costs(bandwidth=bandwidth)
    m = Model(program, prices, choose(program, prices, "m"))
    r = random.Random(str(name))

    def anyhow(c):
        free = r.randint(c.last, c.use)
        back = r.randint(free, c.use)
        return OffloadInterval(c.tensor, c.written, free, back, r.randint(back, c.use))

    tried = [find(policy)(program, prices, 1 << 40).offloads for policy in ("liveness:m", "vdnn_conv:m", "vdnn_all:m")]
    tried += [m.narrowest(), m.windows(m.candidates, m.peak)]
    tried += [[anyhow(c) for c in m.candidates if r.random() < 0.7] for _ in range(20)]
    for offloads in tried:
        schedule = place(lower(program, complete(program, prices, replace(m.plan, offloads=tuple(offloads)))))
        trace, said = simulate(schedule, prices), m.predict(offloads)
        assert said.seconds == pytest.approx(trace.seconds, rel=1e-9)
        assert said.stall == pytest.approx(trace.stall_seconds, rel=1e-9, abs=1e-12)
        assert said.peak == live_peak(schedule.buffers, len(program.ops), lambda b: aligned(b.nbytes))[0]
        assert sum(said.exposed.values()) == pytest.approx(said.stall, rel=1e-6)


# ---- the policy


@pytest.mark.parametrize("bandwidth", [3e8, 2e9])
@pytest.mark.parametrize("name", usual_are(["residual", 4], [*PROGRAMS, 4, 5, 6, 32]))
def test_never_worse_than_vdnn(name, bandwidth):
    """Under every budget: it fits or is refused below the leanest plan, moves nothing where the net fits, else no more
    than vdnn_conv, and takes no longer than vdnn_conv and vdnn_all."""
    program = PROGRAMS[name]() if isinstance(name, str) else random_graph(name, 16)
    prices = costs(bandwidth=bandwidth)
    check(program, prices, budgets(program, prices, 9), "m")


@pytest.mark.extended
@pytest.mark.parametrize(
    "name, batch, gpu, algorithms",
    [("resnet18", 32, "k40", "m"), ("googlenet", 64, "titan_x", "p"), ("vgg16", 64, "titan_x", "m")],
)
def test_never_worse_than_vdnn_on_networks(name, batch, gpu, algorithms):
    program, prices = zoo(name, batch), profile(gpu)
    check(program, prices, budgets(program, prices, 4, algorithms), algorithms)


def check(program, prices, allowed, algorithms):
    names = ("vdnn_conv", "vdnn_all")
    others = {policy: arranged(program, f"{policy}:{algorithms}", prices, 1 << 50) for policy in names}
    times = []
    for budget in sorted({*allowed, *(other[0] for other in others.values())}):
        found = arranged(program, f"accudnn:{algorithms}", prices, budget)
        assert (found is not None) == (budget >= allowed[0])
        if found is None:
            continue
        arena, moved, seconds, offloads = found
        assert arena <= budget
        assert bool(moved) == bool(offloads)
        if budget >= allowed[-1]:
            assert moved == 0
        for policy, (needs, moves, takes, _) in others.items():
            if needs <= budget:
                assert seconds <= takes * (1 + 1e-6), f"{policy} is quicker at {budget}"
                assert moved <= moves, f"{policy} moves less at {budget}"
        times.append(seconds)
    assert times[-1] == min(times) and times[0] == max(times)


def test_fully_hidden_and_no_more_than_needed():
    """One tensor of the chain is enough; the one that idles longest goes, and nothing waits."""
    program, prices = chain(6), costs(bandwidth=1e10)
    full = arranged(program, "liveness:m", prices, 1 << 40)
    _, moved, seconds, offloads = arranged(program, "accudnn:m", prices, full[0] - 64 * KB)
    (offload,) = offloads
    # the host still has the batch
    assert moved == 64 * KB and offload.offload_at is None and offload.tensor is program.inputs[0]
    assert seconds == full[2]
    two = arranged(program, "accudnn:m", prices, full[0] - 2 * 64 * KB)
    assert {t.tensor.name for t in two[3]} == {"data", "relu0.y"} and two[1] == 3 * 64 * KB


def test_refusal_names_the_smallest_budget_that_works():
    program, prices = PROGRAMS["residual"](), costs()
    with pytest.raises(BudgetError, match="the smallest budget accudnn:m can keep is") as refused:
        arrange([program], "accudnn:m", prices, 100 * KB)
    smallest = refused.value.smallest
    assert arrange([program], "accudnn:m", prices, smallest).arena <= smallest
    with pytest.raises(BudgetError):
        arrange([program], "accudnn:m", prices, smallest - 1)


def test_a_program_without_backward_moves_nothing():
    net = Net.from_file(model("lenet"), 4)
    program = programs(net, None, ("TRAIN", "TEST"))["TEST"]
    assert find("accudnn:m")(program, costs(), 1).offloads == ()


@pytest.mark.slow
@pytest.mark.parametrize("net", ["chain", "inception", "nested", "residual"])
def test_bit_identical_halfway(net):
    """Under a budget at which some tensors move and others stay, with poisoned frees and delayed copies."""
    with pytest.raises(BudgetError) as refused:
        train(net, "cpu", "accudnn:m", budget=1)
    want, losses, _ = train(net, "cpu", "liveness:m")
    arena = liveness_arena(net)
    budget = (refused.value.smallest + arena) // 2
    assert refused.value.smallest < budget < arena
    got, got_losses, _ = train(net, "cpu", "accudnn:m", debug=True, delays=2e-3, budget=budget)
    assert got_losses == losses and got == want


def liveness_arena(net):
    with pytest.raises(BudgetError) as refused:
        train(net, "cpu", "liveness:m", budget=1)
    return refused.value.needed
