"""A job: what a file and options ask for, as nets, programs and costs. Whatever plans makes one, and whatever runs.

`plan` and `train` come to the same plans because they ask the same Job: for its programs, whose gradients travel in the
same buckets, and for its costs.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from minidnn.backends import open_device
from minidnn.costs import Costs
from minidnn.costs.net import Network, among
from minidnn.data import DataError
from minidnn.errors import InvalidInput
from minidnn.formats import HALF
from minidnn.jobs import gpus
from minidnn.jobs.change import Asked, Change
from minidnn.jobs.costs import staged, told
from minidnn.jobs.nets import Nets
from minidnn.jobs.ram import Residence, staging_of
from minidnn.jobs.setting import Given, Setting
from minidnn.jobs.solver_file import understand
from minidnn.jobs.target import Target, Warn, target_of
from minidnn.jobs.unobeyed import unobeyed
from minidnn.layers.base import Shape, ShapeError
from minidnn.memory.execution.device import Device
from minidnn.nets.graph import Graph
from minidnn.nets.loss import has_loss, remedy
from minidnn.nets.net import Net
from minidnn.optimizers import OPTIMIZERS, SGD
from minidnn.program import Program
from minidnn.programs.build import build
from minidnn.programs.fusion import Fuses
from minidnn.programs.host_residents import STATES
from minidnn.programs.spec import TrainSpec
from minidnn.results.policies import EagerRow
from minidnn.schema import InvalidFile, SolverParameter
from minidnn.spoken import option
from minidnn.visible import say

ALONE = SGD(momentum=0.9)  # the updates of a net without a solver, where several ranks are simulated

Source = str | Path | SolverParameter | Net  # a file, the name of a model, or a value


def warn(sentence: str) -> None:
    """Say what the user should know, on standard error."""
    say(f"minidnn: {sentence}", file=sys.stderr)


@dataclass(frozen=True, eq=False)
class Job:
    """Nets, how they are run, and on what. Programs and costs follow from these.

    spec:      how a step trains; None: TRAIN ends with the gradients
    phases:    the phases whose programs are loaded
    fed:       whether Feeds write the inputs; then those of training may arrive before their step
    test_loss: whether programs of phase TEST compute the objective, too
    asked:     the batch size that the caller names; None: the files'
    host_assumed: whether the setting's host budget is one that nobody named
    several: whether ops have several algorithms to choose from
    assumed: what is assumed on any device, in sentences
    whole:   whether ops run as a whole alone, never in parts of the batch
    places:  lines of a user's source that ops come from: none
    """

    nets: Nets
    setting: Setting
    target: Target
    spec: TrainSpec | None = None
    phases: tuple[str, ...] = ("TRAIN",)
    fed: bool = False
    test_loss: bool = False
    title: str = "net"
    asked: int | None = None
    host_assumed: bool = False
    several: bool = True
    assumed: str = ""
    whole: bool = False
    places: None = None

    @classmethod
    def of(cls, nets: Nets, setting: Setting, gpu: str | None = None, phases: tuple[str, ...] | None = None) -> Job:
        """The job of a solver, or of a net without one. If nobody names a host budget, it has one all the same: nobody
        has endless memory (jobs/gpus.py).

        gpu:    the GPU that is simulated, as `gpus.named` gives it; None: the setting's device
        phases: those to load, instead of those that a training run needs"""
        solver, target = nets.solver, target_of(setting, gpu)
        assumed = setting.host_budget is None and setting.disk is None
        if assumed:
            setting = replace(setting, host_budget=_of_all_ranks(target.host_memory, setting))
        return cls(
            nets, setting, target, spec_of(solver, setting), phases or nets.phases, fed=solver is not None,
            test_loss=solver is not None and solver.test_compute_loss, host_assumed=assumed,
        )  # fmt: skip

    # ---- what follows

    @cached_property
    def graphs(self) -> dict[str, Graph]:
        """The graph of each program of a phase, by the program's name."""
        return self.nets.graphs(self.phases, self.setting.format)

    @cached_property
    def programs(self) -> tuple[Program, ...]:
        """The programs, in the order in which a machine loads them. Raises as `build` (programs/build.py)."""
        setting = self.setting
        return tuple(
            build(
                self.graphs, self.spec, setting.keep, setting.facts, self.fuses, self.double_buffers, self.test_loss,
                setting.state, self._bucket_costs(),
            ).values()
        )  # fmt: skip

    def costs(self, sizes: bool = False, warn: Warn = warn) -> Costs:
        """The costs that these programs are planned with: those of the setting, else of the target; with the setting's
        staging, and of several ranks with their network.

        sizes: other batches will be planned, too; then they are estimates, since measurements are of one batch

        Raises InvalidInput if measured costs are asked for and are not there."""
        setting = self.setting
        if setting.costs is not None:
            if self.gpu is not None:
                raise InvalidInput(f"{option('gpu', self.gpu)} has costs of its own: leave out costs or gpu")
            costs = staged(setting.costs, setting)
        elif sizes:
            costs = staged(self.target.estimates(), setting)
        else:
            beside = self.of_one_rank if setting.measured else ()  # estimates know every op
            costs = staged(self.target.costs([*self.programs, *beside], setting, warn), setting)
        return self.linked(costs)

    def programs_on(self, gpu: str) -> tuple[Program, ...]:
        """The programs, which are the same on every GPU."""
        return self.programs

    def costs_on(self, gpu: str) -> Costs:
        """The costs of a GPU."""
        return gpus.gpu(gpu).costs(gpu)

    def costs_after(self, change: Change, known: Costs, sizes: bool = False) -> Costs:
        """The costs of the programs that a change makes. known: those of its own; sizes: as of `costs`"""
        return known if self.gpu is not None else self.changed(change).costs(sizes)

    def costs_of_sizes(self) -> Costs:
        """`costs` of many batches. Raises InvalidInput if measured costs are asked for."""
        if self.setting.measured:
            measured = option("costs", "measured")
            raise InvalidInput(f"{measured} is for one size, but this plans many sizes: use estimated costs")
        return self.costs(sizes=True)

    @cached_property
    def of_one_rank(self) -> tuple[Program, ...]:
        """The programs of one rank alone, beside which several that are simulated are seen; else none."""
        return self.varied(ranks=1).programs if (self.setting.ranks or 1) > 1 else ()

    def _bucket_costs(self) -> Costs | None:
        """The costs by which gradients travel in buckets; None: they do not travel. The ops are not known yet, so none
        of these is measured."""
        if self.spec is None or self.spec.ranks == 1:
            return None
        return self.linked(self.setting.costs or self.target.estimates())

    def linked(self, costs: Costs) -> Costs:
        """The costs with those of communications, among several ranks."""
        return among(costs, self.network(costs)) if self.setting.ranked else costs

    def network(self, costs: Costs) -> Network:
        """The network between ranks."""
        return self.setting.link or self.target.network(costs)

    @property
    def fuses(self) -> Fuses | None:
        """The ops that are fused; None: none."""
        return self.target.fuses if self.setting.fuse else None

    @property
    def double_buffers(self) -> bool:
        """Whether training batches may arrive before their step begins (programs/raw.py)."""
        return self.fed and self.setting.early and self.target.double_buffers

    # ---- what is asked of it

    @property
    def net(self) -> Net:
        return self.nets.net

    @property
    def tests(self) -> tuple[Net, ...]:
        return self.nets.tests

    @property
    def solver(self) -> SolverParameter | None:
        return self.nets.solver

    @property
    def gpu(self) -> str | None:
        """The name of the GPU that is simulated; None: the setting's device is meant."""
        return self.target.gpu

    @property
    def name(self) -> str:
        return self.net.name or self.title

    @property
    def train(self) -> Program:
        """The program whose steps count: that of training, else the forward pass."""
        return next((p for p in self.programs if p.name == "TRAIN"), self.programs[-1])

    @property
    def forward(self) -> bool:
        """Whether the programs are forward passes alone, so that nothing is trained."""
        return "TRAIN" not in self.phases

    @property
    def remedy(self) -> str:
        """How to give the net a loss, in a clause."""
        return remedy(_lossy(self.net))

    @property
    def parts(self) -> list[str]:
        """The names of the programs of an iteration's micro-batches."""
        return [self.train.name] if self.spec is None else [part.part for part in self.spec.parts]

    @property
    def batch(self) -> int | None:
        """Samples of one batch: the first dimension of the data."""
        return next((t.shape[0] for t in self.train.inputs if len(t.shape) > 1), None)

    def batch_of(self, ranks: int) -> int | None:
        """The batch of each of so many ranks, if that of all is given; else None. Raises InvalidInput."""
        return replace(self.setting, ranks=ranks).batch_of(1 if self.solver is None else self.solver.iter_size)

    @property
    def format(self) -> str:
        """The number format that is computed in."""
        return self.setting.format

    @property
    def side(self) -> int | None:
        """Pixels of a side of its images; None: no input is a batch of images, (N, C, H, W)."""
        return next((t.shape[-1] for t in self.train.inputs if len(t.shape) == 4), None)

    @property
    def here(self) -> Device | None:
        """The setting's device, opened; None: a GPU is simulated in its place."""
        return open_device(self.setting.device) if self.gpu is None else None

    @property
    def ranked(self) -> Job | None:
        """The job itself, if a number of ranks is asked for."""
        return None if self.setting.ranks is None else self

    @property
    def remarks(self) -> str:
        """What is to be said of ranks, in sentences."""
        return "" if self.solver is not None else " A net without a solver is updated by SGD with momentum."

    def told(self, costs: Costs) -> str:
        """Where the seconds of the costs come from, in sentences."""
        return told(costs, self.format)

    def beside(self) -> list[EagerRow]:
        """What PyTorch itself takes: it knows no nets."""
        return []

    def command(self, policy: str) -> Asked:
        """The command that plans it under this policy, and what can be changed of that."""
        own = self.setting
        return Asked(policy, own.budget, own.host_budget, self.batch, self.narrower(), self.fuses is not None,
                     self._more_on_host())  # fmt: skip

    def residence(self, unread: bool = False) -> Residence:
        """A process that runs this job. unread: whether its data and workers are still to come"""
        graphs = tuple(self.graphs.values())
        staging = staging_of(graphs, self.setting.workers) if self.fed or unread else 0
        return Residence(self.target.own_memory, graphs if unread else (), staging)

    # ---- variants

    def varied(
        self,
        batch: int | None = None,
        format: str | None = None,
        fuse: bool = True,
        side: int | None = None,
        state: str | None = None,
        ranks: int | None = None,
    ) -> Job:
        """The job with this batch, this format, images of this many pixels a side, this place of the optimizer's state,
        and so many ranks, where they are given, and without fusion unless `fuse`."""
        nets = self.nets if batch is None else self.nets.with_batch(batch)
        nets = nets if side is None else nets.with_images(side)
        own = self.setting
        setting = replace(
            own, format=format or own.format, state=state or own.state, fuse=own.fuse and fuse,
            ranks=own.ranks if ranks is None else ranks,
        )  # fmt: skip
        return replace(self, nets=nets, setting=setting, spec=spec_of(nets.solver, setting))

    def changed(self, change: Change) -> Job:
        """The job with the batch, format, fusion and place of state that a change names."""
        return self.varied(change.batch, change.format, not change.no_fusion, state=change.state)

    def among(self, ranks: int, batch: int | None = None) -> Job:
        """The job with so many ranks, and with this batch of each if there is one."""
        return self.varied(batch=batch, ranks=ranks)

    def at_batch(self, batch: int) -> tuple[Program, ...]:
        """The programs at batch size `batch`, made without reading the file again."""
        return self.varied(batch=batch).programs

    def at_images(self, side: int) -> tuple[Program, ...]:
        """The programs for images of `side` x `side` pixels. Raises BadInput if the net has none so small."""
        return self.varied(side=side).programs

    @property
    def tokens(self) -> int | None:
        """Tokens of a sample; None: no layer gives tokens."""
        return self.nets.net.tokens

    def at_tokens(self, length: int) -> tuple[Program, ...]:
        """The programs for windows of `length` tokens."""
        return replace(self, nets=self.nets.with_tokens(length)).programs

    def narrower(self) -> list[str]:
        """The number formats of 16 bits that the target has; empty if the job has one already."""
        if self.setting.format in HALF:
            return []
        return [f for f in HALF if self.target.has(f, lambda f=f: [self.varied(format=f).train])]  # type: ignore[misc]

    def _more_on_host(self) -> list[str]:
        """The values of --state that send more to the host than the job does."""
        setting, here = self.setting, len(self.train.host_resident)
        more = STATES[STATES.index(setting.state) + 1 :] if self.solver is not None and setting.ranks is None else ()
        return [state for state in more if len(self.varied(state=state).train.host_resident) > here]


