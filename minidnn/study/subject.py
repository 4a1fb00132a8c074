"""What a study works on: a net or a solver, turned into programs and costs.

The programs of a net hold weights and their gradients. A solver adds the optimizer's state, its iter_size, and a TEST
program if the solver tests.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minidnn.costs import Costs
from minidnn.costs.net import LINK, Link, Network, among
from minidnn.nets.net import Net
from minidnn.optimizers import SGD
from minidnn.program import Program
from minidnn.programs.fusion import Fuses
from minidnn.schema import SolverParameter
from minidnn.study import gpus
from minidnn.visible import say

if TYPE_CHECKING:
    from minidnn.jobs.setting import Given, Setting
    from minidnn.programs.spec import TrainSpec
    from minidnn.study.run import Open

ALONE = SGD(momentum=0.9)  # the updates of a net without a solver, where several ranks are simulated

Source = str | Path | SolverParameter | Net  # a file, the name of a model, or a value


@dataclass(eq=False)
class Subject:
    """A net or a solver, with its programs in the order in which they are loaded."""

    source: Source
    net: Any
    tests: Sequence[Any]  # the nets that it is tested with
    solver: Any  # SolverParameter, or None for a model file
    programs: tuple[Program, ...]
    setting: Setting
    asked: int | None  # the batch size that the arguments name
    fuses: Fuses | None  # which ops the device, or the simulated GPU, can fuse: those were fused; None: none
    early: bool  # whether the inputs of training are early (programs/raw.py)
    gpu: str | None  # the GPU that is simulated; None: the setting's device is meant
    ignore_unknown: bool  # whether unknown fields of the file are ignored
    host_assumed: bool = False  # whether the setting's host budget is one that nobody named

    @property
    def name(self) -> str:
        return self.net.name or (Path(self.source).stem if isinstance(self.source, str | Path) else "net")

    @property
    def train(self) -> Program:
        return next((p for p in self.programs if p.name == "TRAIN"), self.programs[-1])

    @property
    def batch(self) -> int | None:
        """Samples of one batch: the first dimension of the data."""
        return next((t.shape[0] for t in self.train.inputs if len(t.shape) > 1), None)

    def at_batch(self, batch: int) -> tuple[Program, ...]:
        """The programs at batch size `batch`, made without reading the file again."""
        return self.varied(batch=batch).programs

    def batch_of(self, ranks: int) -> int | None:
        """The batch of each of so many ranks, if that of all is given; else None. Raises InvalidInput."""
        setting = replace(self.setting, ranks=ranks)
        return setting.batch_of(1 if self.solver is None else self.solver.iter_size)

    def at_images(self, side: int) -> tuple[Program, ...]:
        """The programs for images of `side` x `side` pixels. Raises BadInput if the net has none so small."""
        return self.varied(side=side).programs

    def varied(
        self,
        batch: int | None = None,
        format: str | None = None,
        fuse: bool = True,
        side: int | None = None,
        state: str | None = None,
        ranks: int | None = None,
    ) -> Subject:
        """The subject with this batch, this format, images of this many pixels a side, this place of the optimizer's
        state, and so many ranks, where they are given, and without fusion unless `fuse`."""
        nets = [self.net, *self.tests]
        if batch is not None:
            nets = [net.with_batch(batch) for net in nets]
        if side is not None:
            nets = [net.with_images(side) for net in nets]
        net, *tests = nets
        own = self.setting
        setting = replace(
            own, format=format or own.format, state=state or own.state, ranks=own.ranks if ranks is None else ranks
        )
        fuses = self.fuses if fuse else None
        programs = _programs(net, tests, self.solver, setting, fuses, self.early, self.gpu)
        return replace(self, net=net, tests=tests, setting=setting, fuses=fuses, programs=programs)

    def runner(self, batch: int | None = None) -> Open:
        """A function that opens the net for running under a policy, with `batch` samples, or the file's if None."""
        from minidnn.study.runners import net_runner, solver_runner

        one = replace(self.setting, ranks=None, link=None, global_batch=None)
        if self.solver is not None:
            return solver_runner(self.source, batch or self.asked, one, self.ignore_unknown)
        return net_runner(self.net if batch is None else self.net.with_batch(batch), one)

    def simulated(self, costs: Costs) -> dict[str, Any]:
        """What a NetDocument of results says of the net, and of the costs that it was planned with."""
        device = {"device": costs.device} if costs.origin == "profile" else self._device()
        link = {} if self.setting.ranks is None else {"link": self.network(costs).title}
        return {**self._told(), **device, **link, "origin": costs.origin}

    def network(self, costs: Costs) -> Network:
        """The network between ranks."""
        return between(self.setting, self.gpu, costs)

    @property
    def parts(self) -> list[str]:
        """The names of the programs of an iteration's micro-batches."""
        spec = _train_spec(self.solver, self.setting)
        return [self.train.name] if spec is None else [part.part for part in spec.parts]

    def run(self) -> dict[str, Any]:
        """What a NetDocument of results says of the net, and of the device that ran it."""
        return {**self._told(), **self._device(), "origin": "run"}

    def _told(self) -> dict[str, Any]:
        told = {"net": self.name, "batch": self.batch, "format": self.setting.format, "ranks": self.setting.ranks}
        return {**told, "host_budget_bytes": self.setting.host_budget}

    def _device(self) -> dict[str, Any]:
        from minidnn.backends import open_device

        device = open_device(self.setting.device)
        return {"device": device.name, "description": device.description}

    def titled(self) -> str:
        batch = f", batch {self.batch}" if self.batch else ""
        return self.name + batch + (f", {self.setting.format}" if self.setting.format != "float32" else "")


