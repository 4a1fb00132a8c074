"""What launchers say in the environment, which device and how many threads a rank takes, and how ranks without MPI find
each other."""

from __future__ import annotations

import os
import pickle
import socket
import threading
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

from minidnn.errors import InvalidInput
from minidnn.ranks import launched, sockets
from minidnn.ranks.engine import RankLost
from minidnn.ranks.launched import Launch, launch
from minidnn.ranks.mpi import NoMpi
from minidnn.ranks.sockets import NotReached, Sockets
from minidnn.training.evaluate import Part

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_RANK": "3",
}  # fmt: skip
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2", "PMI_FD": "9"}
SLURM = {
    "SLURM_PROCID": "9", "SLURM_STEP_NUM_TASKS": "11", "SLURM_LOCALID": "1", "SLURM_NODEID": "2",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2),3", "SLURM_NTASKS": "11", "SLURM_JOB_ID": "77",
}  # fmt: skip
ALONE = Launch("Open MPI", 0, 2, 0, 2)


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        (TORCHRUN, Launch("torchrun", 5, 8, 1, 4)),
        (OPEN_MPI, Launch("Open MPI", 3, 4, 1, 2)),
        (MPICH, Launch("MPICH", 1, 2, 1, 2)),
        (SLURM, Launch("Slurm", 9, 11, 1, 3)),
        (SLURM | {"SLURM_NODEID": "1", "SLURM_LOCALID": "3"}, Launch("Slurm", 9, 11, 3, 4)),
        (SLURM | {"PMI_RANK": "9", "PMI_SIZE": "11"}, Launch("Slurm", 9, 11, 1, 3)),  # srun --mpi=pmi2
        (SLURM | MPICH, Launch("MPICH", 1, 2, 1, 2)),  # mpiexec within an allocation
        (SLURM | TORCHRUN, Launch("torchrun", 5, 8, 1, 4)),  # a torchrun on each node
        (SLURM | MPICH | {"PMI_SIZE": "1", "PMI_RANK": "0", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}, None),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}, None),  # in a batch script, not under srun
        ({"RANK": "1", "WORLD_SIZE": "2"}, None),
        ({}, None),
    ],
    ids=lambda value: value.by if isinstance(value, Launch) else None,
)
def test_launchers(environment, wanted):
    assert launch(environment) == wanted


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"RANK": "x"}, "torchrun says RANK=x, WORLD_SIZE=8, .*: expected whole numbers"),
        ({"RANK": "8"}, "RANK=8, WORLD_SIZE=8, .*: a rank counts from 0 and is below"),
        ({"LOCAL_RANK": "4"}, "LOCAL_RANK=4, LOCAL_WORLD_SIZE=4: a rank counts"),
    ],
)
def test_nonsense_is_refused(changed, why):
    with pytest.raises(InvalidInput, match=why):
        launch(TORCHRUN | changed)


def test_nonsense_of_slurm_is_refused():
    with pytest.raises(InvalidInput, match=r"SLURM_STEP_TASKS_PER_NODE=4\(x: expected whole numbers"):
        launch(SLURM | {"SLURM_STEP_TASKS_PER_NODE": "4(x"})


def test_each_rank_takes_its_own_gpu():
    rank = Launch("torchrun", 5, 8, 1, 4)
    assert rank.gpu("cuda", 4) == "cuda:1"
    assert rank.gpu("cuda", 1) == "cuda:0", "the launcher shows each rank one GPU"
    with pytest.raises(InvalidInput, match="torchrun has started 4 ranks on this machine, which shows 3 GPUs"):
        rank.gpu("cuda", 3)
    with pytest.raises(InvalidInput, match="is one GPU, and each of the 8 ranks takes its own"):
        rank.gpu("cuda:2", 4)


class Everyone:
    """A channel on which all ranks say the same, or what the test says."""

    def __init__(self, *others):
        self.others = others

    def share(self, value):
        return [value, *self.others]


def test_cpus_are_divided_among_the_ranks_that_may_use_them(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3, 4, 5})
    here = socket.gethostname()
    assert launched.threads(Everyone()) == 6
    assert launched.threads(Everyone((here, [*range(6)]))) == 3
    assert launched.threads(Everyone(("elsewhere", [*range(6)]))) == 6
    assert launched.threads(Everyone((here, [4, 5, 6, 7]))) == 5, "four alone, and two of which each has a half"
    assert launched.threads(Everyone(*[(here, [*range(6)])] * 8)) == 1


