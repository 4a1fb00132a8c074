"""The meaning of a solver file: its nets, the phases that it needs, its update and its learning rates."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from minidnn import zoo
from minidnn.backends import check_name
from minidnn.errors import InvalidInput
from minidnn.jobs.keywords import overruled, shown
from minidnn.jobs.nets import Nets
from minidnn.layers import LAYERS
from minidnn.layers.base import Shape
from minidnn.memory import policies
from minidnn.nets.net import Net
from minidnn.optimizers import OPTIMIZERS
from minidnn.optimizers.rates import learning_rate
from minidnn.schema import (
    Document,
    NetState,
    SolverParameter,
    check_solver,
    in_caffe_s_words,
    plain,
    quote,
    read,
    several,
)

RATE = 0.01  # of a solver that is made up for a net, if nobody names one


def understand(
    source: str | Path | SolverParameter | Net | Nets,
    fields: Mapping[str, Any] = MappingProxyType({}),
    batch: int | None = None,
    dropped: list[str] | None = None,
    loss: bool = False,
    shapes: Mapping[str, Shape] = MappingProxyType({}),
) -> Nets:
    """The nets of a solver or a net, with the solver's parameters.

    source:  a file, the name of a shipped net or solver, or a value; Nets are returned as they are
    fields:  solver fields that overrule those of the solver; if `source` is a net, they make up its solver
    batch:   the batch size to use instead of the net's
    dropped: gets the places of unknown fields of files, which then are ignored; None: they are errors
    loss:    whether a net that has no loss gets one; that of an ONNX model has one wherever there is a solver
    shapes:  of the inputs of an ONNX model, where it leaves lengths free

    The parameters are None for a net without `fields`, and it has no tests. A solver's net is looked for in the folder
    of the solver file, then in the working folder (of a .prototxt the other way round, as in Caffe), then among the
    shipped ones. Raises InvalidFile with every error of a file, and NoSuchModel for an unknown name. Raises
    InvalidInput for a solver without a net.
    """
    nets = _understood(source, fields, batch, dropped, loss, shapes)
    if not loss:
        return nets
    net = nets.net.with_loss()
    return nets._replace(net=net, tests=tuple(net if test == nets.net else test for test in nets.tests))


def _understood(
    source: str | Path | SolverParameter | Net | Nets,
    fields: Mapping[str, Any],
    batch: int | None,
    dropped: list[str] | None,
    loss: bool,
    shapes: Mapping[str, Shape],
) -> Nets:
    if isinstance(source, Nets):
        return source
    if isinstance(source, str | Path):
        source = zoo.find(source, batch)
    if isinstance(source, Path) and zoo.files.only_net(source):
        return _of_net(zoo.files.read(source, batch, loss=loss or bool(fields), shapes=shapes), fields, batch)
    if isinstance(source, Net):
        return _of_net(source if batch is None else source.with_batch(batch), fields, batch)
    if isinstance(source, SolverParameter):
        document, beside = Document(overruled(plain(source), fields), what="the solver"), Path()
    else:
        document, beside = read(source), Path(source).parent
        if isinstance(document.data, Mapping) and document.data.keys() & {"layer", "layers", "input"}:
            return _of_net(zoo.files.read(source, batch, dropped), fields, batch)
        if isinstance(document.data, Mapping):
            document.data = overruled(document.data, fields)
        else:
            document.error((), f"expected a mapping of a net's or a solver's fields, got {quote(document.data)}")
            document.check()
    document.dropped = dropped
    p = _checked(document, fields)

    def net_of(field: str, path: str) -> Net:
        return _found(document, field, path, beside, batch, shapes)

    inline = next((field for field in ("net_param", "train_net_param") if getattr(p, field) is not None), None)
    if inline:
        net = Net.from_document(document, (inline,), batch)
    elif p.net or p.train_net:
        net = net_of("net", p.net) if p.net else net_of("train_net", p.train_net or "")
    else:
        raise InvalidInput(f"{document.place(())}: names no net; add net: FILE")
    shared = net if p.net or p.net_param is not None else None
    return Nets(_in_state(net, p.train_state), _tests(document, p, shared, net_of, batch), p)


def _checked(document: Document, fields: Mapping[str, Any]) -> SolverParameter:
    """The solver of a document that has these fields. Raises InvalidFile with all errors."""
    document.shown = shown(fields)
    _check_names(document)
    p = in_caffe_s_words(document, check_solver(document, LAYERS, OPTIMIZERS))
    _check_rates(document, p)
    document.check()
    return p


def _of_net(net: Net, fields: Mapping[str, Any], batch: int | None) -> Nets:
    """The nets of a net, whose solver has these fields; without fields it has none."""
    if not fields:
        return Nets(net)
    document = Document(overruled({"base_lr": RATE, "lr_policy": "fixed"}, fields), what="the solver")
    p = _checked(document, fields)
    tests = _tests(document, p, net, lambda field, path: _found(document, field, path, Path(), batch), batch)
    return Nets(_in_state(net, p.train_state), tests, p)


def _found(
    document: Document,
    field: str,
    path: str,
    beside: Path,
    batch: int | None,
    shapes: Mapping[str, Shape] = MappingProxyType({}),
) -> Net:
    """The net of that path, which a solver's field names. Raises InvalidFile if there is none."""
    places = [Path(path), beside / path] if document.of_caffe else [beside / path, Path(path)]
    result: Path | Net | None = next((place for place in places if zoo.files.there(place)), None)
    if result is None:
        with contextlib.suppress(zoo.NoSuchModel):
            result = zoo.find(path, batch)
    if result is None:
        looked = " and ".join(dict.fromkeys(str(place) for place in places))
        other = beside / Path(path).name  # Caffe's solvers name their nets from the folder where Caffe is run
        hint = f"; there is {other}" if other.is_file() else ""
        document.error((field,), f"there is no net {path} (looked for {looked}){hint}")
        document.check()
    assert result is not None
    return result if isinstance(result, Net) else zoo.files.read(result, batch, document.dropped, True, shapes)


