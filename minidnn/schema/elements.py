"""The messages of layers that treat elements alone, of losses, and of products of matrices."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from minidnn.schema.common import FillerParameter
from minidnn.schema.message import OURS, Engine, Int, Message, Positive, Repeated, Uint, field


def base(value: float) -> float:
    """The base of a power or a logarithm. Raises ValueError unless it is positive, or -1, which stands for e."""
    if value != -1.0 and value <= 0:
        raise ValueError(f"expected a positive base, or -1 for e; got {value:g}")
    return value


class InnerProductParameter(Message):
    num_output: Positive = field(1)
    bias_term: bool = field(2, True)
    weight_filler: FillerParameter = field(3, FillerParameter())
    bias_filler: FillerParameter = field(4, FillerParameter())
    axis: Int = field(5, 1)
    transpose: bool = field(6, False)


class MatMulParameter(Message):
    """Ours: a product of the last two axes of two bottoms, with either of them transposed if so told."""

    transpose_a: bool = field(OURS, False)
    transpose_b: bool = field(OURS + 1, False)
    scale: float = field(OURS + 2, 1.0)


class AttentionParameter(Message):
    """Ours: heads of queries, keys and values; which keys a query sees."""

    num_heads: Positive = field(OURS)
    num_kv_heads: Positive | None = field(OURS + 1, None)  # None: num_heads
    causal: bool = field(OURS + 2, False)
    window: Positive | None = field(OURS + 3, None)  # tokens; None: all
    scale: float | None = field(OURS + 4, None)  # None: d^-0.5
    dropout_ratio: Annotated[float, Field(ge=0, lt=1)] = field(OURS + 5, 0.0)
    places: Positive | None = field(OURS + 6, None)  # tokens whose keys and values are kept from step to step


class RelativePositionBiasParameter(Message):
    """Ours: windows of a map, and a number of their heads for each way from place to place."""

    num_heads: Positive = field(OURS)
    window: Positive = field(OURS + 1)  # places of a side
    shift: Uint = field(OURS + 2, 0)  # by which the map was moved before it was cut
    height: Positive | None = field(OURS + 3, None)  # of the map, for a shift
    width: Positive | None = field(OURS + 4, None)
    weight_filler: FillerParameter = field(OURS + 5, FillerParameter())


class RotaryEmbeddingParameter(Message):
    """Ours: heads that are turned, and by which angles."""

    num_heads: Positive = field(OURS)
    head_dim: Positive = field(OURS + 1)
    base: Annotated[float, Field(gt=0)] = field(OURS + 2, 10000.0)
    interleaved: bool = field(OURS + 3, False)
    places: Positive | None = field(OURS + 4, None)  # of tokens, which a step then says; None: from 0 on


class RecurrentParameter(Message):
    num_output: Positive = field(1)
    weight_filler: FillerParameter = field(2, FillerParameter())
    bias_filler: FillerParameter = field(3, FillerParameter())
    debug_info: bool = field(4, False, obeyed=False)
    expose_hidden: bool = field(5, False)
    hidden_bias: bool = field(OURS, False)  # of LSTM; a GRU has it always


class EmbedParameter(Message):
    num_output: Positive = field(1)
    input_dim: Positive = field(2)
    bias_term: bool = field(3, True)
    weight_filler: FillerParameter = field(4, FillerParameter())
    bias_filler: FillerParameter = field(5, FillerParameter())


class ReLUParameter(Message):
    negative_slope: float = field(1, 0.0)
    engine: Engine = field(2, "DEFAULT", obeyed=False)


class PReLUParameter(Message):
    filler: FillerParameter = field(1, FillerParameter(value=0.25))  # as in Caffe: 0.25 without a filler
    channel_shared: bool = field(2, False)


class ELUParameter(Message):
    alpha: float = field(1, 1.0)


class SigmoidParameter(Message):
    engine: Engine = field(1, "DEFAULT", obeyed=False)


class TanHParameter(Message):
    engine: Engine = field(1, "DEFAULT", obeyed=False)


class PowerParameter(Message):
    power: float = field(1, 1.0)
    scale: float = field(2, 1.0)
    shift: float = field(3, 0.0)


class ExpParameter(Message):
    base: float = field(1, -1.0)  # -1: e
    scale: float = field(2, 1.0)
    shift: float = field(3, 0.0)

    @field_validator("base")
    @classmethod
    def _positive(cls, value: float) -> float:
        return base(value)


class LogParameter(Message):
    base: float = field(1, -1.0)  # -1: e
    scale: float = field(2, 1.0)
    shift: float = field(3, 0.0)

    @field_validator("base")
    @classmethod
    def _positive(cls, value: float) -> float:
        if value == 1.0:
            raise ValueError("expected a base other than 1, to which no logarithm exists")
        return base(value)


class ClipParameter(Message):
    min: float = field(1)
    max: float = field(2)

    @model_validator(mode="after")
    def _ordered(self) -> ClipParameter:
        if self.min > self.max:
            raise ValueError(f"expected min to be at most max, got {self.min:g} and {self.max:g}")
        return self


class SwishParameter(Message):
    beta: float = field(1, 1.0)


class GELUParameter(Message):
    """Ours."""

    approximate: Literal["NONE", "TANH"] = field(OURS, "NONE")


class HardSigmoidParameter(Message):
    """Ours: the slope and the shift of the line, with ONNX's defaults."""

    alpha: float = field(OURS, 0.2)
    beta: float = field(OURS + 1, 0.5)


