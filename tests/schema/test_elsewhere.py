"""The names of other frameworks, and what ours are called."""

import pytest

import minidnn
from minidnn import L
from minidnn.errors import BadInput
from minidnn.layers import LAYERS
from minidnn.schema import elsewhere
from minidnn.schema.caffe import LayerParameter
from minidnn.schema.elsewhere import near_field, no_type
from minidnn.schema.validation import messages, model_of

NAMES = {
    "Conv": "'Convolution'", "Conv2d": "'Convolution'", "Conv2D": "'Convolution'", "conv_2d": "'Convolution'",
    "Conv2DTranspose": "'Deconvolution'", "ConvTranspose2d": "'Deconvolution'", "Linear": "'InnerProduct'",
    "Dense": "'InnerProduct'", "BatchNorm2d": "'BatchNorm', then 'Scale' with bias_term true",
    "BatchNormalization": "'BatchNorm', then", "MaxPool2d": "'Pooling' with pool MAX",
    "AveragePooling2D": "'Pooling' with pool AVE", "AdaptiveAvgPool2d": "'Pooling' with pool AVE, and global_pooling",
    "Relu": "'ReLU'", "LeakyReLU": "'ReLU' with negative_slope", "SiLU": "'Swish'", "Tanh": "'TanH'",
    "CrossEntropyLoss": "'SoftmaxWithLoss'", "SparseCategoricalCrossentropy": "'SoftmaxWithLoss'",
    "BCEWithLogitsLoss": "'SigmoidCrossEntropyLoss'", "MSELoss": "'EuclideanLoss'", "Embedding": "'Embed'",
    "MultiheadAttention": "'Attention'", "LayerNormalization": "'LayerNorm'", "Add": "'Eltwise' with operation SUM",
    "Concatenate": "'Concat'", "Linera": "'InnerProduct'", "Dropout1d": "'Dropout'", "Flaten": "'Flatten'",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_type_of_another_framework_is_told_ours(name):
    with pytest.raises(AttributeError) as error:
        getattr(L, name)
    assert str(error.value).startswith(f"there is no layer type {name!r} (did you mean {NAMES[name]}")
    with pytest.raises(BadInput) as error:
        minidnn.Net.from_text(f"name: n\nlayer:\n- {{name: x, type: {name}, bottom: data, top: x}}\n")
    assert f"there is no layer type {name!r} (did you mean {NAMES[name]}" in str(error.value)


def test_a_type_that_is_nowhere_gets_no_hint_and_one_that_is_refused_its_reason():
    assert no_type("Sequential", LAYERS) == "there is no layer type 'Sequential'"
    with pytest.raises(AttributeError, match="write Clip with min: 0 and max: 6"):
        getattr(L, "ReLU6")  # noqa: B009


def test_all_that_is_meant_is_there():
    assert set(elsewhere._TYPES.values()) <= LAYERS.keys() and elsewhere._BESIDES.keys() <= elsewhere._TYPES.keys()
    names = {field for message in messages() for field in model_of(LayerParameter, message).model_fields}
    names |= {*minidnn.schema.SolverParameter.model_fields, "in_place"}
    assert {field for ours in elsewhere._FIELDS.values() for field in ours} <= names


@pytest.mark.parametrize(
    ("name", "ours"),
    [("lr", "base_lr"), ("out_channels", "num_output"), ("padding", "pad"), ("num_otput", "num_output"), ("x", None)],
)
def test_a_field_of_another_framework_is_told_ours(name, ours):
    hint = f" (did you mean {ours!r}?)" if ours else ""
    assert near_field(name, ["base_lr", "num_output", "pad", "stride"]) == hint