def _of_all_ranks(host_memory: int, setting: Setting) -> int:
    """The least of what the ranks' machines have, since all ranks make one plan."""
    return host_memory if setting.engine is None else min(setting.engine.share(host_memory))


def spec_of(solver: SolverParameter | None, setting: Setting) -> TrainSpec | None:
    """How a step trains; None: it ends with the gradients. Ranks need updates: a net alone has those of `ALONE`."""
    if solver is None:
        return None if setting.ranks is None else TrainSpec(ALONE, seed=setting.seed, ranks=setting.together)
    return TrainSpec(
        OPTIMIZERS[solver.type].of(solver),
        clip_gradients=solver.clip_gradients,
        iter_size=solver.iter_size,
        seed=setting.seed,
        loss_scale=solver.minidnn.loss_scale,
        ranks=setting.together,
        rank=0 if setting.engine is None else setting.engine.rank,
    )


def read(
    source: Source,
    given: Given,
    batch: int | None = None,
    gpu: str | None = None,
    ignore_unknown: bool = False,
    opened: Callable[[Setting], Setting] = lambda setting: setting,
    fields: Mapping[str, Any] = MappingProxyType({}),
    loss: bool = False,
    shapes: Mapping[str, Shape] = MappingProxyType({}),
) -> Job:
    """The job of a file, of the name of a model, or of a value, with the setting that is asked for.

    batch:  the batch size to use instead of the net's
    gpu:    the GPU to simulate: any name of it, a FILE.yaml, or "here"; None: the setting's device
    ignore_unknown: whether unknown fields of files are ignored, and named on standard error
    opened: gives the setting with its device opened, where that takes options
    fields: solver fields that overrule those of the file
    loss:   whether a net that has no loss gets one
    shapes: of tops of layers that give data, in place of the data
    """
    gpu = None if gpu is None else gpus.named(gpu)
    nets = understood(source, batch, ignore_unknown, gpu is not None, fields, loss, shapes)
    setting = opened(Setting.of(given, nets.solver))
    tell_weights(nets.net)
    nets, batch = nets.asked(setting, batch)
    tell_unobeyed((nets.net, *nets.tests), nets.solver, setting, gpu is not None)
    if given.get("seed") is None and nets.solver is not None and nets.solver.random_seed >= 0:
        setting = replace(setting, seed=nets.solver.random_seed)
    title = Path(source).stem if isinstance(source, str | Path) else "net"
    with shapes_said(nets):
        job = replace(Job.of(nets, setting, gpu, _phases(nets)), title=title, asked=batch)
        if job.forward and setting.ranks is not None:
            what = f"net {job.name} has no loss, and without training ranks exchange nothing"
            raise InvalidInput(f"{option('ranks', setting.ranks)}: {what}; {job.remedy}")
        if not any(program.ops for program in job.programs):  # and what is wrong with a net is told here
            place = next(iter(job.graphs.values())).place
            raise InvalidInput(f"{place}: net {job.name} computes nothing: its layers only give data")
    if job.forward:
        warn(f"net {job.name} has no loss: this is its forward pass, phase TEST; {job.remedy}")
    return job


