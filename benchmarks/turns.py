"""Two programs, minidnn and PyTorch, that train the same net and take turns, each in a process of its own.

They have their own processes so that neither disturbs the other by its heap, or by its OpenMP threads, which spin for a
while before they sleep. (With lenet no difference to one common process could be seen.) A side waits for its turn at a
pipe, which costs no processor time. Through the pipe the parent (benchmarks/cpu.py) sends requests, and receives
progress and answers.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import perf_counter, process_time
from typing import Any

from benchmarks import nets
from benchmarks.nets import COMPARED, GENTLE, TRAIN

TURN = 0.5  # seconds that the steps of a turn take at least
SHORT = 0.25  # seconds; if a step takes less, the first of a turn is not counted, since its caches are cold
WARM = 2  # steps that are run before any is counted
PATIENCE = 10.0  # seconds that an interrupted side has to end by itself

Tell = Callable[[int, int, str], object]  # called with (how many are done, of how many, a name of the work at hand)


@dataclass(frozen=True)
class Turn:
    """The times of one turn."""

    seconds: list[float]  # of each counted step
    cpu: float  # processor seconds of all the process's threads together, mean per counted step
    whole: float  # the same of the whole turn


class Ours:
    """minidnn's side: the net under some policies, planned with costs that were measured here.

    The batch lies on the host. Each step copies it into the arena; the loss is read after each step."""

    def __init__(self, tell: Tell, asked: nets.Asked, threads: int) -> None:
        from minidnn.backends.cpu import CpuDevice

        self.tell = tell
        self.device = CpuDevice(threads)
        self.net = nets.remembering(asked.net())
        self.sessions: dict[str, Any] = {}

    def load(self, policies: Sequence[str], again: bool) -> dict[str, Any]:
        """Measure missing costs (all, if `again`), then load the net under each policy and run the first steps.

        Returns for each policy the losses to compare, the plan's bytes, its predicted seconds, and its ops' work."""
        from benchmarks import roof
        from minidnn.memory.execution.simulator import simulate
        from minidnn.memory.schedule import Compute
        from minidnn.programs.build import programs

        comparable = nets.without_dropout(self.net)
        fuses = self.device.fuses
        both = [programs(net, TRAIN, ("TRAIN",), fuses=fuses)["TRAIN"] for net in (self.net, comparable)]
        costs = costs_of(self.device, both, again, self.tell)
        found: dict[str, Any] = {}
        for i, policy in enumerate(policies):
            self.tell(i, len(policies), f"{policy}: planning, and comparing losses")
            session, losses = opened(comparable, self.device, policy, costs, COMPARED)
            shut(session)
            self.sessions[policy], _ = opened(self.net, self.device, policy, costs, WARM)
            arrangement = self.sessions[policy].arrangement
            schedule = arrangement.schedules["TRAIN"]
            found[policy] = {
                "losses": losses,
                "peak_bytes": arrangement.arena,
                "live_peak_bytes": schedule.live_peak,
                "host_bytes": arrangement.host,
                "predicted_seconds": simulate(schedule, costs).seconds,
                "work": [roof.work(x.op, x.algorithm) for x in schedule.instructions if isinstance(x, Compute)],
            }
        return {
            "device": self.device.description,
            "batch": next(t.shape[0] for t in both[0].inputs if len(t.shape) > 1),
            "policies": found,
        }

    def roof(self, others: Mapping[str, float]) -> Any:
        """The machine's roof, as benchmarks.roof.Roof. others: products of others, as `Theirs.product` has them."""
        from benchmarks import rates

        return rates.measured(self.device, others)

    def turn(self, policy: str) -> Turn:
        session = self.sessions[policy]
        return _timed(lambda: train(session))


def costs_of(device: Any, programs: Sequence[Any], again: bool, tell: Tell) -> Any:
    """Costs of the programs' ops, measured here unless they are known. Raises NotKept if they cannot be saved."""
    from minidnn.costs import measurements
    from minidnn.measuring.ops import measure

    return measure(device, programs, measurements(device), again, tell)


def opened(
    net: Any, device: Any, policy: str, costs: Any, steps: int, budget: int | None = None
) -> tuple[Any, list[float]]:
    """A session with its batch on the host, and the losses of its first `steps` steps."""
    from minidnn.training.session import Session

    session = Session(net, TRAIN, ("TRAIN",), device=device, policy=policy, costs=costs, budget=budget, seed=1)
    for tensor, value in nets.batch_of(session.programs["TRAIN"], GENTLE).items():
        session.machine.write(tensor, value, "TRAIN")
    return session, [train(session) for _ in range(steps)]


def shut(session: Any) -> None:
    """Close the session and free its memory, which `close` alone keeps readable."""
    session.close()
    session.machine.persistent.clear()


def train(session: Any) -> float:
    """Run one iteration as the solver does. Returns its loss."""
    session.launch("TRAIN")
    loss = session.objective("TRAIN")
    session.machine.settle()
    return loss


