"""The loss that a net without one lacks: what fits its last output, and the lines that add it."""

from __future__ import annotations

import re

import pytest

import minidnn
from minidnn.errors import InvalidInput
from minidnn.nets.loss import has_loss, lacking, remedy

HEAD = """name: deploy
layer:
- {{name: x, type: Input, top: x, input_param: {{shape: {{dim: [2, 3, 8, 8]}}}}}}
- {{name: ip, type: InnerProduct, bottom: x, top: ip, inner_product_param: {{num_output: {count}}}}}
"""
SPATIAL = """name: deploy
layer:
- {name: x, type: Input, top: x, input_param: {shape: {dim: [2, 3, 8, 8]}}}
- {name: c, type: Convolution, bottom: x, top: c, convolution_param: {num_output: 4, kernel_size: 3}}
"""
CASES = {  # {what: (the net, the loss, what it reads, the shape of the labels or targets)}
    "scores": (HEAD.format(count=5), "SoftmaxWithLoss", "ip", [2]),
    "probabilities": (
        HEAD.format(count=5) + "- {name: p, type: Softmax, bottom: ip, top: p}\n", "SoftmaxWithLoss", "ip", [2],
    ),
    "one number": (HEAD.format(count=1), "EuclideanLoss", "ip", [2, 1]),
    "a sigmoid": (
        HEAD.format(count=5) + "- {name: s, type: Sigmoid, bottom: ip, top: s}\n", "SigmoidCrossEntropyLoss", "ip",
        [2, 5],
    ),
    "pixels": (SPATIAL, "SoftmaxWithLoss", "c", [2, 1, 6, 6]),
    "along another axis": (
        SPATIAL + "- {name: p, type: Softmax, bottom: c, top: p, softmax_param: {axis: -1}}\n", "SoftmaxWithLoss", "c",
        [2, 4, 6, 1],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_loss_that_fits(case):
    text, kind, scores, shape = CASES[case]
    net = minidnn.Net.from_text(text)
    source, loss = lacking(net.graph("TRAIN"))[0]
    assert (loss["type"], loss["bottom"][0], source["input_param"]["shape"][0]["dim"]) == (kind, scores, shape)
    whole = net.with_loss()
    assert has_loss(whole.graph("TRAIN")) and whole.with_loss() is whole and not has_loss(net.graph("TRAIN"))
    assert minidnn.plan(whole, device="reference").document.phase == "TRAIN"


def test_an_output_that_was_overwritten_is_read_from_before():
    text = HEAD.format(count=5) + "- {name: p, type: Softmax, bottom: ip, top: ip}\n"
    net = minidnn.Net.from_text(text, source="net.yaml")
    _, replaced = lacking(net.graph("TRAIN"))
    assert replaced is not None and replaced.name == "p"
    assert [layer.type for layer in net.with_loss().layers] == ["Input", "InnerProduct", "Input", "SoftmaxWithLoss"]
    assert "put in place of layer 'p' of net.yaml:" in remedy(net.graph("TRAIN"))


def test_labels_that_are_there_are_taken():
    data = '- {name: data, type: Data, top: [x, t], data_param: {source: "synthetic:3x8x8:classes=5", batch_size: 2}}'
    text = re.sub(r"- \{name: x, .*", data, HEAD.format(count=5))
    layers, _ = lacking(minidnn.Net.from_text(text).graph("TRAIN"))
    assert [(layer["type"], layer["bottom"]) for layer in layers] == [("SoftmaxWithLoss", ["ip", "t"])]


def test_names_that_are_taken():
    text = HEAD.format(count=5).replace("x", "label").replace("ip", "loss").replace("inner", "inner")
    text = text.replace("clabel", "cx")
    layers, _ = lacking(minidnn.Net.from_text(text).graph("TRAIN"))
    assert [layer["name"] for layer in layers] == ["label1", "loss1"]


@pytest.mark.parametrize("suffix", ["prototxt", "yaml"])
def test_the_lines_of_the_remedy_can_be_appended(tmp_path, suffix):
    net = minidnn.Net.from_text(CASES["probabilities"][0])
    file = tmp_path / f"net.{suffix}"
    file.write_text(net.to_yaml() if suffix == "yaml" else net.to_prototxt())
    told = remedy(minidnn.load(file).graph("TRAIN"))
    lines = told.partition(f"append to {file}: ")[2]
    lines = lines.replace("} - {", "}\n- {") if suffix == "yaml" else lines
    file.write_text(f"{file.read_text()}\n{lines}\n")
    assert minidnn.plan(str(file), device="reference").document.phase == "TRAIN"


def test_nothing_to_compare():
    net = minidnn.Net.from_text("layer:\n- {name: x, type: Input, top: x, input_param: {shape: {dim: [2, 3]}}}\n")
    with pytest.raises(InvalidInput, match="gives an output that a loss could compare"):
        net.with_loss()
