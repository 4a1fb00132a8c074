"""Several ranks on GPUs end with the bytes of one, in any order that CUDA and NCCL allow; and a lost rank is told.

The GPUs and NCCL are those of tests/support/cuda: what only GPUs can show is in benchmarks/gpu_check."""

from __future__ import annotations

import pytest

from minidnn.program import Role
from tests.ranks.test_machines import Rank, whole
from tests.support.cuda import host as cuda_host
from tests.support.cuda.fake import fake_device
from tests.support.cuda.ranks import on_gpus

pytestmark = pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++")

STEPS = 5


def trained(ranks, each, policy="liveness", seed=0, graphs=True, **options):
    """Each rank's bytes after some iterations, and how many replays of graphs it has made."""

    def body(rank, device, engine):
        one = Rank(ranks, rank, each, policy, device, engine, **options).train(STEPS)
        values = one.values()
        one.machine.close()
        engine.close()
        return values, device.api.replays

    return on_gpus(ranks, body, seed, graphs=graphs)


def agree(alone, parts):
    """That all ranks together have the bytes of the one alone."""
    roles = {t.name: t.role for t in alone.machine.homes}
    compared = 0
    for name, values in alone.values().items():
        learned, momentum, _ = name.partition(".momentum")
        shard = f"{learned}.shard{momentum}"
        if shard in parts[0]:
            assert whole(parts, shard)[: values.size].tobytes() == values.tobytes(), name
        elif roles[name] is not Role.PARAM_GRADIENT:
            assert {part[name].tobytes() for part in parts} == {values.tobytes()}, name
        else:
            continue
        compared += 1
    assert compared > 10


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("ranks, each", [(2, 1), (2, 2), (4, 1)])
def test_the_bytes_are_those_of_one_rank(ranks, each, graphs):
    alone = Rank(1, 0, ranks * each, "liveness", fake_device()).train(STEPS)
    found = trained(ranks, each, seed=ranks, graphs=graphs)
    agree(alone, [values for values, _ in found])
    assert all((replays >= STEPS - 2) == graphs for _, replays in found)


@pytest.mark.parametrize("policy", ["baseline:m", "vdnn_all:m", "sqrt_n", "superneurons"])
def test_under_every_policy(policy):
    alone = Rank(1, 0, 2, "liveness", fake_device()).train(STEPS)
    agree(alone, [values for values, _ in trained(2, 1, policy, seed=3)])
