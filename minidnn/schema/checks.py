"""From a document's plain values to checked messages; all errors of a file are collected on the way.

The schema may not import the layers, so callers hand in the layer types (`types`: name -> layer class). It reads these
attributes of a class: `bottoms`, `tops`, `unnamed`, `in_place`, `field_name` (the type's message), `needs` (required
fields of it), `also` (further messages that the type takes) and `message` (the model of a message that is not in the
schema). Callers also hand in the optimizers (`optimizers`: type -> class); the schema uses their `fields` and
`problems`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from minidnn.errors import near
from minidnn.schema.caffe import LayerParameter, NetParameter
from minidnn.schema.common import NetState
from minidnn.schema.document import Document, Path_
from minidnn.schema.elsewhere import no_type
from minidnn.schema.files import read
from minidnn.schema.naming import one_name_each
from minidnn.schema.refused import TYPES_NOT_DONE
from minidnn.schema.solver import IN_EPOCHS, SolverParameter
from minidnn.schema.table import present
from minidnn.schema.upgrade import upgraded_net, upgraded_solver
from minidnn.schema.validation import checked, is_mapping, messages, model_of, unknown_field

PHASES = ("TRAIN", "TEST")
Types = Mapping[str, Any]


@dataclass(frozen=True)
class CheckedNet:
    """A net without errors; `paths[i]` is the path of layer i in the document, and `at` that of the net."""

    parameter: NetParameter
    document: Document
    paths: tuple[Path_, ...]
    at: Path_ = ()


def check_net(document: Document, types: Types, at: Path_ = ()) -> CheckedNet:
    """The net in a document, or in its field `at`. Raises InvalidFile with all errors of the document."""
    data = document.data
    for part in at:
        data = data[part]
    checked = _net(document, data, at, types)
    document.check()
    assert checked is not None
    return checked


def load_net(path: str | Path, types: Types, dropped: list[str] | None = None) -> CheckedNet:
    """The net in a file. Raises InvalidFile with all errors, and OSError if the file cannot be read.

    dropped: gets the unknown fields, which then are ignored; None: they are errors"""
    document = read(path)
    document.dropped = dropped
    return check_net(document, types)


def check_solver(document: Document, types: Types, optimizers: Types) -> SolverParameter:
    """The solver in a document, with its inline net if any. Raises InvalidFile with all errors of the document."""
    data = document.data
    if not is_mapping(document, data, (), "a solver's fields"):
        document.check()
    data = upgraded_solver(document, data)
    document.replace((), data)
    given = dict(data)
    inline: dict[str, Any] = {}
    for field in ("net_param", "train_net_param"):
        if field in given and (net := _net(document, given.pop(field), (field,), types)):
            inline[field] = net.parameter
    if "test_net_param" in given:
        result = [
            _net(document, item, at, types) for item, at in several(given.pop("test_net_param"), "test_net_param")
        ]
        inline["test_net_param"] = tuple(net.parameter for net in result if net)
    solver = checked(document, SolverParameter, given, ())
    sources = "net", "net_param", "train_net", "train_net_param"
    named = [key for key in sources if data.get(key) is not None]
    if len(named) > 1:
        what = f"expected one of {', '.join(sources[:-1])} and {sources[-1]}"
        document.error((named[1],), f"{what}; got {' and '.join(named)}", True)
    if solver and solver.has("device_id") and not document.of_caffe:
        what = f"Caffe's; write the GPU's number as `minidnn: {{device: cuda:{solver.device_id}}}`"
        document.error(("device_id",), what, True)
    if solver:
        _optimizer_fields(document, solver, optimizers)
    if solver and not document.count:
        _policy_fields(document, solver)
    document.check()
    assert solver is not None
    return solver.model_copy(update=inline)


def in_caffe_s_words(document: Document, solver: SolverParameter) -> SolverParameter:
    """The solver as it runs: of a file of Caffe's the snapshots are Caffe's, too, unless it says otherwise."""
    if not document.of_caffe or solver.has("snapshot_format"):
        return solver
    return solver.model_copy(update={"snapshot_format": "BINARYPROTO"})


def several(value: Any, field: str) -> list[tuple[Any, Path_]]:
    """The values of a repeated field, each with its path; one alone need not be in a list."""
    if not isinstance(value, list | tuple):
        return [(value, (field,))]
    return [(item, (field, i)) for i, item in enumerate(value)]


def load_solver(path: str | Path, types: Types, optimizers: Types) -> SolverParameter:
    """The solver in a file. Raises InvalidFile with all errors, and OSError if the file cannot be read."""
    return check_solver(read(path), types, optimizers)


# fields that only some optimizers read
_OPTIMIZER_FIELDS = ("momentum", "momentum2", "rms_decay", "delta", "trust_coefficient")


def _default(field: str) -> Any:
    return SolverParameter.model_fields[field].default


def _optimizer_fields(document: Document, solver: SolverParameter, optimizers: Types) -> None:
    optimizer = optimizers.get(solver.type)
    if optimizer is None:
        there = ", ".join(optimizers)
        document.error(
            ("type",), f"there is no optimizer {solver.type!r}{near(solver.type, optimizers)}; there are {there}"
        )
        return
    for field in _OPTIMIZER_FIELDS:
        if solver.has(field) and field not in optimizer.fields and getattr(solver, field) != _default(field):
            reads = f"it reads {' and '.join(optimizer.fields)}" if optimizer.fields else "it reads none of its kind"
            document.error((field,), f"is not for type {solver.type}; {reads}", True)
    for field, problem in optimizer.problems(solver):
        document.error((field,), problem)


_POLICY_FIELDS = {
    "step": ("gamma", "stepsize"),
    "exp": ("gamma",),
    "inv": ("gamma", "power"),
    "multistep": ("gamma", "stepvalue"),
    "poly": ("power", "max_iter"),
    "cosine": ("max_iter",),
    "sigmoid": ("gamma", "stepsize"),
}


def _policy_fields(document: Document, solver: SolverParameter) -> None:
    for field in _POLICY_FIELDS.get(solver.lr_policy, ()):
        if field == "max_iter" and solver.minidnn.epochs:
            continue
        if not solver.has(field) or getattr(solver, field) == ():  # a list of nothing is as good as none
            document.error(("lr_policy",), f"{solver.lr_policy} needs {field}, which is not given")
    if solver.has("rampup_lr") and not solver.rampup_interval:
        document.error(("rampup_lr",), "needs rampup_interval, which is not given")
    if solver.has("stepsize") and not solver.stepsize:
        document.error(("stepsize",), "expected at least 1, got 0")
    if list(solver.stepvalue) != sorted(solver.stepvalue):
        document.error(("stepvalue",), f"expected ascending numbers, got {list(solver.stepvalue)}")
    if solver.test_interval and not solver.test_iter:
        document.error(("test_interval",), "needs test_iter, which is not given")
    if solver.minidnn.patience and not solver.minidnn.keep_best:
        document.error(("minidnn", "patience"), "needs keep_best, which names the output that is to get better", True)
    for field, ours in IN_EPOCHS.items():
        if solver.has(field) and getattr(solver.minidnn, ours):
            document.error(("minidnn", ours), f"expected {field} or minidnn's {ours}; got both", True)


# -- nets ----------------------------------------------------------------------------------------------------


def _net(document: Document, data: Any, at: Path_, types: Types) -> CheckedNet | None:
    if not is_mapping(document, data, at, "a net's fields, such as name and layer"):
        return None
    before = document.count
    data = upgraded_net(document, data, at)
    document.replace(at, data)
    given = dict(data)
    said = given.pop("layer", None)
    listed = said if isinstance(said, list | tuple) else [] if said is None else [said]
    net = checked(document, NetParameter, given, at)
    layers = _named_tops([_layer(document, item, (*at, "layer", i), types) for i, item in enumerate(listed)], types)
    if document.of_caffe:
        layers = one_name_each(document, layers, at, net.state if net else NetState())
    paths: list[Path_] = [(*at, "layer", i) for i in range(len(layers))]
    if net and net.input:
        layers.insert(0, _upgraded(document, net, at))
        paths.insert(0, (*at, "input"))
    elif net and (net.input_dim or net.input_shape):
        document.error((*at, "input_dim" if net.input_dim else "input_shape"), "is given without input", True)
    if not layers:
        document.error(at, "expected a net with layers, got none")
    read = layers[len(layers) - len(listed) :]
    unread = {top for item, layer in zip(listed, read, strict=True) if not layer for top in _tops(item)}
    unread |= set(net.input) if net else set()
    known = [(layer, path) for layer, path in zip(layers, paths, strict=True) if layer]
    _wiring(document, known, types, net.state if net else NetState(), unread)
    if net is None or document.count > before:
        return None
    empty: dict[str, Any] = {"input": (), "input_dim": (), "input_shape": ()}
    parameter = net.model_copy(update={"layer": tuple(layer for layer, _ in known), **empty})
    parameter.model_fields_set.difference_update(empty)
    return CheckedNet(parameter, document, tuple(paths), at)


def _named_tops(layers: list[LayerParameter | None], types: Types) -> list[LayerParameter | None]:
    """The layers, with a name for a top that a file may leave out. That is the layer's own; or if another blob has it,
    the first of NAME_2, NAME_3, ... that is free."""
    blobs = {blob for layer in layers if layer for blob in (*layer.top, *layer.bottom)}
    taken = blobs | {layer.name for layer in layers if layer}

    def named(layer: LayerParameter) -> LayerParameter:
        name = layer.name
        if name in blobs:
            name = next(other for i in count(2) if (other := f"{layer.name}_{i}") not in taken)
        return layer.model_copy(update={"top": (name,)})

    return [named(x) if x and not x.top and getattr(types[x.type], "unnamed", False) else x for x in layers]


def _tops(item: Any) -> list[str]:
    """The tops of a layer that has errors, so that other layers that read them get no errors of their own."""
    top = item.get("top", item.get("name")) if isinstance(item, Mapping) else None
    return [t for t in (top if isinstance(top, list | tuple) else [top]) if isinstance(t, str)]


def _upgraded(document: Document, net: NetParameter, at: Path_) -> LayerParameter | None:
    """The Input layer that Caffe makes from a net's old `input` fields; None after an error."""
    if net.input_dim and net.input_shape:
        document.error((*at, "input_shape"), "expected input_dim or input_shape, got both", True)
        return None
    dims = [list(net.input_dim[i : i + 4]) for i in range(0, len(net.input_dim), 4)]
    dims = dims or [list(shape.dim) for shape in net.input_shape]
    if len(dims) != len(net.input) or any(not d for d in dims) or len(net.input_dim) % 4:
        form = "4 input_dim per input" if net.input_dim else "one input_shape per input"
        got = len(net.input_dim) if net.input_dim else len(net.input_shape)
        document.error((*at, "input"), f"expected {form}, got {len(net.input)} inputs and {got}", True)
        return None
    return LayerParameter.model_validate(
        {"name": "input", "type": "Input", "top": list(net.input),
         "input_param": {"shape": [{"dim": d} for d in dims]}}
    )  # fmt: skip