class Theirs:
    """PyTorch's side: eager mode in each layout (benchmarks/peer.py), with default settings and `threads` threads."""

    def __init__(self, tell: Tell, asked: nets.Asked, threads: int) -> None:
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # silences PyTorch's profiler; set before the import
        import torch

        torch.set_num_threads(threads)
        self.tell, self.version = tell, torch.__version__
        self.net = nets.remembering(asked.net())
        self.trainers: dict[str, Any] = {}

    def load(self, layouts: Sequence[str]) -> dict[str, Any]:
        """The losses to compare and the peak in each layout; in the first one alone if the net has no images."""
        from benchmarks.peer import Peer, Trainer, first_weights
        from minidnn.programs.build import programs

        graph, weights = self.net.graph("TRAIN"), first_weights(self.net)
        batch = nets.batch_of(programs(self.net, TRAIN, ("TRAIN",))["TRAIN"], GENTLE)
        given = {t.name: value for t, value in batch.items()}
        if not any(len(blob.tensor.shape) == 4 for node in graph.layers for blob in node.tops):
            layouts = layouts[:1]
        found = {}
        for i, layout in enumerate(layouts):
            self.tell(i, len(layouts), f"PyTorch, {layout}: comparing losses, and watching its memory")
            peer = Peer(graph, weights, "cpu", drop=False, layout=layout)
            trainer = self.trainers[layout] = Trainer(peer, given, TRAIN, GENTLE, warm=COMPARED)
            peer.drop = True
            for _ in range(WARM):
                trainer.step()
            found[layout] = {"losses": trainer.losses, "peak_bytes": trainer.cpu_peak()}
        return {"version": self.version, "layouts": found}

    def turn(self, layout: str) -> Turn:
        trainer = self.trainers[layout]
        return _timed(lambda: trainer.step().item())

    def product(self, sides: Sequence[int]) -> float:
        """Operations per second of PyTorch's fastest product of square matrices with so many rows."""
        import torch

        from benchmarks.rates import fastest

        found = []
        for side in sides:
            a, b, product = (torch.rand(side, side) for _ in range(3))

            def run(rounds: int, a: Any = a, b: Any = b, product: Any = product) -> None:
                for _ in range(rounds):
                    torch.mm(a, b, out=product)

            found.append(2 * side**3 / fastest(run))
        return max(found)


def _timed(step: Callable[[], float]) -> Turn:
    """The times of at least one step and TURN seconds of steps.

    Raises ArithmeticError if the last loss is not finite: kernels may take another time on infinities and NaNs."""
    began, first = perf_counter(), process_time()
    loss = step()
    taken, counted = [perf_counter() - began], first
    if taken[0] < SHORT:
        taken, counted = [], process_time()
    while sum(taken) < TURN:
        began = perf_counter()
        loss = step()
        taken.append(perf_counter() - began)
    last = process_time()
    if not abs(loss) < float("inf"):
        raise ArithmeticError(f"the loss has become {loss}")
    return Turn(taken, (last - counted) / len(taken), last - first)


# ---- the processes


class Failed(RuntimeError):
    """A side could not answer a request. The message is for users; `where` is a traceback for developers."""

    def __init__(self, message: str, where: str = "") -> None:
        super().__init__(message)
        self.where = where


class Side:
    """A process with an object of class Ours or Theirs in it, whose methods `ask` calls."""

    def __init__(
        self, kind: type[Ours] | type[Theirs], *arguments: Any, environment: Mapping[str, str] | None = None
    ) -> None:
        """`environment`: variables of the process, beside those of this one, from its very start."""
        context = get_context("spawn")
        self.pipe, other = context.Pipe()
        self.name = kind.__name__.lower()
        self.process = context.Process(target=_serve, args=(other, kind, arguments), daemon=True)
        before = {name: os.environ.get(name) for name in environment or ()}
        os.environ.update(environment or {})
        try:
            self.process.start()
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        other.close()

    def ask(self, what: str, *arguments: Any, tell: Tell = lambda done, of, text: None) -> Any:
        """The result of the method `what` with these arguments. `tell` is called with its progress. Raises Failed."""
        try:
            self.pipe.send((what, arguments))
            while True:
                kind, answer = self.pipe.recv()
                if kind == "answer":
                    return answer
                if kind == "failed":
                    raise Failed(*answer)
                tell(*answer)
        except (EOFError, ConnectionError):
            self.process.join(10)
            code = self.process.exitcode
            why = "killed, perhaps because memory ran out" if code == -signal.SIGKILL else f"exit code {code}"
            raise Failed(f"its process has ended ({why})") from None

    def close(self) -> None:
        """End the process. If it is busy, it gets the signal of Ctrl-C first, so that it can save its measurements."""
        self.pipe.close()
        self.process.join(1)
        if self.process.is_alive() and self.process.pid is not None:
            os.kill(self.process.pid, signal.SIGINT)
            self.process.join(PATIENCE)
        self.process.kill()
        self.process.join()


def _serve(pipe: Connection, kind: Callable[..., Any], arguments: Iterable[Any]) -> None:
    """Answer requests until the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs with SIGINT ignored
    side = None
    try:
        while True:
            what, asked = pipe.recv()
            try:
                side = side or kind(lambda *told: pipe.send(("tell", told)), *arguments)
                answer = ("answer", getattr(side, what)(*asked))
            except Exception as error:
                answer = ("failed", (f"{type(error).__name__}: {error}", traceback.format_exc()))
            pipe.send(answer)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        pass
