"""What a solver file means: its nets, the phases that it needs, its update and its learning rates."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from minidnn import zoo
from minidnn.backends import DEVICES
from minidnn.errors import InvalidInput, near
from minidnn.layers import LAYERS
from minidnn.memory import policies
from minidnn.nets.net import Net
from minidnn.optimizers import OPTIMIZERS
from minidnn.programs.updates import TrainSpec
from minidnn.schema import Document, NetState, SolverParameter, check_solver, plain, read, shown
from minidnn.training.rates import learning_rate
from minidnn.training.setting import Given


class SolverFields(Given, total=False):
    """What `Solver(...)` takes by keyword: how the net is run, and Caffe's solver fields (schema/caffe.py)."""

    net: str
    net_param: Mapping[str, Any]
    train_net: str
    test_net: str | Sequence[str]
    train_state: Mapping[str, Any]
    test_state: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    test_iter: int | Sequence[int]
    test_interval: int
    test_initialization: bool
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
    weight_decay: float
    regularization_type: str
    clip_gradients: float
    display: int
    average_loss: int
    snapshot: int
    snapshot_prefix: str
    snapshot_after_train: bool
    random_seed: int
    type: str
    solver_mode: str
    minidnn: Mapping[str, Any]


def apart(keywords: Mapping[str, Any]) -> tuple[Given, dict[str, Any]]:
    """(how the net is run, solver fields) of what was given together."""
    own = Given.__annotations__.keys()
    given = {name: value for name, value in keywords.items() if name in own}
    return cast(Given, given), {name: value for name, value in keywords.items() if name not in own}


def understand(
    source: str | Path | SolverParameter | Net,
    fields: Mapping[str, Any] = MappingProxyType({}),
    batch: int | None = None,
) -> tuple[Net, Net | None, SolverParameter | None]:
    """(net, its test net if that is another one, solver parameters) of a solver or of a net, a file, a name or a value.

    `fields` go before the solver's own. A net's parameters are None unless fields are given for it. A solver's net
    is looked for beside its file, then in the working folder. Raises InvalidFile with every error of a file.
    """
    if isinstance(source, str | Path):
        source = zoo.find(source, batch)
    if isinstance(source, Net):
        net = source if batch is None else source.with_batch(batch)
        given = {"base_lr": 0.01, "lr_policy": "fixed", **fields}
        return net, None, check_solver(Document(given, what="the solver"), LAYERS, OPTIMIZERS) if fields else None
    if isinstance(source, SolverParameter):
        document, beside = Document({**plain(source), **fields}, what="the solver"), Path()
    else:
        document, beside = read(source), Path(source).parent
        if isinstance(document.data, Mapping) and document.data.keys() & {"layer", "layers", "input"}:
            if fields:
                raise InvalidInput(f"{source} is a net: to train it takes a solver file that names it")
            return Net.from_yaml(source, batch), None, None
        if isinstance(document.data, Mapping):
            document.data = {**document.data, **fields}
        else:
            document.error((), f"expected a mapping of a net's or a solver's fields, got {shown(document.data)}")
            document.check()
    _check_names(document)
    p = check_solver(document, LAYERS, OPTIMIZERS)
    for field in ("test_net", "test_iter", "test_state"):
        if len(getattr(p, field)) > 1:
            document.error((field,), "several test nets: minidnn tests with one")
    _check_rates(document, p)
    document.check()

    def net_of(field: str, path: str) -> Net:
        places = [beside / path, Path(path)]
        found: Path | Net | None = next((place for place in places if place.exists()), None)
        if found is None:
            with contextlib.suppress(zoo.NoSuchModel):
                found = zoo.find(path, batch)
        if found is None:
            looked = " and ".join(dict.fromkeys(str(place) for place in places))
            document.error((field,), f"there is no net {path} (looked for {looked})")
            document.check()
        assert found is not None
        return found if isinstance(found, Net) else Net.from_yaml(found, batch)

    if p.net_param is not None:
        net = Net.from_parameter(p.net_param, batch)
    elif p.net or p.train_net:
        net = net_of("net", p.net) if p.net else net_of("train_net", p.train_net or "")
    else:
        raise InvalidInput(f"{source}: names no net; it takes net: FILE")
    test_net = net_of("test_net", p.test_net[0]) if p.test_net else None
    for state in p.test_state:
        test_net = _with_state(test_net or net, state)
    return _with_state(net, p.train_state) if p.train_state else net, test_net, p


def _check_names(document: Document) -> None:
    """Note as the document's errors what the schema cannot know: names of policies and devices."""
    said = document.data.get("minidnn")
    policy, device = (said.get(field) if isinstance(said, Mapping) else None for field in ("policy", "device"))
    if isinstance(policy, str):
        try:
            policies.find(policy)
        except policies.NoSuchPolicy as error:
            document.error(("minidnn", "policy"), str(error))
    if isinstance(device, str) and device not in DEVICES:
        what = f"there is no device {device!r}{near(device, DEVICES)}; there are {', '.join(DEVICES)}"
        document.error(("minidnn", "device"), what)


def _check_rates(document: Document, p: SolverParameter) -> None:
    """Note where a run would come to no rate. Each policy goes one way, so its ends tell, but for a pole of inv, which
    `learning_rate` finds."""
    for iteration in (0, p.max_iter - 1) if p.max_iter else ():
        try:
            learning_rate(p, iteration)
        except InvalidInput as error:
            document.error(("lr_policy",), str(error))
            return


def _with_state(net: Net, state: NetState) -> Net:
    return Net.from_parameter(net.parameter.model_copy(update={"state": state}))


def train_spec(p: SolverParameter, seed: int) -> TrainSpec:
    """What one update is."""
    return TrainSpec(
        OPTIMIZERS[p.type].of(p),
        clip_gradients=p.clip_gradients,
        iter_size=p.iter_size,
        seed=seed,
        loss_scale=p.minidnn.loss_scale,
    )


def phases(p: SolverParameter | None) -> tuple[str, ...]:
    """Which phases a run needs: TEST too where the solver asks for tests. A net alone is planned for TRAIN."""
    tests = p is not None and (p.test_iter or p.test_interval or p.test_net)
    return ("TRAIN", "TEST") if tests else ("TRAIN",)