def _layer(document: Document, data: Any, at: Path_, types: Types) -> LayerParameter | None:
    """The layer; without its messages if it has errors, None if its type or its names are unknown."""
    if not is_mapping(document, data, at, "a layer's fields, such as name and type"):
        return None
    before = document.count
    kind = data.get("type")
    known = isinstance(kind, str) and kind in types
    if isinstance(kind, str) and not known:
        document.error((*at, "type"), no_type(kind, types))
        if kind in TYPES_NOT_DONE:
            return None
    own = {c.field_name: c.message for c in types.values() if getattr(c, "message", None)}
    own = {f: model for f, model in own.items() if f not in messages()}
    takes = _takes(types[kind]) if known else ()
    given, extra = dict(data), {}
    for field in list(given):
        if field in own or field in messages():
            refused = known and field in getattr(types[kind], "refuses", ())
            if (
                known and field not in takes and document.of_caffe and not refused
            ):  # Caffe reads the type's own message alone
                document.note((*at, field), f"is not for layer type {kind}: ignored, as Caffe does")
                del given[field]
            elif known and field not in takes:
                what = f"it takes {' and '.join(takes)}" if takes else "it takes no message"
                document.error((*at, field), f"is not for layer type {kind}; {what}", True)
                del given[field]
            elif field in own:
                extra[field] = checked(document, own[field], given.pop(field), (*at, field))
        elif field not in LayerParameter.model_fields:
            models = {f: message_of(types[kind], f) for f in takes}
            home = next((f for f, model in models.items() if present(model, field)), None)
            names = [f for f in (*LayerParameter.model_fields, *own) if f not in messages() or f in takes or not known]
            if home:
                document.error((*at, field), f"belongs into {home}", True)
            else:
                unknown_field(document, (*at, field), "LayerParameter", field, names)
            del given[field]
    for field in takes:  # a message that is left out is checked, too, for its required fields
        if field not in data and field in own:
            extra[field] = checked(document, own[field], {}, (*at, field))
        elif field not in own and given.get(field) is None and LayerParameter.model_fields[field].default is None:
            given[field] = checked(document, message_of(types[kind], field), data.get(field, {}), (*at, field))
    for name in getattr(types[kind], "needs", ()) if known else ():
        message = data.get(types[kind].field_name, {})
        if isinstance(message, Mapping) and name not in message:
            document.error((*at, types[kind].field_name, name), "required, but not given", True)
    if data.get("include") and data.get("exclude"):
        document.error((*at, "exclude"), "expected include or exclude, got both", True)
    layer = checked(document, LayerParameter, {**given, **extra}, at)
    if not known:
        return None
    return layer if document.count == before else _bare(given)


