"""A moment of a schedule: each live byte has one reason, and the worst moment shows best why they are too many."""

import pytest

from minidnn.memory.moment import ROLES, Why, moment, worst
from minidnn.memory.planning import unproved
from minidnn.memory.policies import SOME_NETS, names
from minidnn.program import Role
from minidnn.report.draw import ROLES as WORDS
from tests.support.programs import KB, chain, costs, residual
from tests.support.slow import extended_are


def schedule(policy, program=None, limit=0):
    return unproved([program or chain()], policy, costs(), limit)["TRAIN"]


@pytest.mark.parametrize("policy", extended_are(["poet"], sorted(set(names()) - SOME_NETS)))
def test_each_live_byte_is_there_for_one_reason(policy):
    found = schedule(policy, residual())
    live, persistent = found.curve(), sum(t.nbytes for t in found.program.persistent)
    for point in range(len(live)):
        now = moment(found, point, costs())
        op = found.plan.order[point]
        assert now.live == live[point] == sum(now.held(why) for why in Why)
        assert now.held(Why.PERSISTENT) == persistent
        assert now.held(Why.WORKSPACE) >= now.algorithm.workspace == found.plan.algorithm[op].workspace
        used = {r.name for r in now.of(Why.USED)} | {r.over for r in now.of(Why.USED) if r.over}
        here = () if op in found.plan.host_ops else op.tensors
        assert used == {t.name for t in here if t not in found.program.persistent}


def test_reasons_by_hand():
    """When relu0's backward runs, it reads relu0.y and writes over its gradient; the data waits for conv0's filter."""
    found = schedule("liveness:m")
    (point,) = (p for p, op in enumerate(found.plan.order) if op.name == "relu0.backward.0")
    now = moment(found, point, costs())
    by_name = {r.name: r for r in now.residents}
    written = by_name["conv0.grad.relu0.0"]
    assert (written.why, written.over, written.role) == (Why.USED, "relu0.grad.conv1.0", "gradients")
    assert by_name["relu0.y"].read and by_name["relu0.y"].nbytes == 64 * KB
    assert by_name["data"].why is Why.KEPT and now.held(Why.KEPT) == 64 * KB
    assert [r.nbytes for r in now.of(Why.PERSISTENT)] == sorted(
        (t.nbytes for t in found.program.persistent), reverse=True
    )


def test_what_is_copied_is_on_the_way():
    found = schedule("vdnn_all:m")
    points = range(len(found.plan.order))
    there = {r.name for point in points for r in moment(found, point, costs()).of(Why.COPIED)}
    assert there & {
        offload.tensor.name
        for offload in found.plan.offloads
        if offload.offload_at is not None and offload.prefetch_at is not None
    }


@pytest.mark.parametrize("policy", ["baseline:m", "liveness:p", "vdnn_all:m", "best"])
def test_the_worst_moment_has_most_bytes_that_cannot_leave(policy):
    found = schedule(policy, residual())

    def uses(point):
        now = moment(found, point, costs())
        return now.held(Why.USED) + now.held(Why.WORKSPACE)

    live = found.curve()
    for limit in (0, int(live.max()) * 3 // 4, int(live.max()) - 1):
        then = worst(found, limit, costs())
        over = [p for p in range(len(live)) if live[p] > limit]
        assert then.point in over and uses(then.point) == max(map(uses, over))
    assert worst(found, int(live.max()), costs()).point == found.peak_point


def test_every_role_has_a_word():
    assert set(ROLES) == set(Role) and set(ROLES.values()) == set(WORDS)