def _tests(
    document: Document, p: SolverParameter, net: Net | None, net_of: Callable[[str, str], Net], batch: int | None
) -> tuple[Net, ...]:
    """The nets to test with, in Caffe's order: those of test_net_param, those of test_net, then `net`, the one for both
    phases, as often as a test_iter is left. Raises InvalidFile unless each has a test_iter, or none, and likewise a
    test_state."""
    if not (p.test_iter or p.test_interval or p.minidnn.test_epochs or p.test_net or p.test_net_param):
        return ()
    given = several(document.data.get("test_net_param", ()), "test_net_param")
    nets = [Net.from_document(document, at, batch) for _, at in given]
    nets += [net_of("test_net", path) for path in p.test_net]
    if net is not None:
        nets += [net] * (len(p.test_iter) - len(nets) if nets else max(len(p.test_iter), 1))
    if not nets:
        document.error(("test_iter",), "there is no net to test with: give test_net, or net instead of train_net", True)
    for field in ("test_iter", "test_state"):
        if (count := len(getattr(p, field))) not in (0, len(nets)) and nets:
            document.error((field,), f"expected one for each of {len(nets)} test nets, got {count}")
    document.check()
    states = p.test_state or [None] * len(nets)
    return tuple(_in_state(one, state) for one, state in zip(nets, states, strict=True))


def _in_state(net: Net, state: NetState | None) -> Net:
    """The net with a solver's state merged into its own, as in Caffe: the stages of both, the solver's level if it has
    one."""
    if state is None:
        return net
    own = net.parameter.state
    return net.with_state(
        NetState(level=state.level if state.has("level") else own.level, stage=own.stage + state.stage)
    )


def _check_names(document: Document) -> None:
    """Add an error to the document for an unknown policy or device: the schema cannot check these names."""
    text = document.data.get("minidnn")
    policy, device = (text.get(field) if isinstance(text, Mapping) else None for field in ("policy", "device"))
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
