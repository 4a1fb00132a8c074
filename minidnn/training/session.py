"""A net that is loaded on a device: its programs arranged under a policy and a budget, and its live parameters.

A Session owns the machine. A Solver trains through one; to use a trained net, open one and call `forward`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from minidnn.backends import open_device
from minidnn.costs import estimate
from minidnn.errors import InvalidInput, few
from minidnn.formats import usable, widened
from minidnn.memory.execution.machine import Machine
from minidnn.memory.execution.trace import Trace
from minidnn.memory.planning import arrange
from minidnn.nets.graph import Blob, Graph
from minidnn.nets.net import Net
from minidnn.program import Role, Tensor
from minidnn.programs.build import build, executable, last
from minidnn.programs.updates import SCALE, TrainSpec
from minidnn.training import snapshot
from minidnn.training.parameters import Parameters, WeightsError
from minidnn.training.setting import Given, Setting

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class Loaded:
    """What became of weights that were given: by name, "<layer>/<blob>"."""

    taken: tuple[str, ...]
    missing: tuple[str, ...]  # the net has them, the file does not: as they were filled
    unused: tuple[str, ...]  # the file has them, the net does not


class Session:
    def __init__(
        self,
        net: Net,
        train: TrainSpec | None = None,
        phases: Sequence[str] = ("TEST",),
        *,
        test_net: Net | None = None,
        setting: Setting | None = None,
        **given: Unpack[Given],
    ) -> None:
        """`train` says what an update is; without it the TRAIN program ends with the gradients. How the net is run is
        said by keywords (setting.Given), or by one `setting`.

        Raises BudgetError before anything is allocated if the policy cannot keep the budget, and InvalidInput for
        memory facts that are for planning only.
        """
        self.net = net
        self.setting = setting = setting or Setting.of(given)
        usable(setting.format)
        self.device = open_device(setting.device)
        self.costs = setting.costs or estimate(self.device)
        if setting.staging is not None:
            self.costs = replace(self.costs, staging=setting.staging)
        nets = {"TRAIN": net, "TEST": test_net or net}
        self.graphs: dict[str, Graph] = {phase: nets[phase].graph(phase, format=setting.format) for phase in phases}
        fuses = self.device.fuses if setting.fuse else None
        self.programs = build(self.graphs, train, setting.keep, executable(setting.facts), fuses)
        self.arrangement = arrange(
            list(self.programs.values()), setting.policy, self.costs, setting.budget, setting.host_budget
        )
        self.machine = Machine(self.device, self.arrangement, debug=setting.debug, delays=setting.delays)
        carried = {t.name: t for program in self.programs.values() for t in program.carried}
        self.params = Parameters(self.machine, self.graphs.values(), carried)
        others = [t for t in carried.values() if t not in self.params.tensors]
        # Sums of gradients are zero between iterations; without updates, gradients are what a step leaves.
        self._state = [t for t in others if train is None or t.role is not Role.PARAM_GRADIENT]
        first: dict[str, np.ndarray] = {}
        for phase in reversed(self.graphs):
            first.update(nets[phase].initial(setting.seed, phase))
        for tensor in self.params.tensors:
            self.machine.set(tensor, first[tensor.name])
        for tensor in others:
            value = np.zeros(tensor.shape, tensor.dtype)
            if tensor == SCALE and train:
                value[0] = train.loss_scale
            self.machine.set(tensor, value)

        self._closed = False

    def step(self, program: str, **how: Any) -> Trace | None:
        """Run a program once, on the inputs written for it; `how` as Machine.step takes it."""
        self._open()
        return self.machine.step(program, **how)

    def launch(self, program: str, meanwhile: Callable[[], object] | None = None) -> None:
        """As `step`, but the device may still be at it on return (Machine.launch). Outputs can be read as always."""
        self._open()
        self.machine.launch(program, meanwhile)

    def _open(self) -> None:
        if self._closed:
            raise InvalidInput("the session is closed: its parameters can be read, but nothing can be run")

    # ---- values

    def weights(self) -> dict[str, np.ndarray]:
        """All parameters and running statistics, "<layer>/<blob>", in Caffe's blob shapes."""
        return {f"{layer}/{name}": blobs[name] for layer, blobs in self.params.items() for name in blobs}

    def state(self) -> dict[str, np.ndarray]:
        """What else lives across steps: momenta, or, without updates, the gradients."""
        return {t.name: self.machine.get(t) for t in self._state}

    def load(self, weights: Mapping[str, np.ndarray] | str | Path, complete: bool = False) -> Loaded:
        """Take weights by layer name: a file's, or by "<layer>/<blob>". Before anything is changed, raises
        WeightsError if a shape differs, if they are no finite floating-point numbers, or, with `complete`, if any is
        missing."""
        if not isinstance(weights, Mapping):
            try:
                return self.load(snapshot.load_weights(weights), complete)
            except WeightsError as error:
                raise WeightsError(f"{weights}: {error}") from None
        mine = {f"{layer}/{name}": (blobs, name) for layer, blobs in self.params.items() for name in blobs}
        taken = [key for key in mine if key in weights]
        for key in taken:
            blobs, name = mine[key]
            if problem := _unfit(weights[key], blobs.shape(name)):
                layer, blob = key.rsplit("/", 1)
                raise WeightsError(f"layer {layer}: its {blob} {problem}")
        missing, unused = (tuple(sorted(s)) for s in (mine.keys() - weights.keys(), weights.keys() - mine.keys()))
        if not taken or (complete and missing):
            raise WeightsError(f"these are not the net's weights: {_difference(missing, unused)}")
        for key in taken:
            blobs, name = mine[key]
            blobs[name] = weights[key]
        return Loaded(tuple(taken), missing, unused)

    def restore(self, weights: Mapping[str, np.ndarray], state: Mapping[str, np.ndarray]) -> None:
        """Take a whole snapshot. Raises WeightsError unless it is of this very net and optimizer."""
        if unused := weights.keys() - self.weights().keys():
            raise WeightsError(f"the snapshot is of another net: {_difference((), unused)}")
        self.load(weights, complete=True)
        mine = {t.name: t for t in self._state}
        if mine.keys() != state.keys():
            missing, unused = mine.keys() - state.keys(), state.keys() - mine.keys()
            raise WeightsError(f"the snapshot is of another optimizer: {_difference(missing, unused)}")
        for name, tensor in mine.items():
            if state[name].shape != tensor.shape:
                raise WeightsError(f"{name} has shape {tensor.shape}, but in the snapshot {state[name].shape}")
            self.machine.set(tensor, state[name])

    def outputs(self, program: str) -> list[Blob]:
        """The net's outputs in that program: blobs that nobody consumes, and those named in `keep`."""
        wanted = set(self.programs[program].outputs)
        graph = self.graphs["TEST" if program == "TEST" else "TRAIN"]
        return [blob for node in graph.layers for blob in node.tops if blob.tensor in wanted]

    def scalars(self, program: str) -> dict[str, float]:
        """Outputs of one number (losses, accuracies) as the last step left them, by blob name."""
        read = self.machine.read
        return {b.name: float(read(b.tensor, program)[0]) for b in self.outputs(program) if b.tensor.shape == (1,)}

    def objective(self, program: str) -> float:
        """What the last step minimised: the weighted sum of the losses."""
        tensor = next(t for t in self.programs[program].outputs if t.name == "objective")
        return float(self.machine.read(tensor, program)[0])

    def read(self, blob: str, phase: str = "TRAIN") -> np.ndarray:
        """A blob's value in the last step of that phase: an output, or one named in `keep`."""
        found = last(self.graphs[phase], blob)
        if found is None or found.tensor not in self.programs[phase].outputs:
            raise InvalidInput(f"blob {blob!r} does not leave the device in {phase}: say keep=[{blob!r}]")
        return widened(self.machine.read(found.tensor, phase))

    # ---- inference

    def forward(self, inputs: np.ndarray | Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run TEST on samples, however many, and return what it says about each: {blob: (n, ...)}.

        Inputs are by blob name, or one array for a net of one input. Without labels, what needs them (loss,
        accuracy) is left out; what it is computed from, the scores, is returned instead. Raises InvalidInput.
        """
        if "TEST" not in self.programs:
            raise InvalidInput("there is no TEST program to run: open the session with phases=('TRAIN', 'TEST')")
        program = self.programs["TEST"]
        data = {t.name: t for t in program.inputs if t.role is Role.INPUT}
        if not data:
            raise InvalidInput("the net has no input in phase TEST")
        inputs, count = _samples(inputs, list(data))
        batch = next(iter(data.values())).shape[0]
        rows = [b for b in self.outputs("TEST") if b.tensor.shape[0] == batch and len(b.tensor.shape) > 1]
        outputs = {b.name: b.tensor for b in rows}
        for tensor in program.inputs:
            if tensor not in data.values():  # labels: nothing that is returned depends on them
                self.machine.write(tensor, np.zeros(tensor.shape, tensor.dtype), "TEST")
        results: dict[str, list[np.ndarray]] = {name: [] for name in outputs}
        for start in range(0, count, batch):
            for name, tensor in data.items():
                self.machine.write(tensor, _filled(inputs[name], start, tensor), "TEST")
            self.step("TEST")
            for name, tensor in outputs.items():
                results[name].append(widened(self.machine.read(tensor, "TEST")[: count - start]))
        return {name: np.concatenate(parts) for name, parts in results.items()}

    def close(self) -> None:
        """End the copy threads. Parameters stay readable."""
        self._closed = True
        self.machine.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _unfit(given: np.ndarray, shape: tuple[int, ...]) -> str | None:
    """Why an array is no value for a parameter of that shape."""
    if given.shape != shape:
        return f"has shape {shape}, but is given with {given.shape}"
    if given.dtype.kind != "f":
        return f"is given as {given.dtype}; expected floating-point numbers"
    with np.errstate(over="ignore"):
        finite = np.isfinite(given.astype(np.float32, copy=False)).all()
    return None if finite else "is given with values that are not finite in float32"


def _samples(inputs: np.ndarray | Mapping[str, np.ndarray], names: Sequence[str]) -> tuple[dict[str, np.ndarray], int]:
    """The arrays of these input blobs, and how many samples each holds. Raises InvalidInput where one is missing, or
    they do not hold equally many."""
    if not isinstance(inputs, Mapping):
        if len(names) != 1:
            raise InvalidInput(f"the net has inputs {', '.join(names)}: give a dict of arrays by these names")
        inputs = {names[0]: inputs}
    if missing := sorted(set(names) - inputs.keys()):
        raise InvalidInput(f"no value for input {', '.join(missing)}")
    arrays = {name: np.asarray(inputs[name]) for name in names}
    counts = [len(array) if array.ndim else 0 for array in arrays.values()]
    if not min(counts) or min(counts) != max(counts):
        found = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise InvalidInput(f"expected samples, as many of each input, one or more; got {found}")
    return arrays, counts[0]


def _filled(array: np.ndarray, start: int, tensor: Tensor) -> np.ndarray:
    """A batch from `start` on, the last one filled up with zeros."""
    part = np.asarray(array)[start : start + tensor.shape[0]]
    if part.shape[1:] != tensor.shape[1:]:
        raise InvalidInput(f"{tensor.name}: a sample has shape {tensor.shape[1:]}, got {part.shape[1:]}")
    if len(part) == tensor.shape[0]:
        return part
    whole = np.zeros(tensor.shape, tensor.dtype)
    whole[: len(part)] = part
    return whole


def _difference(missing: Iterable[str], unused: Iterable[str]) -> str:
    """What a file lacks, and what it has too much."""
    parts = [
        f"it has no {few(sorted(missing))}" if missing else "",
        f"it alone has {few(sorted(unused))}" if unused else "",
    ]
    return ", and ".join(filter(None, parts))