def test_an_engine_of_mpi_that_does_not_know_the_ranks_is_refused(monkeypatch):
    with pytest.raises(NoMpi, match="torchrun starts ranks that compute on GPUs"):
        launched.engine(Launch("torchrun", 0, 2, 0, 2))
    monkeypatch.setattr("minidnn.ranks.mpi.Mpi", lambda limit: type("One", (), {"ranks": 1})())
    with pytest.raises(NoMpi, match="Open MPI has started 2 ranks, but mpi4py sees 1: it belongs to another MPI"):
        launched.engine(ALONE)


# ---- without MPI


def test_the_address(monkeypatch):
    said = {"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
    assert sockets.address(said) == ("node1", 29500)
    assert sockets.address(said | {"TORCHELASTIC_USE_AGENT_STORE": "True"}) == ("node1", 29501)
    assert sockets.address({"MASTER_ADDR": "node1"}) is None
    with pytest.raises(InvalidInput, match="MASTER_PORT=http: expected the number of a port"):
        sockets.address(said | {"MASTER_PORT": "http"})


def free():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return "127.0.0.1", one.getsockname()[1]


def ranks(count, body, limit=600.0):
    """What the body returns, or raises, on each rank of a channel of sockets."""
    at, found = free(), [None] * count

    def run(rank):
        try:
            channel = Sockets(rank, count, at, limit)
            try:
                found[rank] = body(rank, channel)
            finally:
                channel.close()
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_ranks_share_values_by_rank():
    error = InvalidInput("no space is left")

    def body(rank, channel):
        everyone = channel.share((rank, b"x" * rank))
        channel.check()
        (told, *_) = channel.share(error if rank == 0 else None)
        found = channel.share((Path("a"), np.full(3, rank), np.float32(rank), Part(losses=[rank])))
        return everyone, str(told), [(str(p), a.tolist(), float(x), part.losses) for p, a, x, part in found]

    wanted = [(rank, b"x" * rank) for rank in range(4)]
    values = [("a", [rank] * 3, rank, [rank]) for rank in range(4)]
    assert ranks(4, body) == [(wanted, "no space is left", values)] * 4


def test_a_rank_that_ends_is_named_on_all():
    def body(rank, channel):
        channel.share(rank)
        while rank < 2:  # as the host does while it waits for its GPU
            channel.check()

    first, second, _ = ranks(3, body)
    assert isinstance(first, RankLost) and str(first) == "rank 2 has ended, as rank 0 sees"
    assert isinstance(second, RankLost) and str(second) == str(first)


def test_a_rank_that_ends_before_it_shares_is_named():
    found = ranks(3, lambda rank, channel: None if rank == 1 else channel.share(rank))
    assert [str(one) for one in (found[0], found[2])] == ["rank 1 has ended, as rank 0 sees"] * 2


def test_a_rank_that_never_comes_is_named():
    with pytest.raises(RankLost, match=r"rank 0: nothing from rank 1, 2 within 0.2 s"):
        Sockets(0, 3, free(), 0.2)
    with pytest.raises(NotReached, match=r"rank 1 does not reach rank 0 at 127.0.0.1:\d+ within 0.2 s .*MASTER_ADDR"):
        Sockets(1, 3, free(), 0.2)


def test_a_port_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as one:
        at = one.getsockname()
        with pytest.raises(NotReached, match=f"rank 0 cannot listen at 127.0.0.1:{at[1]} .*choose another MASTER_PORT"):
            Sockets(0, 2, at, 1.0)


class Evil:
    def __reduce__(self):
        return os.system, ("false",)


def test_strangers_are_sent_away_and_nothing_of_theirs_is_run():
    at, found = free(), []
    first = threading.Thread(target=lambda: found.append(Sockets(0, 2, at, 600.0)))
    first.start()
    for said in (pickle.dumps(Evil()), b"GET / HTTP/1.0", pickle.dumps(7), pickle.dumps("1")):
        while True:
            try:
                one = socket.create_connection(at)
                break
            except OSError:
                continue
        with Connection(os.dup(one.fileno())) as connection:
            connection.send_bytes(said)
            with pytest.raises((EOFError, ConnectionError)):
                connection.recv_bytes()
        one.close()
    second = Sockets(1, 2, at, 600.0)
    first.join()
    assert found[0].ranks == 2
    for channel in (*found, second):
        channel.close()
