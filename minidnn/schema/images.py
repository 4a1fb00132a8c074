"""The messages of layers whose bottoms are images: products with filters, windows, normalization."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from minidnn.schema.common import AXES, FillerParameter
from minidnn.schema.message import LARGEST, OURS, Engine, Int, Message, Positive, Repeated, Uint, field


def _one_form(message: Message, what: str, name: str, alone: bool = False) -> None:
    """Raise ValueError if height and width are given with the square form, or one without the other, unless it may be
    `alone`."""
    h, w = message.has(f"{what}_h"), message.has(f"{what}_w")
    if h != w and not alone:
        raise ValueError(f"expected {what}_h and {what}_w together, got only {what}_{'h' if h else 'w'}")
    if (h or w) and message.has(name):
        raise ValueError(f"expected {name}, or {what}_h and {what}_w; got both")


class ConvolutionParameter(Message):
    num_output: Positive = field(1, 0)  # Im2col has none; the other types need it (`needs` of their classes)
    bias_term: bool = field(2, True)
    pad: Repeated[Uint] = field(3, ())
    kernel_size: Repeated[Positive] = field(4, ())
    stride: Repeated[Positive] = field(6, ())
    dilation: Repeated[Positive] = field(18, ())
    pad_h: Uint | None = field(9, None)
    pad_w: Uint | None = field(10, None)
    kernel_h: Positive | None = field(11, None)
    kernel_w: Positive | None = field(12, None)
    stride_h: Positive | None = field(13, None)
    stride_w: Positive | None = field(14, None)
    group: Positive = field(5, 1)
    weight_filler: FillerParameter = field(7, FillerParameter())
    bias_filler: FillerParameter = field(8, FillerParameter())
    engine: Engine = field(15, "DEFAULT", obeyed=False)
    axis: Literal[1] = field(16, 1)
    force_nd_im2col: bool = field(17, False, obeyed=False)  # it changes the computation, not the numbers

    def pair(self, what: Literal["kernel", "stride", "pad", "dilation"]) -> tuple[int, int]:
        """(height, width) of the kernel, stride, pad or dilation, in whatever form the file gives it."""
        h, w = getattr(self, f"{what}_h", None), getattr(self, f"{what}_w", None)
        default = 0 if what == "pad" else 1
        if h is not None or w is not None:
            return (default if h is None else h), (default if w is None else w)
        repeated = getattr(self, "kernel_size" if what == "kernel" else what) or (default,)
        return repeated[0], repeated[-1]

    @model_validator(mode="after")
    def _geometry(self) -> ConvolutionParameter:
        for what in ("kernel", "stride", "pad", "dilation"):
            name = "kernel_size" if what == "kernel" else what
            if len(getattr(self, name)) > 2:
                raise ValueError(f"expected one or two numbers as {name}, got {list(getattr(self, name))}")
            if what != "dilation":
                _one_form(self, what, name, alone=what == "pad")  # as in Caffe, where the other pad is 0
        if not self.kernel_size and self.kernel_h is None:
            raise ValueError("expected kernel_size, or kernel_h and kernel_w; got neither")
        if self.num_output % self.group:
            raise ValueError(f"expected num_output to be a multiple of group {self.group}, got {self.num_output}")
        return self


class PoolingParameter(Message):
    pool: Literal["MAX", "AVE"] = field(1, "MAX")
    pad: Uint = field(4, 0)
    pad_h: Uint | None = field(9, None)
    pad_w: Uint | None = field(10, None)
    kernel_size: Positive | None = field(2, None)
    kernel_h: Positive | None = field(5, None)
    kernel_w: Positive | None = field(6, None)
    stride: Positive = field(3, 1)
    stride_h: Positive | None = field(7, None)
    stride_w: Positive | None = field(8, None)
    engine: Engine = field(11, "DEFAULT", obeyed=False)
    global_pooling: bool = field(12, False)
    round_mode: Literal["CEIL", "FLOOR"] = field(13, "CEIL")

    def pair(self, what: Literal["kernel", "stride", "pad"]) -> tuple[int, int] | None:
        """(height, width) of kernel, stride or pad, in whatever form the file gives it; None: a global kernel."""
        if what == "kernel" and self.global_pooling:
            return None
        h, w = getattr(self, f"{what}_h"), getattr(self, f"{what}_w")
        if h is not None and w is not None:
            return h, w
        both = getattr(self, "kernel_size" if what == "kernel" else what)
        return both, both

    @field_validator("pool", mode="before")
    @classmethod
    def _not_at_random(cls, value: object) -> object:
        if value == "STOCHASTIC":
            raise ValueError("STOCHASTIC, Caffe's, chooses places at random; minidnn does not do it: write MAX or AVE")
        return value

    @model_validator(mode="after")
    def _geometry(self) -> PoolingParameter:
        for what in ("stride", "pad"):
            _one_form(self, what, what)
        if self.kernel_size is None or (self.has("kernel_h") and self.has("kernel_w")):  # as in Caffe, one is ignored
            _one_form(self, "kernel", "kernel_size")
        given = any(size is not None for size in (self.kernel_size, self.kernel_h, self.kernel_w))
        if self.global_pooling and (given or self.pair("pad") != (0, 0) or self.pair("stride") != (1, 1)):
            raise ValueError("expected no kernel, pad or stride with global_pooling: it takes all of H and W")
        if not self.global_pooling and not given:
            raise ValueError("expected kernel_size, or kernel_h and kernel_w, or global_pooling; got none")
        return self


class LRNParameter(Message):
    local_size: Positive = field(1, 5)
    alpha: float = field(2, 1.0)
    beta: float = field(3, 0.75)
    norm_region: Literal["ACROSS_CHANNELS", "WITHIN_CHANNEL"] = field(4, "ACROSS_CHANNELS")
    k: float = field(5, 1.0)
    engine: Engine = field(6, "DEFAULT", obeyed=False)

    @field_validator("local_size")
    @classmethod
    def _odd(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError(f"expected an odd number, got {value}")
        return value


class BatchNormParameter(Message):
    use_global_stats: bool | None = field(1, None)  # None: true in TEST, false in TRAIN
    moving_average_fraction: float = field(2, 0.999)
    eps: float = field(3, 1e-5)
    engine: Engine = field(15, "DEFAULT", obeyed=False)


class ScaleParameter(Message):
    axis: Int = field(1, 1)
    num_axes: Annotated[int, Field(ge=-1, le=AXES)] = field(2, 1)
    filler: FillerParameter = field(3, FillerParameter(value=1.0))  # as in Caffe: 1 without a filler
    bias_term: bool = field(4, False)
    bias_filler: FillerParameter = field(5, FillerParameter())


class BiasParameter(Message):
    """The constant that is added along some axes."""

    axis: Int = field(1, 1)
    num_axes: Annotated[int, Field(ge=-1, le=AXES)] = field(2, 1)
    filler: FillerParameter = field(3, FillerParameter())
    places: Positive | None = field(OURS, None)  # rows of the constant, of which tokens take those of their places


class MVNParameter(Message):
    normalize_variance: bool = field(1, True)
    across_channels: bool = field(2, False)
    eps: Annotated[float, Field(ge=0)] = field(3, 1e-9)


class LayerNormParameter(Message):
    """Ours: normalizes over `num_axes` axes from `axis` on, or over all for -1; then, unless told otherwise, scales and
    shifts each element."""

    axis: Int = field(OURS, -1)
    eps: Annotated[float, Field(ge=0)] = field(OURS + 1, 1e-5)
    affine: bool = field(OURS + 2, True)
    filler: FillerParameter = field(OURS + 3, FillerParameter(value=1.0))
    bias_filler: FillerParameter = field(OURS + 4, FillerParameter())
    num_axes: Annotated[Int, Field(ge=-1)] = field(OURS + 5, -1)


class RMSNormParameter(Message):
    """Ours: normalizes over all axes from `axis` on."""

    axis: Int = field(OURS, -1)
    eps: Annotated[float, Field(ge=0)] = field(OURS + 1, 1e-5)


class InstanceNormParameter(Message):
    """Ours: normalizes each channel of each sample; then, unless told otherwise, scales and shifts it."""

    eps: Annotated[float, Field(ge=0)] = field(OURS + 1, 1e-5)
    affine: bool = field(OURS + 2, True)
    filler: FillerParameter = field(OURS + 3, FillerParameter(value=1.0))
    bias_filler: FillerParameter = field(OURS + 4, FillerParameter())


class GroupNormParameter(InstanceNormParameter):
    """Ours: normalizes groups of channels; then, unless told otherwise, scales and shifts each channel."""

    num_groups: Positive = field(OURS)


class NormalizeParameter(Message):
    """SSD's: divides by the L2 norm, of the channels at a place or of the whole sample; then scales."""

    across_spatial: bool = field(1, True)
    scale_filler: FillerParameter = field(2, FillerParameter(value=1.0))
    channel_shared: bool = field(3, True)
    eps: Annotated[float, Field(ge=0)] = field(4, 1e-10)


