"""The meaning of a solver file: its nets, the phases that it needs, its update and its learning rates."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from minidnn import zoo
from minidnn.backends import check_name
from minidnn.errors import InvalidInput
from minidnn.layers import LAYERS
from minidnn.memory import policies
from minidnn.nets.net import Net
from minidnn.optimizers import OPTIMIZERS
from minidnn.programs.updates import TrainSpec
from minidnn.schema import Document, SolverParameter, check_solver, plain, read, shown
from minidnn.training.rates import learning_rate
from minidnn.training.setting import Given


class SolverFields(Given, total=False):
    """The keywords of `Solver(...)`: how the net is run (Given), and Caffe's solver fields (schema/solver.py)."""

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
    """Split keywords into (how the net is run, solver fields)."""
    own = Given.__annotations__.keys()
    given = {name: value for name, value in keywords.items() if name in own}
    return cast(Given, given), {name: value for name, value in keywords.items() if name not in own}


def understand(
    source: str | Path | SolverParameter | Net,
    fields: Mapping[str, Any] = MappingProxyType({}),
    batch: int | None = None,
    dropped: list[str] | None = None,
) -> tuple[Net, Net | None, SolverParameter | None]:
    """(net, test net if it is another one, solver parameters) of a solver or a net.

    source:  a file, the name of a shipped net or solver, or a value
    fields:  solver fields that overrule those of the solver; if `source` is a Net, they make up its solver
    batch:   the batch size to use instead of the net's
    dropped: gets the places of unknown fields of files, which then are ignored; None: they are errors

    The parameters are None for a net without `fields`. A solver's net is looked for in the folder of the solver file,
    then in the working folder, then among the shipped ones. Raises InvalidFile with every error of a file, and
    NoSuchModel for an unknown name. Raises InvalidInput for `fields` with a net's file, and for a solver without a net.
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
            return Net.from_file(source, batch, dropped), None, None
        if isinstance(document.data, Mapping):
            document.data = {**document.data, **fields}
        else:
            document.error((), f"expected a mapping of a net's or a solver's fields, got {shown(document.data)}")
            document.check()
    document.dropped = dropped
    _check_names(document)
    p = check_solver(document, LAYERS, OPTIMIZERS)
    for field in ("test_net", "test_iter", "test_state"):
        if len(getattr(p, field)) > 1:
            document.error((field,), "several test nets: minidnn tests with one")
    _check_rates(document, p)
    document.check()

    def net_of(field: str, path: str) -> Net:
        places = [beside / path, Path(path)]
        found: Path | Net | None = next((place for place in places if place.is_file()), None)
        if found is None:
            with contextlib.suppress(zoo.NoSuchModel):
                found = zoo.find(path, batch)
        if found is None:
            looked = " and ".join(dict.fromkeys(str(place) for place in places))
            document.error((field,), f"there is no net {path} (looked for {looked})")
            document.check()
        assert found is not None
        return found if isinstance(found, Net) else Net.from_file(found, batch, dropped)

    if p.net_param is not None:
        net = Net.from_document(document, ("net_param",), batch)
    elif p.net or p.train_net:
        net = net_of("net", p.net) if p.net else net_of("train_net", p.train_net or "")
    else:
        raise InvalidInput(f"{document.place(())}: names no net; it takes net: FILE")
    test_net = net_of("test_net", p.test_net[0]) if p.test_net else None
    for state in p.test_state:
        test_net = (test_net or net).with_state(state)
    return net.with_state(p.train_state) if p.train_state else net, test_net, p


def _check_names(document: Document) -> None:
    """Add an error to the document for an unknown policy or device: the schema cannot check these names."""
    said = document.data.get("minidnn")
    policy, device = (said.get(field) if isinstance(said, Mapping) else None for field in ("policy", "device"))
    if isinstance(policy, str):
        try:
            policies.find(policy)
        except policies.NoSuchPolicy as error:
            document.error(("minidnn", "policy"), str(error))
    if isinstance(device, str):
        try:
            check_name(device)
        except InvalidInput as error:
            document.error(("minidnn", "device"), str(error))


def _check_rates(document: Document, p: SolverParameter) -> None:
    """Add an error to the document if the policy gives no rate at the first or at the last iteration.

    A policy's rate only rises or only falls, so it is enough to check both ends. Only `inv` may have a pole between
    them: there `learning_rate` raises."""
    for iteration in (0, p.max_iter - 1) if p.max_iter else ():
        try:
            learning_rate(p, iteration)
        except InvalidInput as error:
            document.error(("lr_policy",), str(error))
            return


def train_spec(p: SolverParameter, seed: int) -> TrainSpec:
    """How a step of this solver trains. `seed` is the seed of dropout."""
    return TrainSpec(
        OPTIMIZERS[p.type].of(p),
        clip_gradients=p.clip_gradients,
        iter_size=p.iter_size,
        seed=seed,
        loss_scale=p.minidnn.loss_scale,
    )


def phases(p: SolverParameter | None) -> tuple[str, ...]:
    """The phases that a run needs: TRAIN, and TEST if the solver asks for tests. A net without a solver: TRAIN."""
    tests = p is not None and (p.test_iter or p.test_interval or p.test_net)
    return ("TRAIN", "TEST") if tests else ("TRAIN",)
