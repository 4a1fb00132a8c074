"""The same net, solver or weights in another form: YAML, prototxt, Python, caffemodel, safetensors.

Forms are told by the suffixes of names: FORMS is the table to add one to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from minidnn import onnx, zoo
from minidnn.data import DataError
from minidnn.errors import BadInput, InvalidInput, few
from minidnn.files.replace import replacing, unwritable
from minidnn.layers import LAYERS, ShapeError
from minidnn.layers.rows import Rows, equal, of
from minidnn.nets.net import Net
from minidnn.optimizers import OPTIMIZERS
from minidnn.results.others import Conversion
from minidnn.schema import InvalidFile, SolverParameter, check_solver, dump, in_caffe_s_words, plain, prototext, read
from minidnn.schema.caffe import TYPES
from minidnn.schema.common import OUR_FILLERS, FillerParameter
from minidnn.schema.files import CAFFEMODEL, PROTOTEXT
from minidnn.schema.message import OURS
from minidnn.schema.table import fields
from minidnn.spoken import option
from minidnn.training import caffemodel, tensor_file
from minidnn.training.parameters import WeightsError, by_name
from minidnn.training.snapshot import load_weights

Layout = Mapping[str, Sequence[str]]  # the names of each layer's blobs
Named = Mapping[str, Rows]  # by "<layer>/<blob>"


@dataclass(frozen=True)
class Form:
    """The forms of files with a suffix. None: no net, no solver, or no weights are written, or read.

    net: whether such files hold a net, which zoo/files.py reads"""

    net: bool = False
    net_text: Callable[[Net], str] | None = None
    solver_text: Callable[[SolverParameter], str] | None = None
    weights: Callable[[Path], Mapping[str, Rows]] | None = None
    write_weights: Callable[[Path, Net, Named, Layout], None] | None = None


def convert(
    source: str | Path, target: str | Path, net: str | Path | None = None, dropped: list[str] | None = None
) -> Conversion:
    """Write what the file `source`, or the shipped net of that name, holds to the file `target`; what was written.

    net:     the net whose weights these are, if `source` does not hold it
    dropped: collects the places of unknown fields, which are then ignored; None: unknown fields are errors

    Raises InvalidInput for forms that cannot be converted, InvalidFile, SnapshotError and WeightsError."""
    goal = Path(target)
    to = _form(goal)
    result = zoo.find(source)
    origin = result if isinstance(result, Path) else None
    if why := unwritable(goal, goal.suffix):
        raise InvalidInput(f"{goal}: {why}")
    if origin and goal.exists() and zoo.files.parts(origin)[0].samefile(goal):
        raise InvalidInput(f"{source} and {target} are the same file")
    form = _form(origin) if origin else FORMS[".yaml"]
    if to.write_weights and (form.weights or not to.net_text):
        return _weights(origin or Path(source), goal, form, to, net, dropped)
    if origin and form.solver_text and _is_solver(origin):
        return _solver(origin, goal, to, dropped)
    if not form.net or to.net_text is None:
        raise InvalidInput(f"{source} contains no net, so it cannot become a {goal.suffix}")
    made = result if isinstance(result, Net) else zoo.files.read(result, dropped=dropped)
    _write(goal, to.net_text(made))
    notes = [*made.notes, *_foreign(made.parameter, goal)]
    return Conversion(file=str(target), what="net", name=made.name or "", count=len(made.layers), notes=notes)


def _form(path: Path) -> Form:
    suffix = zoo.files.parts(path)[0].suffix
    if suffix not in FORMS:
        raise InvalidInput(f"{path}: expected a name that ends in {', '.join(FORMS)}")
    return FORMS[suffix]


def _write(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text)


def _is_solver(path: Path) -> bool:
    data = read(path).data
    return isinstance(data, Mapping) and not data.keys() & {"layer", "layers", "input"}


def _solver(path: Path, goal: Path, to: Form, dropped: list[str] | None) -> Conversion:
    if to.solver_text is None:
        raise InvalidInput(f"{path} is a solver; a solver can be written as .yaml or .prototxt")
    document = read(path)
    document.dropped = dropped
    solver = check_solver(document, LAYERS, OPTIMIZERS)
    _write(goal, to.solver_text(solver))
    notes = list(_foreign(solver, goal))
    kept = solver.snapshot or solver.snapshot_prefix
    if kept and to is not _PROTOTXT and in_caffe_s_words(document, solver) is not solver:
        notes.append(
            "snapshots will be safetensors; snapshot_format: BINARYPROTO, a .prototxt's default, keeps Caffe's"
        )
    return Conversion(file=str(goal), what="solver", name=solver.net or "", count=len(plain(solver)), notes=notes)


def _weights(
    path: Path, goal: Path, form: Form, to: Form, net: str | Path | None, dropped: list[str] | None
) -> Conversion:
    if form.weights is None:
        raise InvalidInput(
            f"{path} contains no weights, so it cannot become a {goal.suffix}: name a weights file, and {option('net')}"
        )
    if net is None and not form.net:
        raise InvalidInput(
            f"{path}: a {goal.suffix} needs the net that the weights belong to: give {option('net', 'NET')}"
        )
    net = path if net is None else net
    result = zoo.find(net)
    if isinstance(result, Path) and not _form(result).net:
        raise InvalidInput(f"{net} contains no net")
    made = result if isinstance(result, Net) else zoo.files.read(result, dropped=dropped)
    blobs = _blobs(made)
    shapes = {layer: {blob.name: blob.shape for blob in its} for layer, its in blobs.items()}
    given = {key: of(values) for key, values in by_name(form.weights(path), shapes).items()}
    weights: dict[str, Rows] = {}
    for layer, its in blobs.items():
        for blob in its:
            values = given.get(f"{layer}/{blob.name}", given.get(blob.saved))
            if values is None:
                raise WeightsError(f"{path}: these are not the weights of {net}: it has no {layer}/{blob.name}")
            if values.shape != blob.shape:
                what = f"{layer}/{blob.name} has shape {values.shape}, in {net} it has {blob.shape}"
                raise WeightsError(f"{path}: {what}")
            first = weights.setdefault(blob.saved, values)
            if first is not values and not equal(values, first):  # one with NaN equals nothing
                what = f"{blob.saved} and {layer}/{blob.name} are one parameter, but have different values"
                raise WeightsError(f"{path}: {what}")
    assert to.write_weights is not None
    layout = {layer: [blob.saved for blob in its] for layer, its in blobs.items()}
    to.write_weights(goal, made, weights, layout)
    unused = sorted(given.keys() - {f"{layer}/{name}" for layer, its in shapes.items() for name in its})
    notes = [f"not in {net}, left out: {few(unused)}"] if unused else []
    return Conversion(file=str(goal), what="weights", name=made.name or "", count=len(weights), notes=notes)


@dataclass(frozen=True)
class _Blob:
    name: str
    shape: tuple[int, ...]  # Caffe's
    saved: str  # its name in files of ours; layers that share it have one


def _blobs(net: Net) -> dict[str, list[_Blob]]:
    """The blobs of each layer in both phases. A phase that cannot be resolved is left out, unless none can."""
    result: dict[str, list[_Blob]] = {}
    errors: list[BadInput] = []
    for phase in ("TRAIN", "TEST"):
        try:
            for node in net.graph(phase).layers:
                if node.parameters:
                    result[node.name] = [
                        _Blob(p.name, p.blob_shape or p.shape, "/".join(node.tensor_name(p).rsplit(".", 1)))
                        for p in node.parameters
                    ]
        except (InvalidFile, ShapeError, DataError) as error:
            errors.append(error)
    if not result and errors:
        raise errors[0]
    return result


# -- what Caffe does not know --------------------------------------------------------------------------------


def _foreign(message: BaseModel, goal: Path) -> Iterator[str]:
    """A sentence about the fields and types in a prototxt that Caffe lacks."""
    if goal.suffix not in PROTOTEXT:
        return
    names = sorted(set(_ours(message)))
    if names:
        yield f"Caffe does not know {few(names, 20)}: it will refuse the file"


def _ours(message: BaseModel) -> Iterator[str]:
    known = fields(type(message))
    for name in message.model_fields_set:
        value = getattr(message, name)
        if name not in known or (known[name].number or OURS) >= OURS:
            yield name
            continue
        if name == "type" and "bottom" in known and value not in TYPES:
            yield f"layer type {value}"
        if name == "type" and isinstance(message, FillerParameter) and value in OUR_FILLERS:
            yield f"filler {value}"
        for item in value if isinstance(value, list | tuple) else (value,):
            if isinstance(item, BaseModel):
                yield from _ours(item)


# -- the forms -----------------------------------------------------------------------------------------------


def _write_caffemodel(path: Path, net: Net, weights: Named, layout: Layout) -> None:
    layers = {layer: [weights[name] for name in names] for layer, names in layout.items()}
    with replacing(path, "wb") as file:
        for piece in caffemodel.pieces(net.parameter, layers):
            file.write(piece)


def _write_safetensors(path: Path, net: Net, weights: Named, layout: Layout) -> None:
    with replacing(path, "wb") as file:
        tensor_file.write(file, weights)


def _onnx_weights(path: Path) -> Named:
    return {name: of(values) for name, values in onnx.read(path, notes=[])[1].items()}


def _write_onnx(path: Path, net: Net, weights: Named, layout: Layout) -> None:
    onnx.write(net, {name: values.whole() for name, values in weights.items()}, path)


def _yaml(message: SolverParameter) -> str:
    return dump(plain(message))


_YAML = Form(net=True, net_text=Net.to_yaml, solver_text=_yaml)
_PROTOTXT = Form(net=True, net_text=Net.to_prototxt, solver_text=prototext.dump)
FORMS: dict[str, Form] = {
    ".yaml": _YAML,
    ".yml": _YAML,
    **dict.fromkeys(PROTOTEXT, _PROTOTXT),
    ".py": Form(net=True, net_text=Net.to_python),
    CAFFEMODEL: Form(net=True, weights=load_weights, write_weights=_write_caffemodel),
    ".onnx": Form(net=True, weights=_onnx_weights, write_weights=_write_onnx),
    tensor_file.SUFFIX: Form(weights=load_weights, write_weights=_write_safetensors),
}