class CropParameter(Message):
    axis: Int = field(1, 2)
    offset: Repeated[Uint] = field(2, ())


class SPPParameter(Message):
    pyramid_height: Annotated[int, Field(ge=1, le=16)] = field(1)
    pool: Literal["MAX", "AVE"] = field(2, "MAX")
    engine: Engine = field(6, "DEFAULT", obeyed=False)


class InterpParameter(Message):
    """DeepLab's resizing: bilinear interpolation that maps the corner pixels' centres to each other."""

    height: Positive = field(1, 1)
    width: Positive = field(2, 1)
    zoom_factor: Positive = field(3, 1)
    shrink_factor: Positive = field(4, 1)
    pad_beg: Annotated[int, Field(ge=-LARGEST, le=0)] = field(5, 0)
    pad_end: Annotated[int, Field(ge=-LARGEST, le=0)] = field(6, 0)

    @property
    def size(self) -> tuple[int, int] | None:
        """The (height, width) of the top; None: the factors say it. A factor alone goes before them, as in DeepLab's
        Caffe; both factors do not."""
        one_factor = self.has("zoom_factor") != self.has("shrink_factor")
        return (self.height, self.width) if self.has("height") and self.has("width") and not one_factor else None

    @model_validator(mode="after")
    def _one_size(self) -> InterpParameter:
        if self.size is None and not (self.has("zoom_factor") or self.has("shrink_factor")):
            if self.has("height") or self.has("width"):
                raise ValueError("expected height and width together, got one of them")
            raise ValueError("expected height and width, or zoom_factor or shrink_factor; got none")
        return self


class UpsampleParameter(Message):
    """Forks': each pixel becomes a square of scale x scale equal ones."""

    scale: Positive = field(1, 2)