def read(
    source: Source,
    given: Given,
    batch: int | None = None,
    gpu: str | None = None,
    ignore_unknown: bool = False,
    opened: Callable[[Setting], Setting] = lambda setting: setting,
) -> Subject:
    """The subject: a file, the name of a model, or a value, with the setting that is asked for.

    batch:  the batch size to use instead of the net's
    gpu:    the GPU to simulate: any name of it, a FILE.yaml, or "here"; None: the setting's device
    ignore_unknown: whether unknown fields of files are ignored, and named on standard error
    opened: gives the setting with its device opened, where that takes options

    If nobody names a host budget, the subject has one all the same (study/gpus.py).
    """
    from minidnn.jobs.setting import Setting

    gpu = None if gpu is None else gpus.named(gpu)
    net, tests, p = understood(source, batch, ignore_unknown, gpu is not None)
    setting = opened(Setting.of(given, p))
    each = setting.batch_of(1 if p is None else p.iter_size, batch)
    if each != batch:
        batch, net, tests = each, net.with_batch(each), tuple(test.with_batch(each) for test in tests)
    tell_unobeyed((net, *tests), p, setting)
    if given.get("seed") is None and p is not None and p.random_seed >= 0:
        setting = replace(setting, seed=p.random_seed)
    assumed = setting.host_budget is None and setting.disk is None
    if assumed:
        setting = replace(setting, host_budget=gpus.host_memory(gpu))
    fuses = _fuses(setting, gpu) if setting.fuse else None
    early = _early(p, setting, gpu)
    found = _programs(net, tests, p, setting, fuses, early, gpu)
    return Subject(source, net, tests, p, found, setting, batch, fuses, early, gpu, ignore_unknown, assumed)


def understood(
    source: Source, batch: int | None = None, ignore_unknown: bool = False, simulated: bool = False
) -> tuple[Any, Any, Any]:
    """(net, nets to test with, solver), as `understand` gives them. Says which unknown fields are ignored.

    simulated: whether nothing will run, so that data need not be there"""
    from minidnn.training.solver_file import understand

    dropped: list[str] = []
    found = understand(source, batch=batch, dropped=dropped if ignore_unknown else None)
    for field in dropped:
        say(f"minidnn: ignored: {field}", file=sys.stderr)
    return _planned_without_data(*found) if simulated else found


def _planned_without_data(net: Any, tests: Sequence[Any], solver: Any) -> tuple[Any, Any, Any]:
    """The same, where nothing will run: sources that cannot be read need a shape alone."""
    made = [one.without_data() for one in (net, *tests)]
    for source, shape in {k: v for _, replaced in made for k, v in replaced.items()}.items():
        what = f"planned with images of {shape}, as its layer makes them"
        say(f"minidnn: source {source} cannot be read: {what}", file=sys.stderr)
    (net, _), *others = made
    return net, [test for test, _ in others], solver


def tell_unobeyed(nets: Iterable[Any], solver: Any, setting: Setting) -> None:
    """Say in one line which fields of the file change nothing."""
    from minidnn.training.unobeyed import unobeyed

    for sentence in unobeyed(nets, solver, setting.device):
        say(f"minidnn: {sentence}", file=sys.stderr)