def _phases(nets: Nets) -> tuple[str, ...]:
    """The phases to plan: those of a training run; TEST of a net that has neither a solver nor a loss."""
    return nets.phases if nets.solver is not None or has_loss(_lossy(nets.net)) else ("TEST",)


def _lossy(net: Net) -> Graph:
    """The graph that would have a loss: that of TRAIN; of a net that has layers for TEST alone, and no loss there, that
    of TEST. Raises as `Net.graph` if neither is one."""
    try:
        return net.graph("TRAIN")
    except (InvalidFile, ShapeError):
        with contextlib.suppress(InvalidFile, ShapeError):
            if not has_loss(test := net.graph("TEST")):
                return test
        raise


@contextlib.contextmanager
def shapes_said(nets: Nets) -> Iterator[None]:
    """Let a DataError name the option that makes data needless where nothing will run."""
    try:
        yield
    except DataError as error:
        options: dict[str, str] = {}
        for net in (nets.net, *nets.tests):
            for top, shape in net.remedies():
                options.setdefault(top, shape)
        if not options:
            raise
        said = " ".join(option("shape", f"{top}={shape}") for top, shape in options.items())
        raise DataError(f"{error}; to plan without the data, give their shape: {said}") from error


def understood(
    source: Source,
    batch: int | None = None,
    ignore_unknown: bool = False,
    simulated: bool = False,
    fields: Mapping[str, Any] = MappingProxyType({}),
    loss: bool = False,
    shapes: Mapping[str, Shape] = MappingProxyType({}),
) -> Nets:
    """The nets of a file, as `understand` gives them. Says which unknown fields are ignored, and what the nets note.

    simulated: whether nothing will run, so that data need not be there
    fields, loss, shapes: as of `read`"""
    dropped: list[str] = []
    nets = understand(source, fields, batch, dropped if ignore_unknown else None, loss, shapes)
    for sentence in (*(f"ignored: {field}" for field in dropped), *nets.notes):
        warn(sentence)
    nets = nets.with_shapes(shapes, batch)
    return _without_data(nets) if simulated else nets


def tell_weights(net: Net) -> None:
    """Say in one line whose weights a net begins with, if it brings some."""
    if net.weights:
        warn(f"the weights are those of {net.weights_file}")


def tell_unobeyed(
    nets: Iterable[Net], solver: SolverParameter | None, setting: Setting, simulated: bool = False
) -> None:
    """Say in one line which fields of the files change nothing. simulated: whether a GPU is, in the device's place"""
    for sentence in unobeyed(nets, solver, None if simulated else setting.device):
        warn(sentence)


def _without_data(nets: Nets) -> Nets:
    """These nets, where nothing will run: sources that cannot be read need a shape alone."""
    shapes: dict[str, str] = {}

    def dataless(net: Net) -> Net:
        made_up, replaced = net.without_data()
        shapes.update(replaced)
        return made_up

    nets = nets.each(dataless)
    for source, shape in shapes.items():
        warn(f"source {source} cannot be read: planned with images of {shape}, as its layer makes them")
    return nets
