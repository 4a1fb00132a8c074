"""Caffe's net and its layers as pydantic models: fields, types and defaults exactly as in caffe.proto.

With the messages of layer types beside it (images, elements, moves, sources) and solver.py this is the one table of
the fields in files. Caffe's fields that minidnn does not support are not in it: schema/checks.py refuses them with a
reason, so that no field of a file is ignored silently.
"""

from __future__ import annotations

from pydantic import ConfigDict

from minidnn.schema import elements, images, moves, old, sources
from minidnn.schema.common import BlobShape, NetState, NetStateRule, ParamSpec
from minidnn.schema.message import OURS, Message, Positive, Repeated, field
from minidnn.schema.old import V1LayerParameter

# The layer types that Caffe itself has; a file with others is for minidnn, or for the fork that made them known.
TYPES = frozenset(
    {*old.TYPES.values(), "BatchNorm", "BatchReindex", "Bias", "Clip", "Crop", "ELU", "Embed", "Filter", "Input",
     "LSTM", "LSTMUnit", "Log", "PReLU", "Parameter", "Python", "RNN", "Reduction", "Reshape", "SPP",
     "Scale", "Swish", "Tile"}
)  # fmt: skip


class LayerParameter(Message):
    """One layer of a file. A message that the file leaves out has its defaults here; it is None if it needs a field.

    A user's own message (`message` of a layer class) is an extra field, named by the class's `field_name`.
    """

    model_config = ConfigDict(extra="allow")  # schema/checks.py permits users' own messages only

    name: str = field(1)
    type: str = field(2)
    bottom: Repeated[str] = field(3, ())
    top: Repeated[str] = field(4, ())
    loss_weight: Repeated[float] = field(5, ())
    param: Repeated[ParamSpec] = field(6, ())
    propagate_down: Repeated[bool] = field(11, ())
    include: Repeated[NetStateRule] = field(8, ())
    exclude: Repeated[NetStateRule] = field(9, ())

    input_param: sources.InputParameter = field(143, sources.InputParameter())
    data_param: sources.DataParameter | None = field(107, None)
    image_data_param: sources.ImageDataParameter | None = field(115, None)
    hdf5_data_param: sources.HDF5DataParameter | None = field(112, None)
    transform_param: sources.TransformationParameter = field(100, sources.TransformationParameter())
    dummy_data_param: sources.DummyDataParameter = field(109, sources.DummyDataParameter())
    memory_data_param: sources.MemoryDataParameter | None = field(119, None)
    parameter_param: sources.ParameterParameter | None = field(145, None)
    convolution_param: images.ConvolutionParameter | None = field(106, None)
    pooling_param: images.PoolingParameter | None = field(121, None)
    spp_param: images.SPPParameter | None = field(132, None)
    crop_param: images.CropParameter = field(144, images.CropParameter())
    interp_param: images.InterpParameter | None = field(OURS, None)
    upsample_param: images.UpsampleParameter = field(OURS + 1, images.UpsampleParameter())
    lrn_param: images.LRNParameter = field(118, images.LRNParameter())
    batch_norm_param: images.BatchNormParameter = field(139, images.BatchNormParameter())
    scale_param: images.ScaleParameter = field(142, images.ScaleParameter())
    bias_param: images.BiasParameter = field(141, images.BiasParameter())
    mvn_param: images.MVNParameter = field(120, images.MVNParameter())
    layer_norm_param: images.LayerNormParameter = field(OURS + 2, images.LayerNormParameter())
    group_norm_param: images.GroupNormParameter | None = field(OURS + 6, None)
    instance_norm_param: images.InstanceNormParameter = field(OURS + 16, images.InstanceNormParameter())
    rms_norm_param: images.RMSNormParameter = field(OURS + 7, images.RMSNormParameter())
    norm_param: images.NormalizeParameter = field(206, images.NormalizeParameter())
    inner_product_param: elements.InnerProductParameter | None = field(117, None)
    matmul_param: elements.MatMulParameter = field(OURS + 3, elements.MatMulParameter())
    attention_param: elements.AttentionParameter | None = field(OURS + 9, None)
    relative_position_bias_param: elements.RelativePositionBiasParameter | None = field(OURS + 19, None)
    rotary_embedding_param: elements.RotaryEmbeddingParameter | None = field(OURS + 10, None)
    recurrent_param: elements.RecurrentParameter | None = field(146, None)
    embed_param: elements.EmbedParameter | None = field(137, None)
    relu_param: elements.ReLUParameter = field(123, elements.ReLUParameter())
    prelu_param: elements.PReLUParameter = field(131, elements.PReLUParameter())
    elu_param: elements.ELUParameter = field(140, elements.ELUParameter())
    sigmoid_param: elements.SigmoidParameter = field(124, elements.SigmoidParameter())
    tanh_param: elements.TanHParameter = field(127, elements.TanHParameter())
    power_param: elements.PowerParameter = field(122, elements.PowerParameter())
    exp_param: elements.ExpParameter = field(111, elements.ExpParameter())
    log_param: elements.LogParameter = field(134, elements.LogParameter())
    clip_param: elements.ClipParameter | None = field(148, None)
    swish_param: elements.SwishParameter = field(147, elements.SwishParameter())
    gelu_param: elements.GELUParameter = field(OURS + 4, elements.GELUParameter())
    hard_sigmoid_param: elements.HardSigmoidParameter = field(OURS + 5, elements.HardSigmoidParameter())
    threshold_param: elements.ThresholdParameter = field(128, elements.ThresholdParameter())
    dropout_param: elements.DropoutParameter = field(108, elements.DropoutParameter())
    stochastic_depth_param: elements.StochasticDepthParameter = field(OURS + 14, elements.StochasticDepthParameter())
    class_token_param: elements.ClassTokenParameter = field(OURS + 15, elements.ClassTokenParameter())
    eltwise_param: elements.EltwiseParameter = field(110, elements.EltwiseParameter())
    reduction_param: elements.ReductionParameter = field(136, elements.ReductionParameter())
    argmax_param: elements.ArgMaxParameter = field(103, elements.ArgMaxParameter())
    concat_param: moves.ConcatParameter = field(104, moves.ConcatParameter())
    slice_param: moves.SliceParameter = field(126, moves.SliceParameter())
    flatten_param: moves.FlattenParameter = field(135, moves.FlattenParameter())
    reshape_param: moves.ReshapeParameter = field(133, moves.ReshapeParameter())
    permute_param: moves.PermuteParameter = field(202, moves.PermuteParameter())
    pad_param: moves.PadParameter = field(OURS + 8, moves.PadParameter())
    tile_param: moves.TileParameter | None = field(138, None)
    roll_param: moves.RollParameter | None = field(OURS + 20, None)
    softmax_param: elements.SoftmaxParameter = field(125, elements.SoftmaxParameter())
    loss_param: elements.LossParameter = field(101, elements.LossParameter())
    contrastive_loss_param: elements.ContrastiveLossParameter = field(105, elements.ContrastiveLossParameter())
    hinge_loss_param: elements.HingeLossParameter = field(114, elements.HingeLossParameter())
    infogain_loss_param: elements.InfogainLossParameter = field(116, elements.InfogainLossParameter())
    smooth_l1_loss_param: elements.SmoothL1LossParameter = field(151, elements.SmoothL1LossParameter())
    accuracy_param: elements.AccuracyParameter = field(102, elements.AccuracyParameter())

    def included(self, phase: str, state: NetState) -> bool:
        """Whether the layer is part of the net in this phase and state, by Caffe's rule.

        With `include` rules one of them must be met. Without, no `exclude` rule may be met."""
        if self.include:
            return any(rule.met(phase, state) for rule in self.include)
        return not any(rule.met(phase, state) for rule in self.exclude)


class NetParameter(Message):
    """A net's file. `input`, `input_dim` and `input_shape` are the old form of an Input layer."""

    name: str = field(1, "")
    layer: Repeated[LayerParameter] = field(100, ())
    layers: Repeated[V1LayerParameter] = field(2, (), old=True)
    input: Repeated[str] = field(3, ())
    input_dim: Repeated[Positive] = field(4, ())
    input_shape: Repeated[BlobShape] = field(8, ())
    force_backward: bool = field(5, False)
    state: NetState = field(6, NetState())
    eltwise_mem_sharing: bool = field(OURS, False, obeyed=False)  # NVIDIA's Caffe: of memory, which a policy decides
