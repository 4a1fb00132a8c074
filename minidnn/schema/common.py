"""The messages that layers of several types have in common: fillers, shapes, rules, factors of learning rates."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator

from minidnn.schema.message import Message, Positive, Repeated, field

AXES = 32  # Caffe's kMaxBlobAxes
Phase = Literal["TRAIN", "TEST"]
Filler = Literal[
    "constant", "uniform", "gaussian", "xavier", "msra", "positive_unitball", "bilinear", "sinusoid", "diffusion",
]  # fmt: skip
OUR_FILLERS = ("sinusoid", "diffusion")  # which Caffe lacks


class FillerParameter(Message):
    """The distribution of a parameter's first values; layers/fillers.py draws them."""

    type: Filler = field(1, "constant", wire="string")
    value: float = field(2, 0.0)
    min: float = field(3, 0.0)
    max: float = field(4, 1.0)
    mean: float = field(5, 0.0)
    std: float = field(6, 1.0)
    sparse: int = field(7, -1)
    variance_norm: Literal["FAN_IN", "FAN_OUT", "AVERAGE"] = field(8, "FAN_IN")


def few_axes(dim: tuple[int, ...]) -> tuple[int, ...]:
    """The lengths themselves. Raises ValueError if there are more than 32 of them."""
    if len(dim) > AXES:
        raise ValueError(f"expected at most {AXES} axes, got {len(dim)}")
    return dim


class BlobShape(Message):
    """The lengths of a blob's axes, at most 32 of them."""

    dim: Repeated[Positive] = field(1, ())

    @field_validator("dim")
    @classmethod
    def _axes(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return few_axes(value)


class NetState(Message):
    """Level and stages of a net. With the phase, which the caller chooses, they decide which rules are met."""

    phase: Phase | None = field(1, None, obeyed=False)
    level: int = field(2, 0)
    stage: Repeated[str] = field(3, ())


class NetStateRule(Message):
    """A condition in a layer's `include` or `exclude`; all given fields must hold."""

    phase: Phase | None = field(1, None)
    min_level: int | None = field(2, None)
    max_level: int | None = field(3, None)
    stage: Repeated[str] = field(4, ())
    not_stage: Repeated[str] = field(5, ())

    def met(self, phase: str, state: NetState) -> bool:
        """Whether the rule holds for this phase, level and these stages."""
        return (
            (self.phase is None or self.phase == phase)
            and (self.min_level is None or state.level >= self.min_level)
            and (self.max_level is None or state.level <= self.max_level)
            and set(self.stage) <= set(state.stage)
            and not set(self.not_stage) & set(state.stage)
        )


class ParamSpec(Message):
    """An entry of a layer's `param` list: factors of learning rate and weight decay for one parameter. Layers share the
    parameters whose entries have one name (nets/sharing.py)."""

    name: str = field(1, "")
    share_mode: Literal["STRICT", "PERMISSIVE"] = field(2, "STRICT")  # either way, minidnn wants equal shapes
    lr_mult: float = field(3, 1.0)
    decay_mult: float = field(4, 1.0)
