"""Parameters that layers share, because their entries in `param` have one name: siamese nets, tied weights.

As in Caffe, the first layer of the file that has the name owns the parameter and gives its filler. All layers of the
name read one tensor. A multiplier of the learning rate or of the decay holds for all of them if one of them gives it;
schema/checks.py refuses two that differ. An owner may be missing in a phase. Its name stays, so that the parameter is
the same in every phase.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from minidnn.layers.base import Parameter, ShapeError, text
from minidnn.schema import LayerParameter


def owners(layers: Iterable[LayerParameter]) -> dict[str, str]:
    """The first layer, of all phases, for each name of a parameter."""
    result: dict[str, str] = {}
    for layer in layers:
        for entry in layer.param:
            if entry.name:
                result.setdefault(entry.name, layer.name)
    return result


class Sharing:
    """The named parameters of one phase, while its layers are resolved in order."""

    def __init__(self, layers: Sequence[LayerParameter], owners: Mapping[str, str]) -> None:
        """`layers`: those of the phase; `owners`: of the whole file, see above."""
        self._owners = owners
        self._first: dict[str, tuple[str, Parameter]] = {}  # by name: the first layer of the phase, its parameter
        self._given: dict[str, dict[str, float]] = {}  # by name: the multipliers that one of the layers gives
        for entry in (entry for layer in layers for entry in layer.param if entry.name):
            given = self._given.setdefault(entry.name, {})
            for field in ("lr_mult", "decay_mult"):
                if entry.has(field):
                    given.setdefault(field, getattr(entry, field))

    def resolved(self, layer: LayerParameter, parameters: Sequence[Parameter]) -> tuple[Parameter, ...]:
        """The layer's parameters; those with a name have the tensor and the multipliers that the layers share.

        Raises ShapeError if one differs in shape or kind from that of the first layer of its name."""
        names = [entry.name for entry in layer.param][: len(parameters)]
        names += [""] * (len(parameters) - len(names))
        return tuple(self._one(layer.name, p, name) if name else p for p, name in zip(parameters, names, strict=True))

    def _one(self, layer: str, p: Parameter, name: str) -> Parameter:
        owner, first = self._first.setdefault(name, (layer, p))
        mine, theirs = (q.blob_shape or q.shape for q in (p, first))
        if mine != theirs or p.shape != first.shape:
            shapes = (mine, theirs) if mine != theirs else (p.shape, first.shape)
            what = f"its {p.name} of {text(shapes[0])} cannot be the {first.name} of layer {owner!r}"
            raise ShapeError(f"{what}, {text(shapes[1])}: layers share {name!r} only in one shape")
        if (p.learnable, p.float32) != (first.learnable, first.float32):
            what = "a running statistic and a weight" if p.learnable != first.learnable else "numbers of two formats"
            raise ShapeError(f"its {p.name} and the {first.name} of layer {owner!r} are {what}: they cannot share")
        given = self._given[name] if p.learnable else {}
        lr, decay = given.get("lr_mult", p.lr_mult), given.get("decay_mult", p.decay_mult)
        return replace(p, tensor=f"{self._owners[name]}.{first.name}", lr_mult=lr, decay_mult=decay)
