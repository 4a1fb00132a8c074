"""Caffe's messages as pydantic models: fields, types and defaults exactly as in caffe.proto.

This is the one table of the fields in files. Repeated fields take a scalar or a list and hold tuples; enums are strings
with their names. Types are strict: "20" is no number and 1 is no bool. Caffe's fields that minidnn does not support are
not in this table: schema/checks.py refuses them with a reason, so that no field of a file is ignored silently.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from minidnn import sizes


class Message(BaseModel):
    """A frozen value, equal to others with the same fields. `model_fields_set` has the fields that a file gave."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    def has(self, field: str) -> bool:
        """Whether the file gave this field: proto2's has_field()."""
        return field in self.model_fields_set


def _tuple(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(value)
    return () if value is None else (value,)


T = TypeVar("T")
Repeated = Annotated[tuple[T, ...], BeforeValidator(_tuple)]
LARGEST = 2**31 - 1  # Caffe and the libraries of kernels count in 32 bits
Uint = Annotated[int, Field(ge=0, le=LARGEST)]
Positive = Annotated[int, Field(ge=1, le=LARGEST)]
Int = Annotated[int, Field(ge=-LARGEST - 1, le=LARGEST)]
AXES = 32  # Caffe's kMaxBlobAxes
Phase = Literal["TRAIN", "TEST"]
Engine = Literal["DEFAULT", "CAFFE", "CUDNN"]  # read but ignored: minidnn chooses, and the numbers are the same


def _one_form(message: Message, what: str, name: str) -> None:
    """Raise ValueError unless height and width are given together or not at all, and not with the square form."""
    h, w = message.has(f"{what}_h"), message.has(f"{what}_w")
    if h != w:
        raise ValueError(f"expected {what}_h and {what}_w together, got only {what}_{'h' if h else 'w'}")
    if h and message.has(name):
        raise ValueError(f"expected {name}, or {what}_h and {what}_w; got both")


class FillerParameter(Message):
    """The distribution of a parameter's first values; layers/fillers.py draws them."""

    type: Literal["constant", "uniform", "gaussian", "xavier", "msra", "positive_unitball", "bilinear"] = "constant"
    value: float = 0.0
    min: float = 0.0
    max: float = 1.0
    mean: float = 0.0
    std: float = 1.0
    sparse: int = -1
    variance_norm: Literal["FAN_IN", "FAN_OUT", "AVERAGE"] = "FAN_IN"


class BlobShape(Message):
    """The lengths of a blob's axes, at most 32 of them."""

    dim: Repeated[Positive] = ()

    @field_validator("dim")
    @classmethod
    def _axes(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if len(value) > AXES:
            raise ValueError(f"expected at most {AXES} axes, got {len(value)}")
        return value


class NetState(Message):
    """Level and stages of a net. With the phase, which the caller chooses, they decide which rules are met."""

    level: int = 0
    stage: Repeated[str] = ()


class NetStateRule(Message):
    """A condition in a layer's `include` or `exclude`; all given fields must hold."""

    phase: Phase | None = None
    min_level: int | None = None
    max_level: int | None = None
    stage: Repeated[str] = ()
    not_stage: Repeated[str] = ()

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
    """An entry of a layer's `param` list: factors of learning rate and weight decay for one parameter."""

    name: str = ""
    lr_mult: float = 1.0
    decay_mult: float = 1.0


# -- one message per layer type ------------------------------------------------------------------------------


class InputParameter(Message):
    shape: Repeated[BlobShape] = ()


class DataParameter(Message):
    source: str
    batch_size: Positive
    backend: Literal["LEVELDB", "LMDB"] = "LEVELDB"  # read but ignored: minidnn has no database sources
    prefetch: Uint = 4  # read but ignored: the loader prefetches one batch


class TransformationParameter(Message):
    scale: float = 1.0
    mirror: bool = False
    crop_size: Uint = 0
    mean_value: Repeated[float] = ()


class ConvolutionParameter(Message):
    num_output: Positive
    bias_term: bool = True
    pad: Repeated[Uint] = ()
    kernel_size: Repeated[Positive] = ()
    stride: Repeated[Positive] = ()
    dilation: Repeated[Positive] = ()
    pad_h: Uint | None = None
    pad_w: Uint | None = None
    kernel_h: Positive | None = None
    kernel_w: Positive | None = None
    stride_h: Positive | None = None
    stride_w: Positive | None = None
    group: Positive = 1
    weight_filler: FillerParameter = FillerParameter()
    bias_filler: FillerParameter = FillerParameter()
    engine: Engine = "DEFAULT"
    axis: Literal[1] = 1
    force_nd_im2col: bool = False  # read but ignored: it changes the computation, not the numbers

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
                _one_form(self, what, name)
        if not self.kernel_size and self.kernel_h is None:
            raise ValueError("expected kernel_size, or kernel_h and kernel_w; got neither")
        if self.num_output % self.group:
            raise ValueError(f"expected num_output to be a multiple of group {self.group}, got {self.num_output}")
        return self


class PoolingParameter(Message):
    pool: Literal["MAX", "AVE"] = "MAX"
    pad: Uint = 0
    pad_h: Uint | None = None
    pad_w: Uint | None = None
    kernel_size: Positive | None = None
    kernel_h: Positive | None = None
    kernel_w: Positive | None = None
    stride: Positive = 1
    stride_h: Positive | None = None
    stride_w: Positive | None = None
    engine: Engine = "DEFAULT"
    global_pooling: bool = False
    round_mode: Literal["CEIL", "FLOOR"] = "CEIL"

    def pair(self, what: Literal["kernel", "stride", "pad"]) -> tuple[int, int] | None:
        """(height, width) of kernel, stride or pad, in whatever form the file gives it; None: a global kernel."""
        if what == "kernel" and self.global_pooling:
            return None
        h, w = getattr(self, f"{what}_h"), getattr(self, f"{what}_w")
        if h is not None and w is not None:
            return h, w
        both = getattr(self, "kernel_size" if what == "kernel" else what)
        return both, both

    @model_validator(mode="after")
    def _geometry(self) -> PoolingParameter:
        for what in ("kernel", "stride", "pad"):
            _one_form(self, what, "kernel_size" if what == "kernel" else what)
        given = self.kernel_size is not None or self.kernel_h is not None
        if self.global_pooling and (given or self.pair("pad") != (0, 0) or self.pair("stride") != (1, 1)):
            raise ValueError("expected no kernel, pad or stride with global_pooling: it takes all of H and W")
        if not self.global_pooling and not given:
            raise ValueError("expected kernel_size, or kernel_h and kernel_w, or global_pooling; got none")
        return self


class InnerProductParameter(Message):
    num_output: Positive
    bias_term: bool = True
    weight_filler: FillerParameter = FillerParameter()
    bias_filler: FillerParameter = FillerParameter()
    axis: Literal[1] = 1


class ReLUParameter(Message):
    negative_slope: float = 0.0
    engine: Engine = "DEFAULT"


class LRNParameter(Message):
    local_size: Positive = 5
    alpha: float = 1.0
    beta: float = 0.75
    norm_region: Literal["ACROSS_CHANNELS", "WITHIN_CHANNEL"] = "ACROSS_CHANNELS"
    k: float = 1.0
    engine: Engine = "DEFAULT"

    @field_validator("local_size")
    @classmethod
    def _odd(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError(f"expected an odd number, got {value}")
        return value


class BatchNormParameter(Message):
    use_global_stats: bool | None = None  # None: true in TEST, false in TRAIN
    moving_average_fraction: float = 0.999
    eps: float = 1e-5


class ScaleParameter(Message):
    axis: Literal[1] = 1
    num_axes: Literal[1] = 1
    filler: FillerParameter = FillerParameter(value=1.0)  # as in Caffe: 1 without a filler
    bias_term: bool = False
    bias_filler: FillerParameter = FillerParameter()


class DropoutParameter(Message):
    dropout_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.5


class ConcatParameter(Message):
    axis: Int = 1


class EltwiseParameter(Message):
    operation: Literal["PROD", "SUM", "MAX"] = "SUM"
    coeff: Repeated[float] = ()
    stable_prod_grad: Literal[True] = True


class FlattenParameter(Message):
    axis: Int = 1
    end_axis: Int = -1


class SoftmaxParameter(Message):
    engine: Engine = "DEFAULT"
    axis: Int = 1


class LossParameter(Message):
    ignore_label: Int | None = None
    normalization: Literal["FULL", "VALID", "BATCH_SIZE", "NONE"] = "VALID"
    normalize: bool | None = None

    @property
    def mode(self) -> str:
        """The divisor of the loss, as a value of `normalization`; `normalize` is its old form."""
        if self.normalize is not None:
            return "VALID" if self.normalize else "BATCH_SIZE"
        return self.normalization

    @model_validator(mode="after")
    def _one_way(self) -> LossParameter:
        if self.has("normalize") and self.has("normalization"):
            raise ValueError("expected normalization, or the old normalize; got both")
        return self


class AccuracyParameter(Message):
    top_k: Positive = 1
    axis: Int = 1
    ignore_label: Int | None = None


# -- layers and nets -----------------------------------------------------------------------------------------


class LayerParameter(Message):
    """One layer of a file. A message that the file leaves out has its defaults here; it is None if it needs a field.

    A user's own message (`message` of a layer class) is an extra field, named by the class's `field_name`.
    """

    model_config = ConfigDict(extra="allow")  # schema/checks.py permits users' own messages only

    name: str
    type: str
    bottom: Repeated[str] = ()
    top: Repeated[str] = ()
    loss_weight: Repeated[float] = ()
    param: Repeated[ParamSpec] = ()
    propagate_down: Repeated[bool] = ()
    include: Repeated[NetStateRule] = ()
    exclude: Repeated[NetStateRule] = ()

    input_param: InputParameter = InputParameter()
    data_param: DataParameter | None = None
    transform_param: TransformationParameter = TransformationParameter()
    convolution_param: ConvolutionParameter | None = None
    pooling_param: PoolingParameter | None = None
    inner_product_param: InnerProductParameter | None = None
    relu_param: ReLUParameter = ReLUParameter()
    lrn_param: LRNParameter = LRNParameter()
    batch_norm_param: BatchNormParameter = BatchNormParameter()
    scale_param: ScaleParameter = ScaleParameter()
    dropout_param: DropoutParameter = DropoutParameter()
    concat_param: ConcatParameter = ConcatParameter()
    eltwise_param: EltwiseParameter = EltwiseParameter()
    flatten_param: FlattenParameter = FlattenParameter()
    softmax_param: SoftmaxParameter = SoftmaxParameter()
    loss_param: LossParameter = LossParameter()
    accuracy_param: AccuracyParameter = AccuracyParameter()

    def included(self, phase: str, state: NetState) -> bool:
        """Whether the layer is part of the net in this phase and state, by Caffe's rule.

        With `include` rules one of them must be met. Without, no `exclude` rule may be met."""
        if self.include:
            return any(rule.met(phase, state) for rule in self.include)
        return not any(rule.met(phase, state) for rule in self.exclude)


class NetParameter(Message):
    """A net's file. `input`, `input_dim` and `input_shape` are the old form of an Input layer."""

    name: str = ""
    layer: Repeated[LayerParameter] = ()
    input: Repeated[str] = ()
    input_dim: Repeated[Positive] = ()
    input_shape: Repeated[BlobShape] = ()
    force_backward: bool = False
    state: NetState = NetState()


# -- the solver ----------------------------------------------------------------------------------------------


def _nbytes(value: Any) -> Any:
    return sizes.parse(value) if isinstance(value, str) else value


Bytes = Annotated[int, Field(ge=1), BeforeValidator(_nbytes)]


class Minidnn(Message):
    """The one key that Caffe does not have: how a net is run. Options of the command line and keywords overrule it."""

    policy: str | None = None
    budget: Bytes | None = None
    host_budget: Bytes | None = None
    ram: Bytes | None = None  # of this machine's memory, for the whole process; training/ram.py
    host_ring: Bytes | None = None  # bytes of the pinned ring for tensors that travel; memory/lowering/staging.py
    compress: bool = False  # whether tensors behind the ring are stored without their zeros
    device: str | None = None
    format: Literal["float32", "bfloat16", "float16"] | None = None  # the number format of the network; formats.py
    loss_scale: Annotated[float, Field(gt=0, le=2.0**24)] = 2.0**16  # the first one, in float16; then it adapts


class SolverParameter(Message):
    """A solver's file: a net, and how to train it."""

    net: str | None = None
    net_param: NetParameter | None = None
    train_net: str | None = None
    test_net: Repeated[str] = ()
    train_state: NetState | None = None
    test_state: Repeated[NetState] = ()
    test_iter: Repeated[Positive] = ()
    test_interval: Uint = 0
    test_initialization: bool = True
    base_lr: Annotated[float, Field(ge=0)]
    lr_policy: Literal["fixed", "step", "exp", "inv", "multistep", "poly", "sigmoid"]
    gamma: float = 0.0
    power: float = 0.0
    stepsize: Uint = 0
    stepvalue: Repeated[Uint] = ()
    rampup_interval: Uint = 0  # NVIDIA's Caffe: iterations in which the rate rises linearly from rampup_lr to base_lr
    rampup_lr: Annotated[float, Field(ge=0)] = 0.0
    max_iter: Uint = 0
    iter_size: Positive = 1
    momentum: Annotated[float, Field(ge=0)] = 0.0
    momentum2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    rms_decay: Annotated[float, Field(ge=0, lt=1)] = 0.99
    delta: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    regularization_type: Literal["L2", "L1"] = "L2"
    clip_gradients: float = -1.0  # the largest norm of all gradients; negative: no clipping
    display: Uint = 0
    average_loss: Positive = 1
    snapshot: Uint = 0
    snapshot_prefix: str = ""
    snapshot_after_train: bool = True
    random_seed: Annotated[int, Field(lt=2**64)] = -1  # negative: a new seed for each run, as in Caffe
    type: str = "SGD"  # a key of OPTIMIZERS (optimizers/__init__.py)
    solver_mode: Literal["CPU", "GPU"] = "GPU"  # read but ignored: `minidnn: {device: ...}` chooses the device
    minidnn: Minidnn = Minidnn()