def _bare(values: Mapping[str, Any]) -> LayerParameter | None:
    """A layer that has errors, with only those fields that its neighbours depend on; None if these are wrong, too."""
    try:
        fields = ("name", "type", "bottom", "top", "include", "exclude")
        return LayerParameter.model_validate({f: values[f] for f in fields if f in values})
    except ValidationError:
        return None


def message_of(kind: Any, field: str) -> type[BaseModel]:
    """The model of one of the messages that a layer class takes. Raises TypeError if there is none."""
    own = getattr(kind, "message", None) if field == kind.field_name else None
    model = model_of(LayerParameter, field) if field in messages() else own
    if model is None:
        raise TypeError(f"layer type {kind.type}: there is no message {field!r}; give the class its own as `message`")
    return model


def _takes(kind: Any) -> tuple[str, ...]:
    field = getattr(kind, "field_name", None)
    return (*((field,) if field else ()), *getattr(kind, "also", ()))


# -- the wiring of layers ------------------------------------------------------------------------------------


def _wiring(
    document: Document,
    layers: Sequence[tuple[LayerParameter, Path_]],
    types: Types,
    state: NetState,
    unread: Collection[str],
) -> None:
    """Add an error to the document for each problem between layers, in either phase.

    One problem is no error yet: a missing blob that an earlier layer makes in another phase or stage. A net to train
    need not be a net to test, so this becomes an error only when that phase is used.

    unread: the tops of layers that have errors; layers that need them get no error for that
    """
    first: dict[str, int] = {}
    for i, (layer, _) in enumerate(layers):
        for top in layer.top:
            first.setdefault(top, i)
    place = {id(layer): i for i, (layer, _) in enumerate(layers)}
    for phase in PHASES:
        for problem in wiring(layers, types, phase, state, unread):
            if not problem.missing or first.get(problem.missing, len(layers)) >= place[id(problem.layer)]:
                document.error(problem.path, problem.message)