def _fuses(setting: Setting, gpu: str | None) -> Fuses:
    """Which ops can be fused: on the simulated GPU if one is given, else on the setting's device."""
    from minidnn.backends import open_device
    from minidnn.programs.fusion import as_cuda

    return as_cuda if gpu is not None else open_device(setting.device).fuses


def _early(solver: Any, setting: Setting, gpu: str | None) -> bool:
    """Whether a Solver's inputs are early on the setting's device. A simulated GPU's are not."""
    from minidnn.backends import open_device

    return solver is not None and gpu is None and setting.early and open_device(setting.device).own_memory


def _programs(
    net: Any, tests: Sequence[Any], solver: Any, setting: Setting, fuses: Fuses | None, early: bool, gpu: str | None
) -> tuple[Program, ...]:
    from minidnn.programs.build import programs
    from minidnn.training.solver_file import phases

    train = _train_spec(solver, setting)
    found = programs(
        net, train, phases(tests), tests=tests, facts=setting.facts, format=setting.format, fuses=fuses,
        early=early, test_loss=solver is not None and solver.test_compute_loss, state=setting.state,
        costs=_of_buckets(setting, gpu),
    )  # fmt: skip
    return tuple(found.values())


def _of_buckets(setting: Setting, gpu: str | None) -> Costs | None:
    """The costs by which gradients travel in buckets, as in a run; None: they do not travel."""
    from minidnn.backends import open_device
    from minidnn.costs import estimate

    if setting.ranks is None:
        return None
    costs = estimate(open_device(setting.device)) if gpu is None else gpus.gpu(gpu).costs(gpu)
    return among(costs, between(setting, gpu, costs))


def between(setting: Setting, gpu: str | None, costs: Costs) -> Network:
    """The network between ranks: the setting's link. Without one, a simulated GPU has the link to its host, and a
    device the one that training assumes."""
    if setting.link is not None:
        return setting.link
    if gpu is None:
        return LINK
    rate = min(costs.bandwidth_out, costs.bandwidth_in)
    return Link(rate, costs.latency, title=f"{rate / 1e9:g} GB/s and {costs.latency * 1e6:g} µs, as to the host")


def _train_spec(solver: Any, setting: Setting) -> TrainSpec | None:
    """How a step trains; None: it ends with the gradients. Ranks need updates: a net alone has those of `ALONE`."""
    from minidnn.programs.spec import TrainSpec
    from minidnn.training.solver_file import train_spec

    if solver is not None:
        found = train_spec(solver, setting.seed)
    elif setting.ranks is not None:
        found = TrainSpec(ALONE, seed=setting.seed)
    else:
        return None
    return replace(found, ranks=setting.ranks or 1)


def described(about: Subject) -> str:
    """The device's name and description: libraries, threads, whether TF32 is allowed. The results depend on these."""
    from minidnn.backends import open_device

    device = open_device(about.setting.device)
    return f"{device.name}: {device.description}"


def check_policies(policies: Sequence[str], sizes: bool = False) -> None:
    """Raise NoSuchPolicy if a policy does not exist.

    sizes: the net will be planned at many sizes; then a plan file, which holds one size, raises InvalidInput."""
    from minidnn.errors import InvalidInput
    from minidnn.memory.policies import find
    from minidnn.memory.policies.plan_file import SUFFIX

    for policy in policies:
        if sizes and policy.endswith(SUFFIX):
            raise InvalidInput(f"{policy} plans one size of a net, and here many are planned: name a policy instead")
        find(policy)


def narrower(subject: Subject) -> list[str]:
    """The number formats of 16 bits that the device has, or for which the GPU's profile has rates; empty if the subject
    has one already."""
    from minidnn.backends import open_device
    from minidnn.formats import HALF, InvalidFormat

    if subject.setting.format in HALF:
        return []
    if subject.gpu is not None:
        return [format for format in HALF if getattr(gpus.gpu(subject.gpu), f"{format}_flops") is not None]
    device, found = open_device(subject.setting.device), []
    for format in HALF:
        with contextlib.suppress(InvalidFormat):  # the device has none of this format
            for op in subject.varied(format=format).train.ops:
                device.algorithms(op)
            found.append(format)
    return found
