"""Training: the loop, which reads top to bottom. It yields events (training/events.py) and prints nothing.

A run is a function of (net, solver parameters, seed). The first weights, the data order, crops and dropout are
computed from the seed and a count. So a run continued from a snapshot ends with the same bytes as one never stopped.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from minidnn.data import DataError, WorkerError
from minidnn.errors import InvalidInput, few
from minidnn.jobs.job import Job
from minidnn.jobs.keywords import SolverFields, apart
from minidnn.jobs.nets import Nets
from minidnn.jobs.setting import Setting
from minidnn.jobs.solver_file import RATE, understand
from minidnn.jobs.unobeyed import unobeyed
from minidnn.memory.execution.disk import DiskFailed
from minidnn.memory.schedule import Arrangement
from minidnn.nets.loss import has_loss, remedy
from minidnn.nets.net import Net
from minidnn.optimizers.rates import learning_rate
from minidnn.program import Role
from minidnn.programs.autodiff import check_loss
from minidnn.schema import SolverParameter
from minidnn.spoken import either, option
from minidnn.training import snapshot
from minidnn.training.alike import check_alike, check_given
from minidnn.training.best import Best
from minidnn.training.debug import Watch
from minidnn.training.divergence import Diverged, diagnosed
from minidnn.training.epochs import in_iterations, iterations_of, until
from minidnn.training.evaluate import evaluate
from minidnn.training.events import Began, Ended, Event, Saved, Step, Tested
from minidnn.training.feeds import Feeds
from minidnn.training.given import Samples
from minidnn.training.interrupt import Interrupt
from minidnn.training.keeping import Keeping
from minidnn.training.logs.logs import LogError, Logs
from minidnn.training.logs.record import columns
from minidnn.training.parameters import all_zero
from minidnn.training.saving import Saving, find, restore, seed_of
from minidnn.training.session import Loaded, Session
from minidnn.training.together import together

if TYPE_CHECKING:
    from typing_extensions import Unpack

# ---- training

UNREADABLE = (DataError, WorkerError, OSError)  # what a batch that cannot be made raises
Undo = contextlib.ExitStack  # what is undone if a later part of a Solver fails, and at its end
MOVED = "the parts of this iteration that have run have moved the running statistics"


class Solver:
    """Trains a net under a memory policy.

    solver:   a solver file, its parameters, or a Net (then give the solver fields as keywords: base_lr=0.01, ...)
    batch:    the batch size to use instead of the net's; then a test shows every sample once
    data:     for a net with Input or MemoryData layers: arrays (x, y), or a dict with an array for each input; a
              sequence or an iterable of samples (image, label), such as a PyTorch Dataset or one of Hugging Face's
              datasets; or a source as a Data layer names it, such as "folder:photos" (training/given.py);
              test_data: the same for its TEST phase
    weights:  a file, or arrays by "<layer>/<blob>", from which weights are loaded by layer name (fine-tuning)
    resume:   a snapshot to continue from, or "latest" for the newest valid snapshot of snapshot_prefix, if there is one
    setting:  how the net is run, as one value
    ignore_unknown: whether unknown fields of files are ignored, and listed in `notes`, instead of being errors
    loss:     whether a net that has no loss gets one (nets/loss.py)
    keywords: how the net is run (`Given` in jobs/setting.py), and solver fields, which override those of the file:
              max_iter=100, ...
    """

    def __init__(
        self,
        solver: str | Path | SolverParameter | Net | Nets,
        *,
        batch: int | None = None,
        data: Samples | None = None,
        test_data: Samples | None = None,
        weights: str | Path | Mapping[str, np.ndarray] | None = None,
        resume: str | Path | None = None,
        setting: Setting | None = None,
        ignore_unknown: bool = False,
        loss: bool = False,
        **keywords: Unpack[SolverFields],
    ) -> None:
        given, fields = apart(keywords)
        nets, self.notes = _nets(solver, fields, batch, ignore_unknown, loss)
        p = _trainable(nets, solver)
        chosen = setting or Setting.of(given, p)
        nets, batch = nets.asked(chosen, batch)
        check_loss(nets.net.graph("TRAIN"))
        if test_data is not None and not nets.tests:
            nets = nets._replace(tests=(nets.net,))
        self.prefix = p.snapshot_prefix or (str(Path(solver).with_suffix("")) if isinstance(solver, str | Path) else "")
        self.resumed, before, found_none = find(resume, self.prefix)
        self.notes += found_none
        self.seed = seed_of(given.get("seed") if setting is None else setting.seed, before, p)
        with Undo() as undo:
            joined = self._joined(replace(chosen, seed=self.seed), undo)
            if joined.engine is not None:
                check_given(joined.engine, nets._replace(solver=p), joined)
            self._open_feeds(nets, {"TRAIN": data, "TEST": test_data}, joined, undo)
            self.notes += unobeyed((nets.net, *nets.tests), p, joined.device)
            self._load(Job.of(nets, joined, phases=_phases(solver, nets)), undo)
            self._begin(before, weights)
            self._closing = undo.pop_all()
        # The file's test_iter is for its own batch size; with another, a test shows all samples once.
        self._test_iter = () if batch else p.test_iter
        self._saved = self.iteration if before else None  # the iteration of the last snapshot
        self._between = True  # whether the values are those between two iterations
        self._losses: deque[float] = deque(maxlen=p.average_loss)
        self._interrupt = Interrupt(self._engine)

    # ---- what a Solver is made of, in this order; each part is undone if a later one fails

    def _joined(self, setting: Setting, undo: Undo) -> Setting:
        """The setting of this rank among others: its device, its engine, and the seed of all."""
        if setting.launch is not None:
            setting, engine, notes = together(setting, setting.launch)
            undo.callback(engine.close)
            self.notes += notes
        if setting.engine is not None:
            self.seed = setting.engine.share(self.seed)[0]
        return replace(setting, seed=self.seed)

    def _open_feeds(self, nets: Nets, data: Mapping[str, Samples | None], setting: Setting, undo: Undo) -> None:
        """Open the data of all nets, and with the length of an epoch the logs."""
        self.feeds: dict[str, Feeds] = {}
        for name, graph in nets.graphs(nets.phases).items():
            self.feeds[name] = Feeds(graph, self.seed, data[graph.phase], setting.workers, setting.worker_limit)
            undo.callback(self.feeds[name].close)
            self.notes += self.feeds[name].notes
        p = _trainable(nets)
        self.epoch = iterations_of(self.feeds["TRAIN"], p)  # its iterations; None: the samples have no end
        self.parameters = p = in_iterations(p, self.epoch)
        logs = ((), None) if setting.engine and setting.engine.rank else (p.minidnn.log, p.minidnn.tensorboard)
        self._logs = Logs(*logs, self.epoch, Path(self.prefix).parent)

    def _load(self, job: Job, undo: Undo) -> None:
        """Plan the job's programs and load them on the device."""
        self.notes += _unequal(job.setting, self.parameters.iter_size)
        self.session = Session(job)
        undo.callback(self.session.close)
        for feeds in self.feeds.values():  # first of all: their threads may be writing to the session's machine
            undo.callback(feeds.close)
        self.net, self.machine, self._engine = job.net, self.session.machine, job.setting.engine
        self._parts = job.parts  # the programs of an iteration
        self.notes += self.session.notes
        if self.session.without_double_buffering:
            self.notes.append(
                "each batch is copied within its step, because the budget has no room for two on the device"
            )
        if (planned := self.session.arrangement.policy) != job.setting.policy:
            what = f"{job.setting.policy} would take more memory than this machine, or its container, has"
            self.notes.append(f"{what}: planned with {planned} to fit ({option('policy', 'NAME')} chooses another)")

    def _begin(self, before: snapshot.Snapshot | None, weights: str | Path | Mapping[str, np.ndarray] | None) -> None:
        """Go on from a snapshot, or begin with these weights, or with those that are drawn."""
        p = self.parameters
        self.iteration = 0
        self.position = 0  # training samples consumed
        self.loaded: Loaded | None = None
        names = next((feed.names for feed in self.feeds["TRAIN"] if feed.names), ())
        self._saving = Saving(self.net, self.session, self.seed, p.snapshot_format == "BINARYPROTO", names)
        programs = [name for name in self.feeds if name != "TRAIN"]
        self._keeping = Keeping(self.session, programs, p.minidnn.keep_best, p.minidnn.patience, self.prefix)
        if before:
            self._go_on(before)
        elif weights is not None:
            self.loaded = self.session.load(weights)
        elif self.net.weights:
            self.notes.append(f"the weights are those of {self.net.weights_file}")
        if self._engine is not None:
            check_alike(self._engine, self.arrangement, self.feeds["TRAIN"].samples, self.iteration)
        if zero := all_zero(self.session.graphs["TRAIN"], self.params):
            self.notes.append(
                f"warning: all weights of {few(zero)} are zero, and no gradient passes them: give each a "
                f"weight_filler, for example weight_filler: {{type: xavier}}; Caffe's default is constant 0"
            )

    # ---- what a user looks at

    def __repr__(self) -> str:
        """The net, how far it is trained and how, and where."""
        p = self.parameters
        end = f" of {p.max_iter}" if p.has("max_iter") else ""
        loss = f", loss {self._losses[-1]:.4g}" if self._losses else ""
        how = f"{p.type}, base_lr {p.base_lr:g}, batch {self.feeds['TRAIN'].batch}, seed {self.seed}"
        far = f"iteration {self.iteration}{end}{loss}"
        return f"<Solver of {self.net.name or 'net'}: {far}\n {how}\n {self.session.place}>"

    @property
    def arrangement(self) -> Arrangement:
        """The proved schedules of the programs, and the memory that they need."""
        return self.session.arrangement

    @property
    def peak_bytes(self) -> int:
        """The bytes of the device that training takes, at most the budget; as in the rows of `minidnn.plan`."""
        return self.session.peak_bytes

    @property
    def params(self) -> Mapping[str, Any]:
        """The live parameters: `params["conv1"]["w"]` (training/parameters.py)."""
        return self.session.params

    def values(self) -> dict[str, np.ndarray]:
        """Copies of all values that live from step to step, by name: weights, statistics, momenta."""
        return {**self.session.weights(), **self.session.state()}

    @property
    def blobs(self) -> Mapping[str, np.ndarray]:
        """The outputs of the last training step and the blobs that `keep` names, by blob name."""
        kept = (blob.name for blob in self.session.outputs("TRAIN"))
        return MappingProxyType({name: self.session.read(name) for name in kept})

    @property
    def best(self) -> Best | None:
        """The best test so far, if keep_best is set."""
        return self._keeping.best

    @property
    def unsaved(self) -> bool:
        """Whether this iteration has no snapshot yet, and there is a snapshot_prefix for one."""
        return bool(self.prefix) and self._saved != self.iteration

    @property
    def saves_alone(self) -> bool:
        """Whether this iteration is unsaved, and what ends the run here need not end it on other ranks: a snapshot of
        several ranks takes all of them."""
        return self.unsaved and self._engine is None

    def forward(self, inputs: np.ndarray | Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs of the TEST net for these samples, with the present weights (Session.forward)."""
        return self.session.forward(inputs)

    # ---- training

    def solve(self, observe: Callable[[Event], object] = lambda event: None, epochs: int | None = None) -> Ended:
        """Train to max_iter, with the tests and snapshots of the solver's parameters; call `observe` on each event.

        epochs: train to this many epochs, counted from the first iteration, instead of to max_iter

        Raises Diverged, SaveError, LogError, and InvalidInput if neither max_iter nor epochs is given."""
        for event in self.run(epochs):
            observe(event)
        assert isinstance(event, Ended)
        return event

    def run(self, epochs: int | None = None) -> Iterator[Event]:
        """Like `solve`, but yield each event, after it is in the logs (`log`, `tensorboard`).

        Ctrl-C and SIGTERM end the run after the current step, with a snapshot; SIGHUP takes a snapshot
        (training/interrupt.py)."""
        if epochs is not None:
            self.parameters = until(self.parameters, epochs, self.epoch)
        p = self.parameters
        if not p.has("max_iter"):
            say = either("--max-iter 1000 or --epochs 10", "solve(epochs=10), or Solver(..., max_iter=1000)")
            raise InvalidInput(f"give max_iter or epochs: without either, training has no end; use {say}")
        if self.prefix and (p.snapshot or p.snapshot_after_train or self._keeping.goal):
            self._check_end()
        logged = self._logs.opened(self.iteration, columns(self.session), self.session.counted)
        with logged as log, contextlib.closing(self._events()) as events:
            for event in events:
                try:
                    log(event)
                except LogError:  # as where output cannot be written: keep the trained weights, and end
                    yield event
                    self.machine.settle()
                    if self.saves_alone and not isinstance(event, Began):
                        yield self.save()
                    raise
                yield event

    def _events(self) -> Generator[Event, None, None]:
        """The events of `run`, as they come."""
        p, began = self.parameters, perf_counter()
        yield Began(self.iteration, p.max_iter, self.seed, self.resumed, self.loaded, tuple(self.notes))
        with self._interrupt.watched():
            while self.iteration < p.max_iter and not self._interrupt.agreed():
                if self._test_is_due():
                    yield from self._tested()
                if self._interrupt.requested or self._keeping.spent:
                    break
                try:
                    yield self._iterate_quietly()
                except DiskFailed as error:  # the values are those before the iteration
                    if self.saves_alone:
                        try:
                            saved = self.save()
                        except snapshot.SaveError as other:  # it may be the same disk
                            raise DiskFailed(f"{error}; {other}") from error
                        yield saved
                    raise
                except UNREADABLE as error:  # a batch cannot be read or used: keep the trained weights
                    self.machine.settle()
                    if self._between and self.saves_alone:
                        yield self.save()
                    if not self._between and isinstance(error, DataError):
                        raise DataError(f"{error}; no snapshot is written, since {MOVED}") from error
                    raise
                if self.prefix and (self._interrupt.save or (p.snapshot and self.iteration % p.snapshot == 0)):
                    self._interrupt.save = False
                    yield self.save()
                    if p.snapshot_after_train and self.iteration < p.max_iter and not self._interrupt.requested:
                        self._check_end()
            self.machine.settle()
            if self.unsaved and (p.snapshot_after_train or self._interrupt.requested):
                yield self.save()
            if not (self._interrupt.requested or self._keeping.spent):
                yield from self._tested()
        waits = tuple(self._engine.share(self._engine.waited)) if self._engine else ()
        yield Ended(
            self.iteration, self._interrupt.number, self.best, self._keeping.spent, perf_counter() - began, waits
        )

    def _check_end(self) -> None:
        """Raise SaveError if the last snapshot could not be written now."""
        best = self._keeping.goal is not None
        self._saving.check_writable(self.prefix, self.parameters.max_iter, self._now(), best)

    def _tested(self) -> Iterator[Tested | Saved]:
        done = []
        for net in range(len(self.feeds) - 1):
            try:
                tested = self.test(net=net)
            except (Diverged, DiskFailed, *UNREADABLE):
                # Keep the trained weights; `save` refuses them if they are not finite either.
                if self.saves_alone:
                    yield self.save()
                raise
            if tested is None:
                self._interrupt.agreed()
                return
            yield tested
            done.append(tested)
        if best := self._keeping.count(done):
            yield Saved(self.iteration, self._saving.write(self.prefix, self._now(), best=True), best)

    def step(self, n: int = 1, trace: bool = False) -> Step:
        """Train n iterations without tests and snapshots; return the event of the last one. Raises Diverged.

        trace: time every instruction of the last iteration's TRAIN program"""
        for k in range(n):
            result = self._iterate_quietly(trace and k == n - 1)
        self.machine.settle()
        return result

    def _iterate_quietly(self, trace: bool = False) -> Step:
        self.machine.mark()
        try:
            with np.errstate(all="ignore"):  # Diverged says more than NumPy's warnings
                return self._iterate(trace)
        except DiskFailed:  # in the middle of a step, which has changed some weights
            self.machine.back()
            raise

    def _iterate(self, trace: bool) -> Step:
        """Run one iteration and wait for its outputs.

        On a device with its own streams, backward and updates may still be running on return (Machine.launch). So the
        device has the next iteration before it has finished this one."""
        p, began = self.parameters, perf_counter()
        ranks, rank = (self._engine.ranks, self._engine.rank) if self._engine else (1, 0)
        first, every = rank * p.iter_size, ranks * p.iter_size  # its micro-batches: the first, and those of all ranks
        rate = learning_rate(p, self.iteration)
        losses, images, traced = [], 0, None
        feeds, programs = self.feeds["TRAIN"], self.session.programs
        names = self._parts
        for part, program in enumerate(names):
            try:
                position = self.position + (first + part) * feeds.batch
                images += feeds.write(self.machine, programs[program], position) * ranks
            except UNREADABLE:
                self._undo(part)
                raise
            self._control(program, rate=rate, iteration=self.iteration * every + first + part)
            ahead = feeds.batch if program != "TRAIN" else (every - p.iter_size + 1) * feeds.batch
            following = programs[names[(part + 1) % p.iter_size]], position + ahead
            last = p.has("max_iter") and self.iteration + 1 >= p.max_iter and program == "TRAIN"
            meanwhile = None if last else partial(feeds.begin, self.machine, *following)
            watch = Watch(self.session) if program == "TRAIN" and self._debugs() and not trace else None
            if trace or watch:
                traced = self.session.step(program, trace=trace, observe=watch, meanwhile=meanwhile)
            else:
                self.session.launch(program, meanwhile)
            result = self.session.objectives(program)
            losses += result
            if not all(map(math.isfinite, result)):
                self._diverged(program, result, position)
        if self.machine.disk is not None:
            self.machine.settle()  # an iteration counts once no write or read of it can fail
        self.position += every * feeds.batch
        loss = math.fsum(losses) / every
        self._losses.append(loss)
        smoothed = math.fsum(self._losses) / len(self._losses)
        self.iteration += 1
        outputs = self.session.told("TRAIN", self.session.scalars("TRAIN"))
        debug = watch.values() if watch else {}
        return Step(self.iteration - 1, loss, smoothed, rate, perf_counter() - began, images, outputs, traced, debug)

    def _diverged(self, program: str, losses: list[float], position: int) -> NoReturn:
        """Raise Diverged, on all ranks alike. The one whose loss it was looks for the origin."""
        rank, engine = next(k for k, loss in enumerate(losses) if not math.isfinite(loss)), self._engine
        self.machine.all_gather()
        result = None
        if engine is None or engine.rank == rank:
            result = diagnosed(self.session, self.feeds["TRAIN"], program, losses[rank], self.iteration, position)
        result = result if engine is None else engine.share(result)[rank]
        assert result is not None
        raise result

    def _undo(self, parts: int) -> None:
        """Go back to the beginning of an iteration of which only so many parts have run."""
        if parts:
            self.machine.settle()
            every = (p for n in self.session.graphs["TRAIN"].layers for p in n.parameters)
            self._between = all(p.learnable or p.constant for p in every)

    def test(self, batches: int | None = None, net: int = 0, confusion: bool = False) -> Tested | None:
        """Run a TEST net over its data, starting from the first sample; return None if Ctrl-C interrupts it. Raises
        Diverged.

        batches: the number of batches; None: test_iter of the solver file, or else enough to show every sample
        net:     the net's number among the test nets
        confusion: also count which classes are mistaken for which (training/confusion.py)"""
        name = f"TEST{net or ''}"
        if "TEST" not in self.feeds:
            raise InvalidInput("there is nothing to test with: the solver has neither test_iter nor test_data")
        if name not in self.feeds:
            raise InvalidInput(f"there is no test net {net}, only {len(self.feeds) - 1} of them, from 0 on")
        batches = batches or (self._test_iter[net] if self._test_iter else None)

        def stopped() -> bool:
            return self._interrupt.heard

        return evaluate(self.session, self.feeds[name], batches, self.iteration, stopped, name, confusion)

    def save(self, prefix: str | Path | None = None) -> Saved:
        """Write a snapshot. Raises SaveError if writing fails, and Diverged if a weight is not finite. Earlier
        snapshots stay intact."""
        prefix = prefix or self.prefix
        if not prefix:
            raise InvalidInput("there is no snapshot_prefix to save to")
        path = self._saving.write(prefix, self._now())
        self._saved = self.iteration
        return Saved(self.iteration, path)

    def _now(self) -> snapshot.Snapshot:
        """The content of a snapshot of this iteration."""
        best = self.best.data() if self.best else None
        return self._saving.now(self.iteration, self.position, self._losses[-1] if self._losses else math.nan, best)

    def close(self) -> None:
        """End the threads of the loaders, the machine and the engine that this solver started, and free the memory."""
        self._closing.close()

    def __enter__(self) -> Solver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _control(self, program: str, **values: float) -> None:
        for t in self.session.programs[program].inputs:
            if t.role is Role.CONTROL and t.name in values:
                self.machine.write(t, np.array([values[t.name]], t.dtype), program)

    def _go_on(self, before: snapshot.Snapshot) -> None:
        """Continue from this snapshot. Raises SnapshotError."""
        taken = self.feeds["TRAIN"].batch * self.parameters.iter_size * (self._engine.ranks if self._engine else 1)
        self.position, notes = restore(self.session, before, self.resumed, taken, self.seed)
        self.iteration = before.iteration
        self.notes += notes
        if before.best is not None:
            self.notes += filter(None, [self._keeping.go_on(Best.of(before.best))])

    # ---- when

    def _debugs(self) -> bool:
        """Whether debug_info is wanted of this iteration: of those that are displayed, as in Caffe."""
        p = self.parameters
        return p.debug_info and bool(p.display) and self.iteration % p.display == 0

    def _test_is_due(self) -> bool:
        p, i = self.parameters, self.iteration
        due = p.test_interval and i % p.test_interval == 0 and (i or p.test_initialization)
        return bool(due) and "TEST" in self.feeds


def _nets(
    solver: str | Path | SolverParameter | Net | Nets,
    fields: dict[str, Any],
    batch: int | None,
    ignore_unknown: bool,
    loss: bool,
) -> tuple[Nets, list[str]]:
    """The nets of a solver with these fields, and what to note of unknown ones, if those are ignored."""
    dropped: list[str] = []
    made_up = {"base_lr": RATE, **fields} if isinstance(solver, Net) else fields
    nets = understand(solver, made_up, batch, dropped if ignore_unknown else None, loss)
    notes = [*(f"ignored: {field}" for field in dropped), *nets.notes]
    if not isinstance(solver, Nets) and nets.made_up and "base_lr" not in fields:
        rate = either("--set base_lr=RATE", "base_lr=RATE")
        finds = either("`minidnn tune FILE --rate`", "minidnn.tune_rate(net)")
        notes.append(f"no learning rate was given, so it is {RATE}: {rate} sets another, and {finds} finds one")
    return nets, notes


def _trainable(nets: Nets, source: object = "") -> SolverParameter:
    """The solver of these nets. Raises InvalidInput if the source is a net alone."""
    if nets.solver is None:
        fields = either("--set base_lr=0.01 --max-iter 100", "base_lr=0.01, max_iter=100")
        what = f"training needs a solver file that names it, or solver fields ({fields})"
        graph = nets.net.graph("TRAIN")
        lacks = "" if has_loss(graph) else f"; and it has no loss: {remedy(graph)}"
        raise InvalidInput(f"{source} is a net: {what}{lacks}")
    return nets.solver


def _phases(solver: Any, nets: Nets) -> tuple[str, ...]:
    """The phases to load: TRAIN, and TEST if the run tests. A Net gets TEST, for `forward`, if it has that phase."""
    if not nets.tests and isinstance(solver, Net):
        try:
            solver.graph("TEST")
        except ValueError:
            return ("TRAIN",)
        return ("TRAIN", "TEST")
    return nets.phases


def _unequal(setting: Setting, iter_size: int) -> list[str]:
    """The sentence that says that several ranks end with other bytes than one; none if they end with the same."""
    if setting.engine is None or setting.engine.ranks == 1 or not iter_size & (iter_size - 1):
        return []
    alone = f"one rank with iter_size {setting.engine.ranks * iter_size}"
    return [f"iter_size {iter_size} is not a power of two: ranks end with different bytes than {alone}"]