@dataclass(frozen=True)
class Problem:
    """An error of a layer that does not fit the others, with the path of the wrong field."""

    path: Path_
    layer: LayerParameter
    message: str
    missing: str = ""  # the blob that no earlier layer makes, if that is the problem


def wiring(
    layers: Iterable[tuple[LayerParameter, Path_]],
    types: Types,
    phase: str,
    state: NetState,
    unread: Collection[str] = (),
) -> list[Problem]:
    """The problems between the layers of one phase: names, numbers of bottoms and tops, blobs that no layer makes.

    unread: the tops of layers that have errors; they count as made"""
    problems: list[Problem] = []
    names: set[str] = set()
    makers: dict[str, str] = {}  # blob -> the layer that made it first
    given: dict[tuple[str, str], tuple[float, str]] = {}  # multiplier of a named parameter -> its value, by which layer
    for layer, path in layers:
        if not layer.included(phase, state):
            continue
        kind = types[layer.type]

        def wrong(
            *field: str | int, what: str, missing: str = "", path: Path_ = path, layer: LayerParameter = layer
        ) -> None:
            problems.append(Problem((*path, *field), layer, what, missing))

        if layer.name in names:
            wrong("name", what=f"another layer is called {layer.name!r} in the same phase")
        names.add(layer.name)
        for i, name in enumerate(layer.bottom):
            if name not in makers and name not in unread:
                hint = near(name, makers) or (f"; there are {_some(makers)}" if makers else "; nothing is before it")
                wrong("bottom", i, what=f"no layer before this one makes blob {name!r}{hint}", missing=name)
        for field, (least, most) in (("bottom", kind.bottoms), ("top", kind.tops)):
            n = len(getattr(layer, field))
            if n < least or (most is not None and n > most):
                wrong(field, what=f"{layer.type} takes {_range(least, most)}, got {n}")
        for i, top in enumerate(layer.top):
            if top in layer.bottom:
                if not kind.in_place:
                    wrong("top", i, what=f"{layer.type} cannot work in place on {top!r}; name another top")
            elif top in makers:
                wrong("top", i, what=f"blob {top!r} is made already, by layer {makers[top]!r}")
            makers.setdefault(top, layer.name)
        for i, spec in enumerate(layer.param):
            if spec.name and spec.name in (other.name for other in layer.param[:i]):
                wrong("param", i, "name", what=f"another parameter of the layer is called {spec.name!r}")
            for field in ("lr_mult", "decay_mult") if spec.name else ():
                mine = getattr(spec, field), layer.name
                value, by = given.setdefault((spec.name, field), mine) if spec.has(field) else mine
                if value != mine[0]:
                    what = f"layer {by!r} shares {spec.name!r} and gives it {value:g}, got {mine[0]:g}"
                    wrong("param", i, field, what=f"{what}; give one of both, or the same")
        if len(layer.loss_weight) > max(len(layer.top), 1):
            wrong("loss_weight", what=f"expected at most one per top, {len(layer.top)}; got {len(layer.loss_weight)}")
        if layer.propagate_down and len(layer.propagate_down) != len(layer.bottom):
            what = f"expected one per bottom, {len(layer.bottom)}; got {len(layer.propagate_down)}"
            wrong("propagate_down", what=what)
    return problems


def _range(least: int, most: int | None) -> str:
    """A range in a message: "2", "1 to 2" or "at least 1"."""
    if most is None:
        return f"at least {least}"
    return str(least) if least == most else f"{least} to {most}"


def _some(names: Iterable[str]) -> str:
    """The last eight names, and how many come before them."""
    names = list(names)
    return ", ".join(names) if len(names) <= 8 else f"{', '.join(names[-8:])} and {len(names) - 8} before"
