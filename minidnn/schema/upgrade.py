"""From the forms of old Caffe files to the present ones, as Caffe upgrades them: on plain values, before any check.

V1 layers (schema/old.py), `concat_dim` and `slice_dim`, a Data layer's transformation within `data_param`, the three
`param` of a BatchNorm, `solver_type`, and what forks say in other words (schema/forks.py; `ceil_mode` of a Pooling).
Values that move keep their places in the file. A value that has not the expected form is left as it is, for the checks
to refuse. (The `input` of a net becomes a layer in schema/checks.py.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minidnn.schema import old
from minidnn.schema.document import Document, Path_
from minidnn.schema.forks import converted
from minidnn.schema.naming import named
from minidnn.schema.refused import V0

RENAMED = {("concat_param", "concat_dim"): "axis", ("slice_param", "slice_dim"): "axis"}
SPECS = {"param": "name", "blob_share_mode": "share_mode", "blobs_lr": "lr_mult", "weight_decay": "decay_mult"}
SOLVERS = {
    "SGD": "SGD", "NESTEROV": "Nesterov", "ADAGRAD": "AdaGrad", "RMSPROP": "RMSProp", "ADADELTA": "AdaDelta",
    "ADAM": "Adam",
}  # fmt: skip
LARC = ("larc", "larc_policy", "larc_eta", "larc_turbo")


def upgraded_net(document: Document, data: Mapping[str, Any], at: Path_) -> dict[str, Any]:
    """The net's plain values in the present form. Contradictions become errors of the document."""
    net = dict(data)
    if "layers" in net:
        if "layer" in net:
            document.error((*at, "layers"), "layer and layers, the old form, in one file: expected one of them", True)
            return {**net, "layer": [], "layers": ()}
        said = net.pop("layers")
        document.rename((*at, "layers"), (*at, "layer"))
        document.old = True
        listed = list(said) if isinstance(said, list | tuple) else [said]
        net["layer"] = [_v1(document, layer, (*at, "layer", i)) for i, layer in enumerate(listed)]
    if "layer" in net:
        said = net["layer"]
        listed = list(said) if isinstance(said, list | tuple) else [said]
        upgraded = [_layer(document, layer, (*at, "layer", i)) for i, layer in enumerate(listed)]
        net["layer"] = converted(document, upgraded, (*at, "layer")) if document.of_caffe else upgraded
    return net


def upgraded_solver(document: Document, data: Mapping[str, Any]) -> dict[str, Any]:
    """The solver's plain values in the present form."""
    solver = dict(data)
    if isinstance(kind := solver.get("solver_type"), str) and kind in SOLVERS:
        del solver["solver_type"]
        if "type" in solver:
            document.error(("solver_type",), "type and solver_type, its old form: expected one of them", True)
        else:
            solver["type"] = SOLVERS[kind]
            document.place_as(("type",), ("solver_type",))
    if not solver.get("larc"):  # NVCaffe's: without it the others say nothing
        solver = {field: value for field, value in solver.items() if field not in LARC}
    if document.of_caffe:
        _no_tests(solver)
    return solver


def _no_tests(solver: dict[str, Any]) -> None:
    """Take out the tests of a solver whose test_iter are all 0."""
    counts = solver.get("test_iter")
    listed = counts if isinstance(counts, list | tuple) else [counts]
    if listed and all(type(count) is int and count == 0 for count in listed):
        for field in ("test_iter", "test_interval", "test_net", "test_state"):
            solver.pop(field, None)


def _v1(document: Document, data: Any, at: Path_) -> Any:
    if not isinstance(data, Mapping):
        return data
    layer = dict(data)
    if "layer" in layer:
        document.error((*at, "layer"), V0, True)
        document.check()  # all its layers are so: once is enough
    if isinstance(kind := layer.get("type"), str):
        if kind in old.TYPES:
            layer["type"] = old.TYPES[kind]
        elif kind in old.TYPES.values():
            document.error(
                (*at, "type"), f"in layers, the old form, a type is a word such as CONVOLUTION; got {kind!r}"
            )
    specs: list[dict[str, Any]] = []
    for field, name in SPECS.items():
        said = layer.pop(field, None)
        for i, value in enumerate(said if isinstance(said, list | tuple) else () if said is None else (said,)):
            specs += [{} for _ in range(i + 1 - len(specs))]
            specs[i][name] = value
            document.place_as((*at, "param", i, name), (*at, field, i))
    if specs:
        layer["param"] = specs
    return layer


def _layer(document: Document, data: Any, at: Path_) -> Any:
    if not isinstance(data, Mapping):
        return data
    layer = named(data) if document.of_caffe else dict(data)
    for (message, before), after in RENAMED.items():
        given = layer.get(message)
        if isinstance(given, Mapping) and before in given:
            if after in given:
                document.error(
                    (*at, message, before), f"{after} and {before}, its old name: expected one of them", True
                )
            layer[message] = {**{k: v for k, v in given.items() if k != before}, after: given[before]}
            document.place_as((*at, message, after), (*at, message, before))
    given = layer.get("pooling_param")
    if isinstance(given, Mapping) and isinstance(ceil := given.get("ceil_mode"), bool):
        if "round_mode" in given:
            what = "round_mode and ceil_mode, a fork's name: expected one of them"
            document.error((*at, "pooling_param", "ceil_mode"), what, True)
        rest = {k: v for k, v in given.items() if k != "ceil_mode"}
        layer["pooling_param"] = {**rest, "round_mode": "CEIL" if ceil else "FLOOR"}
    param = {"Data": "data_param", "ImageData": "image_data_param"}.get(str(layer.get("type")), "")
    if isinstance(layer.get(param), Mapping):
        _move_transform(document, layer, at, param)
    if layer.get("type") == "BatchNorm" and _frozen(layer.get("param")):
        del layer["param"]
    return layer


def _frozen(specs: Any) -> bool:
    """Whether these are the `param` of old files, at most three, which say that the running sums do not learn."""
    listed = specs if isinstance(specs, list | tuple) else [specs]
    if not 1 <= len(listed) <= 3:
        return False
    return all(isinstance(spec, Mapping) and spec.get("lr_mult") == 0 and not spec.get("name") for spec in listed)


def _move_transform(document: Document, layer: dict[str, Any], at: Path_, param: str) -> None:
    """Move the transformation of old files from a layer's `param` to its transform_param."""
    given = layer[param]
    moved = {k: given[k] for k in ("scale", "mirror", "crop_size", "mean_file") if k in given}
    transform = layer.get("transform_param", {})
    if not moved or not isinstance(transform, Mapping):
        return
    layer[param] = {k: v for k, v in given.items() if k not in moved}
    layer["transform_param"] = {**moved, **transform}
    for field in moved:
        if field in transform:
            document.error((*at, param, field), "given in transform_param, too: expected one of them", True)
        else:
            document.place_as((*at, "transform_param", field), (*at, param, field))
