"""The keywords of a Solver, and how they overrule a solver file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, cast

from minidnn.jobs.setting import Given
from minidnn.schema.solver import IN_EPOCHS


class Course(TypedDict, total=False):
    """The length of a run, and its logs: fields of a solver file's `minidnn: {...}`.

    epochs:          the number to train, in place of max_iter; training/epochs.py defines an epoch
    test_epochs:     epochs between two tests, in place of test_interval
    display_epochs:  epochs between two displayed iterations, in place of display
    snapshot_epochs: epochs between two snapshots, in place of snapshot
    keep_best:       an output of a test net, such as accuracy; the snapshot of its best test is kept beside the others
    patience:        the number of tests without improvement after which the run ends
    log:             files that `run` and `solve` append to during the run: FILE.jsonl, FILE.csv
    tensorboard:     a folder for TensorBoard's event files
    """

    epochs: int
    test_epochs: int
    display_epochs: int
    snapshot_epochs: int
    keep_best: str
    patience: int
    log: str | Sequence[str]
    tensorboard: str


class SolverFields(Given, Course, total=False):
    """The keywords of `Solver(...)`: how the net is run (Given), how long and how followed (Course), and Caffe's solver
    fields (schema/solver.py)."""

    net: str
    net_param: Mapping[str, Any]
    train_net: str
    train_net_param: Mapping[str, Any]
    test_net: str | Sequence[str]
    test_net_param: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    train_state: Mapping[str, Any]
    test_state: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    test_iter: int | Sequence[int]
    test_interval: int
    test_initialization: bool
    test_compute_loss: bool
    base_lr: float
    lr_policy: str
    gamma: float
    power: float
    stepsize: int
    stepvalue: int | Sequence[int]
    rampup_interval: int
    rampup_lr: float
    max_iter: int
    iter_size: int
    momentum: float
    momentum2: float
    rms_decay: float
    delta: float
    trust_coefficient: float
    weight_decay: float
    regularization_type: str
    clip_gradients: float
    display: int
    average_loss: int
    debug_info: bool
    snapshot: int
    snapshot_prefix: str
    snapshot_format: str
    snapshot_after_train: bool
    random_seed: int
    type: str
    solver_mode: str
    device_id: int
    minidnn: Mapping[str, Any]


def apart(keywords: Mapping[str, Any]) -> tuple[Given, dict[str, Any]]:
    """Split keywords into (how the net is run, solver fields)."""
    own = Given.__annotations__.keys()
    given = {name: value for name, value in keywords.items() if name in own}
    return cast(Given, given), {name: value for name, value in keywords.items() if name not in own}


@dataclass(frozen=True)
class Asked:
    """The value of a field, and how the user has written it, which errors show: --set base_lr=0.01."""

    value: Any
    shown: str


def overruled(data: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """A solver's data with these fields in place of its own. Keywords of `Course` go into its `minidnn`; a dotted name
    goes into the message that it names.

    None says nothing. A field that counts iterations takes the place of the one that counts epochs, and the other way
    round: max_iter that of epochs."""
    given = {_keyword(name): value.value if isinstance(value, Asked) else value for name, value in fields.items()}
    ours = {name: value for name, value in given.items() if name in Course.__annotations__ and value is not None}
    result = {**data, **{n: value for n, value in given.items() if n not in Course.__annotations__ and "." not in n}}
    for name, value in given.items():
        if "." in name:
            _put(result, name.split("."), value)
    own = result.get("minidnn", {})
    if not isinstance(own, Mapping):
        return result  # the schema reports the error
    epochs = {twin for field, twin in IN_EPOCHS.items() if field in given}
    for field, twin in IN_EPOCHS.items():
        if twin in ours and field not in given:
            result.pop(field, None)
    own = {**{name: value for name, value in own.items() if name not in epochs}, **ours}
    return {**result, "minidnn": own} if own or "minidnn" in result else result


def shown(fields: Mapping[str, Any]) -> dict[tuple[str | int, ...], str]:
    """How the user has written these fields, by their paths in a solver's data, as far as that is known."""
    return {tuple(name.split(".")): value.shown for name, value in fields.items() if isinstance(value, Asked)}


def _keyword(name: str) -> str:
    """The keyword of `Course` for a dotted name of it, such as minidnn.epochs; other names as they are."""
    own = name.removeprefix("minidnn.")
    return own if own in Course.__annotations__ else name


def _put(data: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Give the field at `path` a value; messages around it that are not there are made, and those that are are
    copied."""
    first, *rest = path
    if not rest:
        data[first] = value
        return
    inner = data.get(first)
    data[first] = dict(inner) if isinstance(inner, Mapping) else {}
    _put(data[first], rest, value)
