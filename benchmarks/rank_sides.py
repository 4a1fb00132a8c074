"""Several ranks of a side of benchmarks/ranks.py, each a process of its own: minidnn's under mpiexec, or PyTorch's DDP.

A rank connects to the parent's socket and waits there for requests, which costs no processor time. So the two sides can
take turns. All ranks of a side get the same request at once.

    mpiexec -n 2 python -m benchmarks.rank_sides ours ADDRESS NET THREADS       (what the parent starts)
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

from benchmarks import nets
from benchmarks.nets import COMPARED, GENTLE, TRAIN
from benchmarks.turns import Failed

ROOT = Path(__file__).resolve().parents[1]
STARTING = 120.0  # seconds within which all ranks of a side have to come
PATIENCE = 10.0  # seconds that they have to end by themselves


def net_of(asked: str) -> Any:
    """The net of "NET:BATCH" or "NET:BATCH:SIDE", with square images of that side. Raises zoo.NoSuchModel."""
    name, batch, *side = asked.split(":")
    net = nets.found(name, int(batch))
    return nets.remembering(nets.of_side(net, int(side[0])) if side else net)


# ---- a rank of each side


class Ours:
    """A rank of minidnn."""

    def __init__(self, network: str, threads: int) -> None:
        from minidnn.backends.cpu import CpuDevice
        from minidnn.ranks.mpi import Mpi

        self.engine = Mpi()
        self.rank, self.ranks = self.engine.rank, self.engine.ranks
        self.device = CpuDevice(threads)
        self.net = net_of(network)
        self.sessions: dict[str, Any] = {}

    def measure(self, again: bool) -> None:
        """Measure what the net's ops cost, on the first rank, while the others wait."""
        self._costs(again and not self.rank)

    def _costs(self, again: bool) -> Any:
        from benchmarks.turns import costs_of
        from minidnn.programs.build import programs

        specs = (TRAIN, self._spec())  # a step of one rank alone, too: ops are measured within steps
        made = [programs(n, s, ("TRAIN",), fuses=self.device.fuses)["TRAIN"] for n in self._both() for s in specs]
        return costs_of(self.device, made, again, lambda done, of, text: None)

    def _spec(self) -> Any:
        return replace(TRAIN, ranks=self.ranks, rank=self.rank)

    def _both(self) -> list[Any]:
        """The net, and the one whose losses are compared."""
        return [self.net, nets.without_dropout(self.net)]

    def load(self, policy: str, bucket: int | None) -> dict[str, Any]:
        """Load the net under a policy; its losses, its plan's bytes and its predicted seconds."""
        from benchmarks.turns import shut
        from minidnn.costs.net import LINK, among, sent
        from minidnn.memory.execution.simulator import simulate

        costs, train = self._costs(False), self._spec()
        train = train if bucket is None else replace(train, bucket=bucket)
        whole, comparable = self._both()
        session, losses = self._opened(comparable, train, policy, costs, COMPARED)
        shut(session)
        self.session, _ = self._opened(whole, train, policy, costs, 2)
        schedule = self.session.arrangement.schedules["TRAIN"]
        own = {t.name for t in schedule.program.persistent}
        weights = [t for t in schedule.program.persistent if f"{t.name}.shard" in own]
        state = [t for t in schedule.program.persistent if ".shard." in t.name]
        predicted = simulate(schedule, among(costs, LINK)).seconds
        leaves = sum(sent(op) for op in schedule.program.ops if op.on_net)
        return {
            "losses": losses, "arena_bytes": self.session.arrangement.arena, "resident_bytes": resident(),
            "state_bytes": sum(t.nbytes for t in state), "weight_bytes": sum(t.nbytes for t in weights),
            "sent_bytes": leaves, "predicted_seconds": predicted,
        }  # fmt: skip

    def _opened(self, net: Any, train: Any, policy: str, costs: Any, steps: int) -> tuple[Any, list[float]]:
        from minidnn.training.session import Session

        session = Session(
            net, train, ("TRAIN",), device=self.device, policy=policy, costs=costs, seed=1, engine=self.engine
        )
        for tensor, value in nets.batch_of(session.programs["TRAIN"], GENTLE, self.rank).items():
            session.machine.write(tensor, value, "TRAIN")
        return session, [_ours(session) for _ in range(steps)]

    def steps(self, count: int) -> list[float]:
        return _timed(lambda: _ours(self.session), count)


def _ours(session: Any) -> float:
    session.launch("TRAIN")
    loss = fmean(session.objectives("TRAIN"))
    session.machine.settle()
    return loss


