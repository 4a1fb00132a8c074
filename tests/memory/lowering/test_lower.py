"""The lowering, read as a listing. Golden texts of one small net under each policy stand in tests/golden;
after a wanted change, `GOLDEN=write pytest tests/memory/lowering/test_lower.py` rewrites them: review the diff."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.placement import place
from minidnn.memory.plan import OffloadInterval, Plan, Slot, complete, fate, in_place_sharing
from minidnn.memory.planning import arrange
from minidnn.memory.policies import find
from minidnn.memory.proof.verify import ScheduleError, verify
from minidnn.memory.schedule import Compute, Offload, Prefetch, Wait
from tests.support.aten import transformer
from tests.support.oracle import broken
from tests.support.paths import GOLDEN
from tests.support.programs import PROGRAMS, chain, costs, normed
from tests.support.schedules import positions


@pytest.mark.parametrize(
    "policy",
    [
        "baseline:m", "liveness:m", "vdnn_all:m", "vdnn_conv:p", "vdnn_dyn", "layrub:m", "accudnn:m", "superneurons",
        "superneurons_on_demand", "superneurons_memory:m", "sqrt_n:m", "recompute_cheap:m", "flashneuron:m", "poet",
        "capuchin:m", "dtr:m", "l2l:m", "zero_offload:m", "checkmate:m", "monet", "checkpoint_blocks:m", "selective:m",
    ],
)  # fmt: skip
def test_listing(policy):
    # vdnn_dyn has to offload and to mix algorithms there, dtr to run conv0 twice again, the others to move two tensors
    kib = {**dict.fromkeys(("accudnn:m", "flashneuron:m", "superneurons", "poet"), 240), "vdnn_dyn": 290}
    kib |= {"superneurons_on_demand": 240}
    kib |= {"capuchin:m": 420, "dtr:m": 270}
    kib |= {"checkmate:m": 270, "monet": 310}  # as dtr, with fewer runs; and with 40 KiB of workspace
    budget = kib[policy] * 1024 if policy in kib else None
    cheap = policy in ("recompute_cheap:m", "capuchin:m")
    program = normed() if cheap else chain(3)  # whose ops are dear but for what is in place
    if policy.startswith(("checkpoint_blocks", "selective")):
        program = transformer(2, fused=policy.startswith("checkpoint_blocks"))
    device = costs(bandwidth=1e8 if policy == "capuchin:m" else 1e9)
    text = str(arrange([program], policy, device, budget).schedules["TRAIN"]) + "\n"
    file = GOLDEN / f"{policy.removesuffix(':m').replace(':', '_')}.txt"
    if os.environ.get("GOLDEN") == "write":
        file.write_text(text)
    assert text == file.read_text()


def test_baseline_has_two_gradient_slots_on_a_chain_each_of_the_largest_size():
    s = arrange([chain(4)], "baseline:m", costs()).schedules["TRAIN"]
    slots = [b for b in s.buffers if b.name.startswith("gradient map")]
    assert [b.nbytes for b in slots] == [64 * 1024] * 2
    assert len(set(s.curve().tolist())) == 1, "network-wide allocation is flat"


def test_baseline_takes_as_many_slots_as_are_alive_at_once_elsewhere():
    s = arrange([PROGRAMS["nested"]()], "baseline:m", costs()).schedules["TRAIN"]
    assert sum(b.name.startswith("gradient map") for b in s.buffers) > 2


def test_performance_optimal_takes_workspace_and_memory_optimal_none():
    p = chain()
    for op in p.ops:
        if op.kind.startswith("convolution"):
            assert find("vdnn_all:p")(p, costs(), 1 << 40).algorithm[op].workspace
            assert not find("vdnn_all:m")(p, costs(), 1 << 40).algorithm[op].workspace


def test_what_comes_back_may_take_a_slot():
    """A slot has several residencies one after another, written and fetched; compute waits where one leaves by an
    offload, and the copy back of the next waits for the copy out of the one before."""
    p = chain(3)
    at = {op.name: i for i, op in enumerate(p.ops)}
    t = {t.name: t for t in p.tensors}
    slot = Slot("block 0")
    first, second = t["relu0.y"], t["conv2.y"]
    offloads = (OffloadInterval(first, at["relu1.forward"], at["conv2.forward"], at["conv2.backward_filter"],
                  at["conv1.backward_filter"], slot),)  # fmt: skip
    plan = Plan(offloads=offloads, share={first: slot, second: slot})
    s = place(lower(p, complete(p, costs(), plan)))
    verify(s)
    assert broken(s) is None
    (block,) = (b for b in s.buffers if b.name)
    assert [repr(residency) for residency in block.residencies] == ["relu0.y", "conv2.y", "relu0.y#1"]
    assert block.nbytes == 64 * 1024 and (block.lo, block.hi) == (0, len(p.ops))
    out = positions(s, Offload, "relu0.y")[0]
    barrier = next(
        i for i, x in enumerate(s.instructions) if isinstance(x, Wait) and (x.stream, x.on) == ("compute", out)
    )
    assert positions(s, Compute, "relu1.forward")[0] < barrier < positions(s, Compute, "conv2.forward")[0]
    # a member that is still wanted is not written over
    early = replace(plan, share={**plan.share, t["relu1.y"]: slot})  # which conv2 reads
    with pytest.raises(ScheduleError, match=r"conv2.forward writes conv2.y over relu1.y"):
        verify(place(lower(p, complete(p, costs(), early))))


def test_a_copy_into_a_slot_waits_for_the_copy_out_of_it():
    """Where compute has nothing to do with it in between, only the copy streams can tell each other."""
    p = chain(3)
    at = {op.name: i for i, op in enumerate(p.ops)}
    t = {t.name: t for t in p.tensors}
    slot = Slot("block 0")
    offloads = (
        OffloadInterval(t["relu0.y"], at["relu1.forward"], at["loss.forward"], at["conv1.backward_filter"],
             at["conv1.backward_filter"]),
        OffloadInterval(t["relu1.y"], at["relu2.forward"], at["conv2.backward_filter"], at["conv2.backward_filter"],
             at["conv2.backward_filter"], slot),
    )  # fmt: skip
    s = place(lower(p, complete(p, costs(), Plan(offloads=offloads, share={t["relu1.y"]: slot}))))
    verify(s)
    assert broken(s) is None
    out, back = positions(s, Offload, "relu1.y")[0], positions(s, Prefetch, "relu1.y")[0]
    assert any(isinstance(x, Wait) and (x.stream, x.on) == ("in", out) for x in s.instructions[:back])


def test_fates_are_derived_for_people():
    p = chain(3)
    plan = complete(p, costs(), find("vdnn_all:m")(p, costs(), 1 << 40))
    names = {t.name: fate(plan, p, t) for t in p.tensors}
    assert names["relu0.y"] == "offload" and names["pool.y"] == "keep"
    conv = next(op for op in p.ops if op.name == "conv1.forward")
    again = complete(p, costs(), Plan(order=(*p.ops[:-1], conv, p.ops[-1])))
    assert fate(again, p, conv.writes[0]) == "recompute"


def test_in_place_is_taken_only_where_nobody_reads_the_old_value_later():
    p = PROGRAMS["residual"]()
    share = {a.name: b.name for a, b in in_place_sharing(p).items()}
    assert share["relu0a.y"] == "conv0a.y"
    assert "sum1.y" in share and share["sum1.y"] == "conv1b.y"
    # relu0.y feeds conv1a and sum1: nothing may take its bytes
    assert "relu0.y" not in share.values()


def test_one_residency_of_a_tensor_may_share_where_the_others_do_not():
    """Here only a run of relu0 for conv1's backward writes over its conv0.y, not the run in forward."""
    p = chain(3)
    at = {op.name: op for op in p.ops}
    t = {t.name: t for t in p.tensors}
    k = p.ops.index(at["conv1.backward_filter"])
    order = (*p.ops[:k], at["conv0.forward"], at["relu0.forward"], *p.ops[k:])
    s = place(lower(p, complete(p, costs(), Plan(order, share={(t["relu0.y"], k + 1): t["conv0.y"]}))))
    verify(s)
    assert broken(s) is None
    first, again = (b for b in s.buffers if any(residency.tensor == t["relu0.y"] for residency in b.residencies))
    assert first.label == "relu0.y" and again.label == "conv0.y#1=relu0.y#1"
    with pytest.raises(ScheduleError, match="does not permit"):
        verify(place(lower(p, replace(s.plan, share={(t["conv1.y"], 2): t["relu0.y"]}))))


def test_a_plan_that_contradicts_itself_is_refused_by_name():
    p = chain()
    t = next(t for t in p.tensors if t.name == "relu0.y")
    with pytest.raises(ValueError, match=r"relu0\.y"):
        place(
            lower(
                p, complete(p, costs(), Plan(offloads=(OffloadInterval(t, 1, 2, 3, 4), OffloadInterval(t, 1, 2, 3, 4))))
            )
        )


def test_an_unknown_policy_is_named_with_what_there_is():
    with pytest.raises(KeyError, match="did you mean 'vdnn_all'"):
        find("vdn_all")
    with pytest.raises(KeyError, match="m \\(memory-optimal\\), p"):
        find("vdnn_all:x")
    with pytest.raises(KeyError, match="chooses its algorithms itself"):
        find("vdnn_dyn:p")
