"""Old Caffe files become present ones, and their errors keep their places."""

from __future__ import annotations

import pytest

from minidnn.layers import LAYERS
from minidnn.optimizers import OPTIMIZERS
from minidnn.schema import InvalidFile, check_net, check_solver, parse, plain

OLD = """name: "old"
input: "data"
input_dim: 2 input_dim: 3 input_dim: 8 input_dim: 8
layers {
  name: "conv" type: CONVOLUTION bottom: "data" top: "conv"
  blobs_lr: 1 blobs_lr: 2 weight_decay: 1 weight_decay: 0 param: "w"
  convolution_param { num_output: 4 kernel_size: 3 }
}
layers { name: "relu" type: RELU bottom: "conv" top: "conv" }
layers { name: "both" type: CONCAT bottom: "conv" bottom: "conv" top: "both" concat_param { concat_dim: 0 } }
"""
NEW = """name: "old"
layer { name: "input" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }
layer {
  name: "conv" type: "Convolution" bottom: "data" top: "conv"
  param { name: "w" lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
  convolution_param { num_output: 4 kernel_size: 3 }
}
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "both" type: "Concat" bottom: "conv" bottom: "conv" top: "both" concat_param { axis: 0 } }
"""


def net(text: str):
    return check_net(parse(text, "old.prototxt"), LAYERS).parameter


def errors(text: str) -> list[str]:
    with pytest.raises(InvalidFile) as caught:
        net(text)
    return caught.value.errors


def test_v1_layers():
    assert net(OLD) == net(NEW)


def test_v1_layers_in_yaml():
    text = "layers:\n- {name: d, type: DATA, top: d, data_param: {source: digits, batch_size: 2, scale: 0.5}}\n"
    layer = check_net(parse(text, "old.yaml"), LAYERS).parameter.layer[0]
    assert (layer.type, layer.transform_param.scale, layer.data_param.source) == ("Data", 0.5, "digits")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("CONVOLUTION", "CONVOLUTON", "5:22: layer[conv].type: there is no layer type 'CONVOLUTON' (did you mean"),
        ("CONVOLUTION", "Convolution", "5:22: layer[conv].type: in layers, the old form, a type is a word such as"),
        ("weight_decay: 0", "weight_decay: x", "6:57: layer[conv].param[1].decay_mult: expected a number, got 'x'"),
        ("concat_dim: 0", "concat_dim: a", "10:105: layer[both].concat_param.axis: expected an integer, got 'a'"),
        ("concat_dim: 0", "concat_dim: 0 axis: 1", "10:93: layer[both].concat_param.concat_dim: axis and concat_dim"),
        ("RELU", "WINDOW_DATA", "9:29: layer[relu].type: minidnn has no layer WindowData"),
        ("kernel_size: 3", "kernel_sise: 3", "7:37: layer[conv].convolution_param.kernel_sise: there is no field"),
        ("layers { name: \"relu\"", "layers { layer { } name: \"relu\"", "9:10: layer.layer: Caffe's oldest"),
        ("layers { name: \"relu\"", "layer { name: \"relu\"", "4:1: layers: layer and layers, the old form"),
    ],
)  # fmt: skip
def test_errors_have_their_places(old, new, expected):
    assert errors(OLD.replace(old, new, 1))[0].startswith(f"old.prototxt:{expected}")


def test_a_transformation_within_data_param():
    text = 'layer { name: "d" type: "Data" top: "d" data_param { source: "digits" batch_size: 2 %s } %s }'
    layer = net(text % ("scale: 0.5 crop_size: 4 mirror: true", "transform_param { mean_value: 1 }")).layer[0]
    assert plain(layer.transform_param) == {"scale": 0.5, "mirror": True, "crop_size": 4, "mean_value": 1}
    (error,) = errors(text % ("scale: 0.5", "transform_param { scale: 1 }"))
    assert error == "old.prototxt:1:85: layer[d].data_param.scale: given in transform_param, too: expected one of them"
    assert errors(text % ("crop_size: -1", ""))[0].startswith("old.prototxt:1:96: layer[d].transform_param.crop_size")


def test_a_batch_norm_s_three_rates_of_zero():
    text = NEW + 'layer { name: "bn" type: "BatchNorm" bottom: "both" top: "bn" %s }'
    zero = "param { lr_mult: 0 }"
    assert net(text % f"{zero} {zero} {zero}") == net(text % "")


@pytest.mark.parametrize(("said", "expected"), [("false", "FLOOR"), ("true", "CEIL")])
def test_a_fork_s_ceil_mode(said, expected):
    text = (
        'layer { name: "p" type: "Pooling" bottom: "both" top: "p" pooling_param { kernel_size: 2 %s ceil_mode: %s } }'
    )
    assert net(NEW + text % ("", said)).layer[-1].pooling_param.round_mode == expected
    (error,) = errors(NEW + text % ("round_mode: CEIL", said))
    assert "round_mode and ceil_mode, a fork's name: expected one of them" in error
    assert "there is no field 'ceil_mode'" in errors(NEW + text % ("", "3"))[0]


@pytest.mark.parametrize("said", ["solver_type: SGD", "solver_type: 0", "type: 'SGD'"])
def test_the_solver_s_type(said):
    found = check_solver(parse(f"base_lr: 1 lr_policy: 'fixed' {said}", "s.prototxt"), LAYERS, OPTIMIZERS)
    assert found.type == "SGD" and found.solver_type is None


def test_an_unknown_solver_type_has_its_place():
    with pytest.raises(InvalidFile) as caught:
        check_solver(parse("base_lr: 1\nlr_policy: 'fixed'\nsolver_type: SDG", "s.prototxt"), LAYERS, OPTIMIZERS)
    assert caught.value.errors[0].startswith("s.prototxt:3:14: solver_type: expected 'SGD', 'NESTEROV'")


def test_the_oldest_form_is_one_error():
    text = 'layers { layer { name: "a" type: "conv" } }\n' * 3
    assert [error[:21] for error in errors(text)] == ["old.prototxt:1:10: la"]
