"""Names of layers in Caffe's files, where a layer may have none, and two may have one. Here a name stands for one layer
of a phase: so a layer without a name gets one, and of two layers the second gets another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from minidnn.schema.caffe import LayerParameter
from minidnn.schema.common import NetState
from minidnn.schema.document import Document, Path_


def named(layer: Mapping[str, Any]) -> dict[str, Any]:
    """The plain values of a layer, which without a name is called after its first top, or its type."""
    top = layer.get("top")
    first = top if isinstance(top, str) else next(iter(top), None) if isinstance(top, list | tuple) else None
    name = first or layer.get("type")
    return {**layer, "name": name} if not layer.get("name") and isinstance(name, str) else dict(layer)


def one_name_each(
    document: Document, layers: Sequence[LayerParameter | None], at: Path_, state: NetState
) -> list[LayerParameter | None]:
    """The layers, where the second one of a name in a phase is called NAME_2, or NAME_3 if there is a NAME_2. The tops
    and all else stay. Layers of different phases share a name, and so their parameters."""
    own = {layer.name for layer in layers if layer}
    taken: dict[str, set[str]] = {"TRAIN": set(), "TEST": set()}
    result: list[LayerParameter | None] = []
    for i, layer in enumerate(layers):
        if layer is None:
            result.append(layer)
            continue
        phases = [taken[phase] for phase in taken if layer.included(phase, state)]
        name = layer.name
        if any(name in names for names in phases):
            numbered = (f"{name}_{k}" for k in count(2))
            name = next(n for n in numbered if n not in own and not any(n in names for names in phases))
            document.note((*at, "layer", i), f"another layer is called {layer.name!r}: this one is {name!r} here")
        for names in phases:
            names.add(name)
        result.append(layer if name == layer.name else layer.model_copy(update={"name": name}))
    return result
