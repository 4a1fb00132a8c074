"""A net that is loaded on a device: its programs arranged under a policy and a budget, and its live parameters.

A Session owns the machine. A Solver trains through a Session. To use a trained net, open a Session and call `forward`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from minidnn.backends import open_device
from minidnn.costs import offered
from minidnn.errors import InvalidInput, few
from minidnn.formats import usable, widened
from minidnn.jobs.job import Job
from minidnn.jobs.nets import Nets
from minidnn.jobs.profile import trains_here
from minidnn.jobs.setting import Given, Setting, simulated_only
from minidnn.layers import rows
from minidnn.layers.rows import Rows
from minidnn.memory.execution.machine import Machine
from minidnn.memory.execution.trace import Trace
from minidnn.memory.execution.trial import Unfit, refusals
from minidnn.memory.policies.check import looking_longer
from minidnn.nets import perplexity
from minidnn.nets.graph import Blob, Graph
from minidnn.nets.net import Net
from minidnn.program import Role, Tensor
from minidnn.programs.build import TRAINING, executable, last, named
from minidnn.programs.ranks import KEPT
from minidnn.programs.scalars import OBJECTIVE, OBJECTIVES, SCALE
from minidnn.programs.spec import TrainSpec
from minidnn.results.counted import Counted, counted
from minidnn.sizes import text
from minidnn.training import snapshot, solverstate
from minidnn.training.inference import forward
from minidnn.training.parameters import Parameters, WeightsError, assign, by_name, rows_of, saved_name
from minidnn.zoo import load

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class Loaded:
    """The names, "<layer>/<blob>", of weights that were loaded into a net, and of those that were not."""

    taken: tuple[str, ...]
    missing: tuple[str, ...]  # in the net but not in the file: these keep the values that they had
    unused: tuple[str, ...]  # in the file but not in the net

    def data(self) -> dict[str, list[str]]:
        """The names as plain data."""
        return {"taken": list(self.taken), "missing": list(self.missing), "unused": list(self.unused)}


class Session:
    """A net on a device, ready to run: `params` holds its live parameters, and `forward` runs it on samples.

    Use it in a `with` statement, or call `close` at the end."""

    def __init__(
        self,
        net: Net | str | Path | Job,
        train: TrainSpec | None = None,
        phases: Sequence[str] = ("TEST",),
        *,
        tests: Sequence[Net] = (),
        fed: bool = False,
        test_loss: bool = False,
        setting: Setting | None = None,
        **given: Unpack[Given],
    ) -> None:
        """Plan the net's programs, prove the plans and load them on the device.

        net:      a Net, a file, or the name of a model; or a Job, which contains the other arguments, too
        train:    how a step updates the weights; without it, the TRAIN program ends with the gradients
        phases:   the phases to load, "TRAIN" and "TEST"
        tests:    the nets of phase TEST, if they differ from `net`; the program of the second one is TEST1
        fed:      whether Feeds write the inputs; then those of training may be double-buffered (Setting.early)
        test_loss: whether programs of phase TEST compute the objective, too
        setting:  how the net is run, as one value; or use keywords (`Given` in jobs/setting.py)

        Raises BudgetError before anything is allocated if the policy cannot keep the budget. Raises RamError if the
        run would take more memory than this machine has, or than the setting allows. Raises InvalidInput for memory
        facts that are for planning only.
        """
        if isinstance(net, Job):
            job = net
            _check(job.setting)
        else:
            nets = Nets(net if isinstance(net, Net) else load(net), tuple(tests))
            setting = setting or Setting.of(given)
            _check(setting)
            job = Job.of(nets, setting, phases=tuple(phases))
            job = replace(job, spec=train, fed=fed, test_loss=test_loss)
        self.net, self.setting, self.graphs = job.net, job.setting, job.graphs
        self.device = open_device(job.setting.device)
        self.notes: list[str] = []  # what the user should know of the plans
        self.costs = trains_here(job, self.notes.append)
        self.machine = self._planned(job)
        self.arrangement = self.machine.arrangement
        self.programs = {name: schedule.program for name, schedule in self.arrangement.schedules.items()}
        buffered = any(p.double_buffered for p in self.programs.values())
        self.without_double_buffering = job.double_buffers and not buffered  # for want of bytes on the device
        persistent = {
            t.name: t for p in self.programs.values() for t in (*p.synchronous_inputs().persistent, *p.host_resident)
        }
        self.params = Parameters(self.machine, self.graphs.values(), persistent)
        self._state = self._begun(job, persistent)
        self._wholes = self._of_shards()
        self._closed = False

    def _planned(self, job: Job) -> Machine:
        """The programs, planned and loaded. They are planned anew where the device refuses an algorithm, and all that
        are left need more workspace."""
        setting, here = self.setting, job.residence()
        while True:
            with looking_longer([setting.policy], setting.effort):
                arrangement = here.arranged(job.programs, setting.policy, self.costs, setting)
            self.ram = here.ram(arrangement)
            try:
                return Machine(
                    self.device, arrangement, debug=setting.debug, delays=setting.delays, engine=setting.engine,
                    disk=setting.disk,
                )  # fmt: skip
            except Unfit:
                self.costs = offered(self.costs, self.device.algorithms)

    def _begun(self, job: Job, persistent: Mapping[str, Tensor]) -> list[Tensor]:
        """Give everything that lives across steps its first values. Returns the tensors of the state, which a snapshot
        has beside the weights."""
        constant = {name for graph in self.graphs.values() for name in graph.constants}
        kept = {name for graph in self.graphs.values() for name in graph.kept}
        shards = set(self.machine.shards.values())
        others = [
            t
            for t in persistent.values()
            if t not in self.params.tensors and t.name not in constant and t not in shards
        ]
        first: dict[str, Rows] = {}
        for one, phase in reversed(named(job.net, job.phases, job.tests).values()):
            first.update(one.drawn(self.setting.seed, phase))
        for tensor in (*self.params.tensors, *(persistent[name] for name in constant)):
            assign(self.machine, tensor, first[tensor.name])
        for tensor in others:
            assign(self.machine, tensor, rows.full(tensor.shape, 0.0, np.dtype(tensor.dtype)))
        if job.spec is not None and SCALE in others:
            assign(self.machine, SCALE, rows.of(np.array([job.spec.loss_scale, 0], np.float32)))
        # With updates, sums of gradients are zero between iterations. Without updates, a step leaves the gradients.
        updated = job.spec is not None
        others = [t for t in others if t.name not in kept]
        return [t for t in others if not (updated and (t.role is Role.PARAM_GRADIENT or t.name.endswith(KEPT)))]

    def __repr__(self) -> str:
        return f"<session of {self.net.name or 'net'}, {', '.join(self.programs)}: {self.place}>"

    @property
    def place(self) -> str:
        """The device, the policy, and the bytes that it takes, in words."""
        a = self.arrangement
        closed = ", closed" if self._closed else ""
        return f"{self.device.name}, {a.policy}, {text(a.arena)} on the device, {text(a.off_device)} off it{closed}"

    @property
    def peak_bytes(self) -> int:
        """The bytes of the device that its plans take, at most the budget; as in the rows of `minidnn.plan`."""
        return self.arrangement.arena

    @property
    def refusals(self) -> list[str]:
        """A sentence for each algorithm that the device refused for this net: the reason, and what runs instead."""
        return refusals(self.device, self.arrangement)

    def step(self, program: str, **how: Any) -> Trace | None:
        """Run a program once, on the inputs written for it; `how` holds further arguments of Machine.step."""
        self._open()
        return self.machine.step(program, **how)

    def launch(self, program: str, meanwhile: Callable[[], object] | None = None) -> None:
        """Like `step`, but the step may still be running on return (Machine.launch). Reading an output waits for it."""
        self._open()
        self.machine.launch(program, meanwhile)

    def _open(self) -> None:
        if self._closed:
            raise InvalidInput("the session is closed: its parameters can be read, but nothing can be run")

    # ---- values

    def weights(self) -> dict[str, np.ndarray]:
        """Copies of all parameters and running statistics, by "<layer>/<blob>", float32 in Caffe's blob shapes."""
        return {name: values.whole() for name, values in self.weight_rows().items()}

    def weight_rows(self) -> dict[str, Rows]:
        """Like `weights`, but each value is copied only when it is read."""
        return {saved_name(t): rows for t, rows in self.parameter_rows().items()}

    def parameter_rows(self) -> dict[Tensor, Rows]:
        """Like `weight_rows`, by tensor."""
        return {t: rows_of(self.machine, t, shape) for t, shape in self.params.tensors.items()}

    def state(self) -> dict[str, np.ndarray]:
        """Copies of the other tensors that live across steps, by name: momenta, or, without updates, the gradients."""
        return {name: values.whole() for name, values in self.state_rows().items()}

    def state_rows(self) -> dict[str, Rows]:
        """Like `state`, but each value is copied only when it is read."""
        result = {}
        for t in self._state:
            whole = self._wholes.get(t)
            result[whole.name if whole else t.name] = (
                rows.of(self.machine.get_whole(t, whole)) if whole else rows_of(self.machine, t)
            )
        return result

    def _of_shards(self) -> dict[Tensor, Tensor]:
        """{a tensor of the state of which this rank has a shard: the whole}, among several ranks."""
        result: dict[Tensor, Tensor] = {}
        for w, shard in self.machine.shards.items():
            for t in self._state:
                if t.name.startswith(shard.name + "."):
                    result[t] = replace(t, name=w.name + t.name.removeprefix(shard.name), shape=w.shape)
        return result

    def load(self, weights: Mapping[str, np.ndarray | Rows] | str | Path, complete: bool = False) -> Loaded:
        """Load weights from a file, or from arrays by "<layer>/<blob>", into the layers with these names. As in
        Caffe, a blob may be a number.

        A parameter that layers share may have the name of any of them, or several with equal values, as in Caffe's
        files.

        Raises WeightsError if a shape differs, if a value is not a finite floating-point number, if no name matches,
        if two layers that share a parameter get different values, or, with `complete`, if a weight is missing. Raises
        SnapshotError for a file that cannot be read. After an error the net keeps the weights that it had before.
        """
        if not isinstance(weights, Mapping):
            try:
                return self.load(snapshot.load_weights(weights), complete)
            except WeightsError as error:
                raise WeightsError(f"{weights}: {error}") from None
        weights = by_name(weights, self.params.shapes)
        names = self.params.names
        given = {key: rows.of(weights[key]) for key in names if key in weights}
        chosen: dict[Tensor, str] = {}  # the name whose values a parameter gets
        for key, values in given.items():
            if problem := _unfit(values, self.params.tensors[names[key]]):
                layer, blob = key.rsplit("/", 1)
                hint = "" if complete else "; to train the layer from scratch, give it another name"
                raise WeightsError(f"layer {layer}: its {blob} {problem}{hint}")
            first = chosen.setdefault(names[key], key)
            if first != key and not rows.equal(values, given[first]):
                raise WeightsError(f"{first} and {key} are one parameter, but are given with different values")
        missing = {saved_name(t) for t in self.params.tensors if t not in chosen}
        unused = weights.keys() - names.keys()
        if not chosen or (complete and missing):
            raise WeightsError(f"these are not the net's weights: {_difference(missing, unused)}")
        for tensor, key in chosen.items():
            assign(self.machine, tensor, given[key])
        return Loaded(tuple(given), tuple(sorted(missing)), tuple(sorted(unused)))

    def restore(self, weights: Mapping[str, Rows], state: Mapping[str, Rows]) -> None:
        """Load the weights and the state of a snapshot. Raises WeightsError if it belongs to another net or
        optimizer."""
        ours = by_name(weights, self.params.shapes)
        if unused := ours.keys() - self.params.names.keys():
            raise WeightsError(f"the snapshot is of another net: {_difference((), unused)}")
        mine = {self._wholes.get(t, t).name: t for t in self._state}
        state = solverstate.named(state, self.weight_rows(), mine)
        self.load(ours, complete=True)
        if mine.keys() != state.keys():
            missing, unused = mine.keys() - state.keys(), state.keys() - mine.keys()
            raise WeightsError(f"the snapshot is of another optimizer: {_difference(missing, unused)}")
        for name, tensor in mine.items():
            whole = self._wholes.get(tensor, tensor)
            if math.prod(state[name].shape) != whole.size:  # Caffe's blobs may have axes that ours lack
                raise WeightsError(f"{name} has shape {whole.shape}, but in the snapshot {state[name].shape}")
            if whole is tensor:
                assign(self.machine, tensor, state[name])
            else:
                self.machine.set_whole(tensor, whole, state[name].whole().reshape(whole.shape))

    def outputs(self, program: str) -> list[Blob]:
        """The blobs that are on the host after a step of that program: those without consumers, and those in `keep`."""
        wanted = set(self.programs[program].outputs)
        graph = self._graph(program)
        return [blob for node in graph.layers for blob in node.tops if blob.tensor in wanted]

    def scalars(self, program: str) -> dict[str, float]:
        """The values that the last step gave to outputs of one number (losses, accuracies), by blob name; and those of
        Accuracy's shares for each class, by NAME[CLASS]."""
        told = [(_told(b), self.machine.read(b.tensor, program)) for b in self.outputs(program) if _told(b)]
        return {name: float(value) for names, values in told for name, value in zip(names, values, strict=True)}

    def told(self, program: str, scalars: Mapping[str, float]) -> dict[str, float]:
        """The outputs of one number with what follows from them: the perplexity of a net of tokens."""
        return {**scalars, **perplexity.of(self._graph(program), scalars)}

    def scalar_names(self, program: str) -> list[str]:
        """The names of the outputs that `told` gives, in their order."""
        names = [name for b in self.outputs(program) for name in _told(b)]
        given = perplexity.losses(self._graph(program)).items()
        return [*names, *(name for name, (blob, _) in given if blob in names)]

    def counted(self, program: str) -> Counted:
        """What is counted of the program's samples."""
        return counted(self._graph(program).tokens)

    def _graph(self, program: str) -> Graph:
        return self.graphs["TRAIN" if program in TRAINING else program]

    def tells_objective(self, program: str) -> bool:
        """Whether the program computes its objective: as TRAIN does; others with `test_loss`, if they have a loss."""
        return any(t.name in (OBJECTIVE.name, OBJECTIVES) for t in self.programs[program].outputs)

    def objective(self, program: str) -> float:
        """The objective of the last step: the weighted sum of the losses."""
        (value,) = self.objectives(program)
        return value

    def objectives(self, program: str) -> list[float]:
        """The objective of each rank's last step; without ranks there is one."""
        tensor = next(t for t in self.programs[program].outputs if t.name in (OBJECTIVE.name, OBJECTIVES))
        return self.machine.read(tensor, program).tolist()

    def read(self, blob: str, phase: str = "TRAIN") -> np.ndarray:
        """A copy of a blob as the last step of that phase left it; 16-bit values are converted to float32.

        Raises InvalidInput unless the blob is an output or is named in `keep`."""
        result = last(self.graphs[phase], blob)
        if result is None or result.tensor not in self.programs[phase].outputs:
            raise InvalidInput(f"blob {blob!r} is not copied from the device in {phase}: use keep=[{blob!r}]")
        return widened(self.machine.read(result.tensor, phase))

    # ---- inference

    def forward(self, inputs: np.ndarray | Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run TEST on n samples and return the outputs that have a value per sample: {blob: (n, ...)}.

        inputs: an array per input blob, by its name; or one array if the outputs depend on one input

        Neither labels nor targets are needed: losses and accuracies are left out, and the scores that they compare
        are returned. Raises InvalidInput if inputs are missing or have wrong shapes, if there is no TEST program, or
        if no output has a value per sample.
        """
        if "TEST" not in self.programs:
            raise InvalidInput("there is no TEST program to run: open the session with phases=('TRAIN', 'TEST')")
        self._open()
        return forward(self.machine, self.graphs["TEST"], self.programs["TEST"], inputs, self.setting.seed)

    def close(self) -> None:
        """Stop the machine and free the device's memory. Parameters stay readable."""
        self._closed = True
        self.machine.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _told(output: Blob) -> list[str]:
    """The names under which an output's numbers are told; none for one of many numbers."""
    maker = output.maker
    if maker.tops.index(output) in maker.layer.each:
        return [f"{output.name}[{k}]" for k in range(output.tensor.size)]
    return [output.name] if output.tensor.shape == (1,) else []


def _check(setting: Setting) -> None:
    """Raise InvalidInput for what a plan can have, and a run cannot."""
    usable(setting.format)
    if setting.ranks is not None:
        raise InvalidInput(simulated_only(setting.ranks))
    executable(setting.facts)


def _unfit(rows: Rows, shape: tuple[int, ...]) -> str | None:
    """Why these cannot be the values of a parameter of that shape; None if they can."""
    if rows.shape != shape:
        return f"has shape {shape}, but is given with {rows.shape}"
    if rows.dtype.kind != "f":
        return f"is given as {rows.dtype}; expected floating-point numbers"
    with np.errstate(over="ignore"):
        finite = all(np.isfinite(piece.astype(np.float32, copy=False)).all() for piece in rows.pieces())
    return None if finite else "is given with values that are not finite in float32"


def _difference(missing: Iterable[str], unused: Iterable[str]) -> str:
    """The part of an error message that names missing and superfluous weights."""
    parts = [
        f"it has no {few(sorted(missing))}" if missing else "",
        f"only it has {few(sorted(unused))}" if unused else "",
    ]
    return ", and ".join(filter(None, parts))
