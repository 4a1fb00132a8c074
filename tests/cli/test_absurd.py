"""Sizes that no machine has: each ends in one line, naming the layer or the place, and the number; exit code 2."""

from __future__ import annotations

import re

import numpy as np
import pytest

from minidnn.backends import reference
from minidnn.backends.cpu import CpuDevice
from minidnn.cli.main import main
from minidnn.layers.base import ELEMENTS
from minidnn.program import Op, Pass, Tensor
from tests.support.op_examples import attrs

NET = """name: absurd
layer:
- {{name: data, type: Input, top: [data, label], input_param: {{shape: [{{dim: {dim}}}, {{dim: [4]}}]}}}}
- {{name: huge, type: {type}, bottom: data, top: huge{message}}}
- {{name: ip, type: InnerProduct, bottom: huge, top: ip, inner_product_param: {{num_output: 5}}}}
- {{name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}}
"""
IMAGES = "[4, 4, 16, 16]"
AT_MOST = "expected at most 2147483647, got"
EVERYWHERE = (["--device", "cpu"], ["--device", "reference"], ["--gpu", "titan_x"])


def fails(capsys, path, verb: str, *options: str) -> str:
    assert main([verb, str(path), *options]) == 2
    said = capsys.readouterr().err
    assert "internal error" not in said and "Traceback" not in said
    return said


@pytest.mark.parametrize(
    ("type", "fields", "dim", "words"),
    [
        ("Convolution", "num_output: 2147483648, kernel_size: 1", IMAGES, f"num_output: {AT_MOST} 2147483648"),
        ("Convolution", "num_output: 4, kernel_size: 3, stride: 1099511627776", IMAGES, f"stride: {AT_MOST} 10995"),
        ("Convolution", "num_output: 4, kernel_size: 1, group: 1000000000000", IMAGES, f"group: {AT_MOST} 1000000"),
        ("Convolution", "num_output: 4, kernel_size: 1, dilation: 1e30", IMAGES, "dilation: "),
        ("Convolution", "num_output: 4, kernel_size: 3, dilation: 1000000000", IMAGES, "'huge'.* 2000000001 .*not fit"),
        ("Convolution", "num_output: 4, kernel_size: 3, pad: 1000000000", IMAGES, "'huge'.* 4x4x2000000016x2000000016"),
        ("Convolution", "num_output: 4, kernel_size: 9000000, pad: 4500000", IMAGES, "'huge'.* 4x4x9000016x9000016"),
        ("Convolution", "num_output: -4, kernel_size: 3", IMAGES, "num_output: expected at least 1, got -4"),
        ("InnerProduct", "num_output: 1000000000000", IMAGES, f"num_output: {AT_MOST} 1000000000000"),
        ("InnerProduct", "num_output: 2147483647", "[4, 4, 256, 256]", "'huge'.*parameter w of 2147483647x4x256x256"),
        ("Pooling", "kernel_size: 1000000000, pad: 999999999", IMAGES, "'huge'.*padded bottom of 4x4x2000000014"),
        ("Pooling", f"kernel_size: 3, stride: 1{'0' * 39}", IMAGES, "stride: expected at most 2147483647, got 10000"),
        ("Pooling", "kernel_size: 1000000, pad: 500000", IMAGES, "'huge'.* window of 1000000x1000000 has more"),
        ("LRN", "local_size: 1180591620717411303425", IMAGES, f"local_size: {AT_MOST} 118059"),
        ("LRN", "local_size: 1000000001, norm_region: WITHIN_CHANNEL", IMAGES, "'huge'.* local_size 1000000001 "),
        ("Concat", "axis: 1000000000000", IMAGES, f"axis: {AT_MOST} 1000000000000"),
        ("Concat", "axis: 100", IMAGES, "axis 100 does not exist in a bottom of shape 4x4x16x16"),
        ("ReLU", "negative_slope: 0.0", "[4, 4611686018427387904]", f"dim.*{AT_MOST} 4611686018427387904"),
        ("ReLU", "negative_slope: 0.0", "[4, 2147483647, 2147483647]", "'data'.*its top 'data' of 4x2147483647x21474"),
        ("ReLU", "negative_slope: 0.0", f"[4{', 1' * 32}]", "expected at most 32 axes, got 33"),
        ("Dropout", "dropout_ratio: 1.0", IMAGES, "dropout_ratio: expected less than 1"),
    ],
)  # fmt: skip
def test_what_no_machine_has_is_refused_by_name(tmp_path, capsys, type, fields, dim, words):
    names = {"InnerProduct": "inner_product", "ReLU": "relu", "LRN": "lrn"}
    message = f", {names.get(type, type.lower())}_param: {{{fields}}}"
    path = tmp_path / "net.yaml"
    path.write_text(NET.format(type=type, message=message, dim=dim))
    for where in EVERYWHERE:
        said = fails(capsys, path, "plan", *where)
        assert re.search(words, said) and "net.yaml:" in said and said.count("\n") == 1, said
    fails(capsys, path, "time", "--device", "cpu")
    fails(capsys, path, "compare", "--gpu", "titan_x")


def test_a_batch_that_no_machine_has(tmp_path, capsys):
    path = tmp_path / "net.yaml"
    path.write_text(NET.format(type="ReLU", message="", dim=IMAGES))
    assert "batch: expected at least 1 and at most 2147483647" in fails(capsys, path, "plan", "--batch", str(10**15))


def test_more_axes_than_onednn_has_are_the_references(tmp_path, capsys):
    path = tmp_path / "net.yaml"
    path.write_text(NET.format(type="ReLU", message="", dim=f"[4{', 2' * 12}]"))
    assert main(["time", str(path), "--device", "cpu", "--iterations", "1"]) == 0


def test_what_onednn_refuses_is_named():
    device = CpuDevice()
    if device.dnnl is None:
        pytest.skip(device.description)
    x, w, y = Tensor("x", (1, 1, 8, 8)), Tensor("w", (1, 1, 3, 3)), Tensor("y", (1, 1, 9, 9))
    a = attrs(kernel=(3, 3), stride=(1, 1), pad=(0, 0), dilation=(1, 1), group=1)
    op = Op("big.forward", "convolution.forward", "big", Pass.FORWARD, (x, w), (y,), a)
    with pytest.raises(reference.TooLarge, match=r"layer big: oneDNN refuses convolution.forward .* y 1x1x9x9"):
        device.algorithms(op)


def test_the_references_temporaries_are_named():
    huge = int(ELEMENTS**0.5) // 2
    x, w, y = np.ones((1, 1, 8, 8), np.float32), np.ones((1, 1, 3, 3), np.float32), np.ones((1, 1, 1, 1), np.float32)
    a = attrs(kernel=(3, 3), stride=(2**31, 2**31), pad=(huge, huge), dilation=(1, 1), group=1)
    tensors = [Tensor(name, array.shape) for name, array in (("x", x), ("w", w), ("y", y))]
    op = Op("c.forward", "convolution.forward", "c", Pass.FORWARD, tuple(tensors[:2]), (tensors[2],), a)
    with pytest.raises(reference.TooLarge, match=r"layer c: the reference's convolution.forward works on arrays"):
        reference.bound(op, [x, w], [y])()


@pytest.mark.parametrize("size", ["9" * 400, "9000000000GiB", "0.1", "-1", "nan", "1GiBB"])
def test_sizes_that_are_none(capsys, size):
    with pytest.raises(SystemExit) as end:
        main(["plan", "lenet", "--gpu", "titan_x", f"--budget={size}"])
    said = capsys.readouterr().err
    assert end.value.code == 2 and "is not a size" in said and len(said.splitlines()[-1]) < 200