class ThresholdParameter(Message):
    threshold: float = field(1, 0.0)


class DropoutParameter(Message):
    dropout_ratio: Annotated[float, Field(ge=0, lt=1)] = field(1, 0.5)


class StochasticDepthParameter(Message):
    """Ours: whether samples skip alone, or all of a batch together."""

    drop_ratio: Annotated[float, Field(ge=0, lt=1)] = field(OURS, 0.5)
    mode: Literal["ROW", "BATCH"] = field(OURS + 1, "ROW")


class ClassTokenParameter(Message):
    """Ours."""

    filler: FillerParameter = field(OURS, FillerParameter())


class EltwiseParameter(Message):
    operation: Literal["PROD", "SUM", "MAX"] = field(1, "SUM")
    coeff: Repeated[float] = field(2, ())
    stable_prod_grad: Literal[True] = field(3, True)


class ReductionParameter(Message):
    operation: Literal["SUM", "ASUM", "SUMSQ", "MEAN"] = field(1, "SUM", first=1)
    axis: Int = field(2, 0)
    coeff: float = field(3, 1.0)


class ArgMaxParameter(Message):
    out_max_val: bool = field(1, False)
    top_k: Positive = field(2, 1)
    axis: Int | None = field(3, None)


class SoftmaxParameter(Message):
    engine: Engine = field(1, "DEFAULT", obeyed=False)
    axis: Int = field(2, 1)


class LossParameter(Message):
    ignore_label: Int | None = field(1, None)
    normalization: Literal["FULL", "VALID", "BATCH_SIZE", "NONE"] = field(3, "VALID")
    normalize: bool | None = field(2, None)
    label_smoothing: Annotated[float, Field(ge=0, le=1)] = field(OURS, 0.0)  # of SoftmaxWithLoss

    def mode(self, default: str = "VALID") -> str:
        """The divisor of the loss, as a value of `normalization`; `normalize` is its old form. `default`: where the
        file gives neither."""
        if self.normalize is not None:
            return "VALID" if self.normalize else "BATCH_SIZE"
        return self.normalization if self.has("normalization") else default

    @model_validator(mode="after")
    def _one_way(self) -> LossParameter:
        if self.has("normalize") and self.has("normalization"):
            raise ValueError("expected normalization, or the old normalize; got both")
        return self


class ContrastiveLossParameter(Message):
    margin: float = field(1, 1.0)
    legacy_version: bool = field(2, False)


class HingeLossParameter(Message):
    norm: Literal["L1", "L2"] = field(1, "L1", first=1)


class InfogainLossParameter(Message):
    source: str = field(1, "")  # a file with the matrix; empty: it is the third bottom
    axis: Int = field(2, 1)


class SmoothL1LossParameter(Message):
    """Faster R-CNN's."""

    sigma: Annotated[float, Field(gt=0)] = field(1, 1.0)


class AccuracyParameter(Message):
    top_k: Positive = field(1, 1)
    axis: Int = field(2, 1)
    ignore_label: Int | None = field(3, None)
