"""Nets whose data are not here. A shape is enough to plan them: what a layer makes of any image, or a given one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from minidnn.errors import InvalidInput
from minidnn.layers import LAYERS
from minidnn.layers.base import Shape, Shapes
from minidnn.layers.source import Data, Input
from minidnn.schema import LayerParameter, NetParameter
from minidnn.schema.sources import WINDOWS
from minidnn.spoken import option


def with_shapes(parameter: NetParameter, shapes: Mapping[str, Shape], batch: int | None = None) -> NetParameter:
    """The net with tops of these shapes, of layers that give data: inputs of these shapes are in their place. Their
    other tops are as the layer lists them, else labels, one for each sample. A layer of phase TEST alone keeps a batch
    size of its own.

    batch: for all, in place of the shapes'

    Raises InvalidInput if tops of one layer, which are samples and their labels, are not equally many."""
    layers = (_with_shapes(layer, shapes, batch) for layer in parameter.layer)
    return parameter.model_copy(update={"layer": tuple(layers)})


def _with_shapes(layer: LayerParameter, shapes: Mapping[str, Shape], batch: int | None) -> LayerParameter:
    said = {top: shapes[top] for top in layer.top if top in shapes}
    if not _gives(layer) or not said:
        return layer
    listed, own = _listed(layer), getattr(getattr(layer, str(LAYERS[layer.type].field_name)), "batch_size", None)
    if not listed and len({shape[0] for shape in said.values()}) > 1:
        texts = " and ".join(option("shape", f"{top}={','.join(map(str, shape))}") for top, shape in said.items())
        raise InvalidInput(f"{texts}: samples and labels of layer {layer.name!r} are equally many")
    tested = any(rule.phase == "TEST" for rule in layer.include) or any(r.phase == "TRAIN" for r in layer.exclude)
    n = batch or (own if own and tested else next(iter(said.values()))[0])
    given = {top: said.get(top) or (n, *listed.get(top, ())[1:]) for top in layer.top}
    dims = [shape if listed and not batch else (n, *shape[1:]) for shape in given.values()]
    kept = {field: getattr(layer, field) for field in ("name", "top", "include", "exclude", "param")}
    inputs = {"type": "Input", "input_param": {"shape": [{"dim": dim} for dim in dims]}}
    return LayerParameter.model_validate({**{k: v for k, v in kept.items() if v}, **inputs})


def _listed(layer: LayerParameter) -> dict[str, Shape]:
    """The shapes of the layer's tops, if it is one that lists them, such as Input; else none."""
    kind = LAYERS[layer.type]
    if not issubclass(kind, Input):
        return {}
    shapes = kind(layer, getattr(layer, str(kind.field_name)), "TRAIN").shapes([])
    return dict(zip(layer.top, shapes, strict=True))


def tops(parameter: NetParameter) -> list[str]:
    """The tops that `with_shapes` can shape."""
    return list(dict.fromkeys(top for layer in parameter.layer if _gives(layer) for top in layer.top))


def _gives(layer: LayerParameter) -> bool:
    kind = LAYERS[layer.type]
    return kind.inputs and kind.bottoms == (0, 0)


def _absent(layer: LayerParameter, shapes_of: Shapes) -> bool:
    """Whether the layer reads from sources, and cannot."""
    from minidnn.data import DataError

    kind = LAYERS[layer.type]
    try:
        for source in kind(layer, getattr(layer, kind.field_name or "", None), "TRAIN").sources:
            shapes_of(*source, "TRAIN")
    except DataError:
        return True
    return False


def without_data(parameter: NetParameter, shapes_of: Shapes) -> tuple[NetParameter, dict[str, str]]:
    """(the net, {source: shape}) where sources that cannot be read give made-up images, if their layer makes images of
    one size."""
    layers, replaced = [], {}
    for layer in parameter.layer:
        shape = _made(layer)
        if shape and _absent(layer, shapes_of):
            kind: Any = LAYERS[layer.type]
            replaced[getattr(layer, kind.field_name).source] = shape
            layer = kind.made_up(layer, f"{shape}:classes=1000")
            transform = layer.transform_param.model_copy(update={"mean_file": ""})
            layer = layer.model_copy(update={"transform_param": transform})
        layers.append(layer)
    return parameter.model_copy(update={"layer": tuple(layers)}), replaced


def _made(layer: LayerParameter) -> str:
    """The shape of the images that the layer makes of any, CxHxW; empty if that depends on them."""
    kind = LAYERS[layer.type]
    if not issubclass(kind, Data):
        return ""
    _, change = kind(layer, getattr(layer, str(kind.field_name)), "TRAIN").source
    sides = (change.crop_size,) * 2 if change.crop_size else change.resize
    return f"{len(change.mean_value) or (1 if _grey(layer) else 3)}x{sides[0]}x{sides[1]}" if len(sides) == 2 else ""


def _grey(layer: LayerParameter) -> bool:
    """Whether the layer makes images of one channel of any."""
    if layer.image_data_param is not None:
        return not layer.image_data_param.is_color
    return layer.transform_param.force_gray


def remedies(parameter: NetParameter, shapes_of: Shapes) -> Iterator[tuple[str, str]]:
    """(a top, the form of its shape) of each layer whose data are not here, and whose shape does not follow. Letters
    stand for numbers that only the data tell."""
    for layer in parameter.layer:
        kind = LAYERS[layer.type]
        if not kind.inputs or _made(layer) or not _absent(layer, shapes_of):
            continue
        param, change = getattr(layer, str(kind.field_name)), layer.transform_param
        channels = len(change.mean_value) if len(change.mean_value) > 1 else 1 if _grey(layer) else "C"
        images = issubclass(kind, Data)
        if images and WINDOWS.match(getattr(param, "source", "")):
            yield layer.top[0], f"{param.batch_size},T"
            continue
        for top in layer.top[:1] if images else (top for top in layer.top if top != "label"):
            yield top, f"{param.batch_size},{f'{channels},H,W' if images else 'K'}"