class Theirs:
    """A rank of PyTorch: DistributedDataParallel with gloo, eager, in one of the layouts."""

    def __init__(self, network: str, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        torch.distributed.init_process_group("gloo")
        self.rank, self.ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
        self.net, self.version = net_of(network), torch.__version__

    def load(self, layout: str, views: bool) -> dict[str, Any]:
        """`views`: whether gradients lie in DDP's buckets, as an expert sets it."""
        import torch

        from benchmarks.peer import Peer, Trainer, first_weights
        from minidnn.programs.build import programs

        graph, weights = self.net.graph("TRAIN"), first_weights(self.net)
        batch = nets.batch_of(programs(self.net, TRAIN, ("TRAIN",))["TRAIN"], GENTLE, self.rank)
        peer = Peer(graph, weights, "cpu", drop=False, layout=layout)
        self.trainer = trainer = Trainer(peer, {t.name: value for t, value in batch.items()}, TRAIN, GENTLE, warm=0)
        together = torch.nn.parallel.DistributedDataParallel(peer, gradient_as_bucket_view=views)
        together.place = peer.place
        trainer.peer = together
        losses = [self._step() for _ in range(COMPARED)]
        peer.drop = True
        for _ in range(2):
            self._step()
        state = [t for one in trainer.optimizer.state.values() for t in one.values() if torch.is_tensor(t)]
        learned = sum(p.nbytes for p in peer.parameters() if p.requires_grad)
        return {
            "losses": losses, "resident_bytes": resident(), "state_bytes": sum(t.nbytes for t in state),
            "sent_bytes": 2 * learned * (self.ranks - 1) // self.ranks, "version": self.version,
        }  # fmt: skip

    def _step(self) -> float:
        """The mean of all ranks' losses, which nobody times: an all-reduce of its own."""
        import torch

        loss = self.trainer.step()
        torch.distributed.all_reduce(loss)
        return loss.item() / self.ranks

    def steps(self, count: int) -> list[float]:
        return _timed(lambda: self.trainer.step().item(), count)


def resident() -> int:
    """The most bytes of memory that this process has had so far (VmHWM), with its libraries."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def _timed(step: Any, count: int) -> list[float]:
    """The seconds of so many steps, after one that is not counted. Raises ArithmeticError if a loss is not finite."""
    loss, taken = step(), []
    for _ in range(count):
        began = perf_counter()
        loss = step()
        taken.append(perf_counter() - began)
    if not abs(loss) < float("inf"):
        raise ArithmeticError(f"the loss has become {loss}")
    return taken


# ---- the parent's end


class Ranks:
    """The ranks of a side."""

    def __init__(self, side: str, ranks: int, network: str, threads: int, environment: Mapping[str, str]) -> None:
        self.side, self._folder = side, tempfile.TemporaryDirectory()
        address = str(Path(self._folder.name) / "socket")
        given = [sys.executable, "-m", "benchmarks.rank_sides", side, address, network, str(threads)]
        variables = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(threads), **environment}
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen(ranks)
            listener.settimeout(STARTING)
            if side == "ours":
                commands = [(["mpiexec", "-n", str(ranks), *given], variables)]
            else:
                port = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
                each = ({"RANK": str(k), "WORLD_SIZE": str(ranks)} for k in range(ranks))
                commands = [(given, variables | port | own) for own in each]
            self.processes = [subprocess.Popen(c, env=e, cwd=ROOT, stdin=subprocess.DEVNULL) for c, e in commands]
            try:
                self.pipes = [Connection(listener.accept()[0].detach()) for _ in range(ranks)]
            except TimeoutError:
                self.pipes = []
                self.close()
                raise Failed(f"{side}: not all of {ranks} ranks have come within {STARTING:g} s") from None
        self.pipes.sort(key=lambda pipe: pipe.recv())

    def ask(self, what: str, *arguments: Any) -> list[Any]:
        """The answers of all ranks. Raises Failed."""
        for pipe in self.pipes:
            pipe.send((what, arguments))
        found = []
        for rank, pipe in enumerate(self.pipes):
            try:
                kind, answer = pipe.recv()
            except (EOFError, ConnectionError):
                raise Failed(f"{self.side}: rank {rank} has ended") from None
            if kind == "failed":
                raise Failed(f"{self.side}, rank {rank}: {answer}")
            found.append(answer)
        return found

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.close()
        deadline = time.monotonic() + PATIENCE
        for process in self.processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._folder.cleanup()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def main(arguments: Sequence[str]) -> None:
    """A rank: connect, and answer until the parent closes the connection."""
    kind, address, network, threads = arguments
    side = (Ours if kind == "ours" else Theirs)(network, int(threads))
    way = socket.socket(socket.AF_UNIX)
    way.connect(address)
    with Connection(way.detach()) as pipe:
        pipe.send(side.rank)
        while True:
            try:
                what, given = pipe.recv()
            except EOFError:
                return
            try:
                pipe.send(("answer", getattr(side, what)(*given)))
            except Exception as error:
                pipe.send(("failed", f"{type(error).__name__}: {error}"))
                raise


if __name__ == "__main__":
    main(sys.argv[1:])
