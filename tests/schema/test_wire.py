"""Caffe's binary format: what is written is read again, by us and by protobuf; bad bytes are refused in words."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from minidnn import zoo
from minidnn.layers import rows
from minidnn.nets.net import Net
from minidnn.schema import InvalidFile, SolverParameter, check_net, check_solver, plain, prototext, wire
from minidnn.schema.binary import BinaryNet, BlobProto
from minidnn.schema.blobs import Picture, blob, datum, datum_of, mean, message
from minidnn.schema.document import Document
from minidnn.schema.wire import Reader, head, message_bytes, sized, varint
from minidnn.training import caffemodel
from tests.schema.test_prototext import DATA
from tests.support.descriptor import classes

NET = Net.from_text(
    DATA
    + """layer {
      name: "c" type: "Convolution" bottom: "data" top: "c" loss_weight: 0.1 propagate_down: true
      param { lr_mult: 0.1 } include { phase: TEST stage: "é" min_level: -3 }
      convolution_param {
        num_output: 4 kernel_size: [3, 2] bias_term: false weight_filler { type: 'msra' std: 1e-7 }
      }
    }
    layer { name: "r" type: "Softmax" bottom: "data" top: "r" softmax_param { axis: -1 engine: CUDNN } }
    """,
    source="n.prototxt",
)


def values(raw: bytes, model=BinaryNet):
    return Reader(lambda at, size: raw[at : at + size], len(raw), "f.caffemodel").message(model)


def refusal(raw: bytes, model=BinaryNet) -> str:
    with pytest.raises(InvalidFile) as caught:
        values(raw, model)
    return str(caught.value)


@cache  # loaded by the tests that run, and not by each process that collects them
def net_of(name: str) -> Net:
    return NET if name == "small" else zoo.load(name)


@pytest.mark.parametrize("name", ["small", "googlenet", "resnet18"])
def test_a_net_is_read_as_it_was_written(name):
    from minidnn.layers import LAYERS

    net = net_of(name)
    raw = message_bytes(net.parameter)
    assert check_net(Document(values(raw)), LAYERS).parameter == net.parameter
    protobuf = classes()["BinaryNet"].FromString(raw)
    assert [layer.name for layer in protobuf.layer] == [layer.name for layer in net.layers]


@pytest.mark.parametrize("name", ["small", "googlenet"])
def test_protobuf_s_own_text_and_bytes_are_ours(name):
    made, net = classes(), net_of(name)
    from google.protobuf import text_format

    parsed = text_format.Parse(net.to_prototxt(), made["BinaryNet"]())
    assert parsed == made["BinaryNet"].FromString(message_bytes(net.parameter))
    assert Net.from_text(text_format.MessageToString(parsed, as_utf8=True), source="p.prototxt") == net
    assert values(parsed.SerializeToString()) == values(message_bytes(net.parameter))


def test_solvers_have_protobuf_s_text_and_bytes():
    made = classes()
    from google.protobuf import text_format

    from minidnn.layers import LAYERS
    from minidnn.optimizers import OPTIMIZERS

    fields = {"base_lr": 0.1, "lr_policy": "step", "gamma": 0.1, "stepsize": 5, "solver_mode": "CPU", "random_seed": -7}
    solver = check_solver(Document({**fields, "net_param": plain(NET.parameter)}), LAYERS, OPTIMIZERS)
    parsed = text_format.Parse(prototext.dump(solver), made["SolverParameter"]())
    assert parsed == made["SolverParameter"].FromString(message_bytes(solver))
    again = check_solver(Document(values(message_bytes(solver), SolverParameter)), LAYERS, OPTIMIZERS)
    assert plain(again) == plain(solver)


def file_of(tmp_path, raw: bytes):
    path = tmp_path / "f.binaryproto"
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("kind", ["data", "double_data"])
@pytest.mark.parametrize("old", [True, False])
def test_arrays(tmp_path, packed, kind, old):
    array = np.random.default_rng(1).standard_normal((1, 3, 2, 5)).astype("<f4" if kind == "data" else "<f8")
    number, fixed = (5, 5) if kind == "data" else (8, 1)
    if packed:  # in two parts, as protobuf allows
        flat = array.reshape(-1)
        raw = sized(number, flat[:7].tobytes()) + sized(number, flat[7:].tobytes())
    else:
        raw = b"".join(varint(number << 3 | fixed) + value.tobytes() for value in array.reshape(-1))
    if old:
        raw += b"".join(varint(i << 3) + varint(n) for i, n in zip((1, 2, 3, 4), array.shape, strict=True))
    else:
        raw += sized(7, b"".join(varint(1 << 3) + varint(n) for n in array.shape))
    path = file_of(tmp_path, raw)
    found = blob(*message(path, BlobProto), "it")
    assert found.shape == array.shape and np.array_equal(found.whole(), array) and found.dtype == array.dtype
    assert np.array_equal(found.read(5, 9), array.reshape(-1)[5:9])
    assert np.array_equal(mean(path), array[0].astype(np.float32))
    protobuf = classes()["BlobProto"].FromString(raw)
    assert list(getattr(protobuf, kind)) == array.reshape(-1).tolist()


def test_a_datum(tmp_path):
    made = classes()["Datum"](channels=2, height=1, width=3, label=7, data=bytes(range(6)))
    found = datum(file_of(tmp_path, made.SerializeToString()))
    image, label = found.content, found.label
    assert (image.tolist(), image.dtype, label) == ([[[0, 1, 2]], [[3, 4, 5]]], np.uint8, 7)
    made = classes()["Datum"](channels=1, height=1, width=2, float_data=[0.5, -1])
    assert datum(file_of(tmp_path, made.SerializeToString())).content.tolist() == [[[0.5, -1]]]
    made = classes()["Datum"](encoded=True, data=b"a JPEG", label=3)
    assert datum(file_of(tmp_path, made.SerializeToString())) == Picture(3, b"a JPEG")


@pytest.mark.parametrize("content", [b"a JPEG", np.ones((2, 1, 3), np.uint8), np.ones((2, 1, 3), np.float32)])
def test_a_datum_is_written_as_protobuf_writes_it(content):
    given = classes()["Datum"].FromString(raw := Picture(300, content).to_bytes())
    assert given.label == 300 and given.encoded == isinstance(content, bytes)
    read = datum_of(raw, "a record")
    assert read.label == 300 and np.array_equal(np.asarray(read.content), np.asarray(content))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"\x80", "at byte 0, a number does not end"),
        (b"\xff" * 20, "at byte 0, a number does not end"),
        (head(1, 100) + b"abc", "at byte 2, name goes on for 97 bytes after its message's end"),
        (varint(1 << 3 | 3), "name has the wire type 3"),
        (varint(5 << 3 | 5) + b"ab", "force_backward goes on for 2 bytes"),
        (sized(1, b"\xff\xfe"), "at byte 2, name is not UTF-8 text"),
        (sized(100, sized(5, b"abc")), "loss_weight has 3 bytes, which are not whole numbers"),
    ],
)
def test_bytes_that_are_no_message(raw, expected):
    text = refusal(raw)
    assert (
        text.startswith(f"f.caffemodel: truncated, or not a BinaryNet ({len(raw)} bytes): at byte") and expected in text
    )


def test_limits(monkeypatch):
    monkeypatch.setattr(wire, "FIELDS", 1000)
    assert "more than 1000 fields" in refusal(b"\x28\x01" * 1001)
    assert "more than 1000 fields" in refusal(sized(100, sized(5, bytes(4 * 1001))))
    nested = b""
    for _ in range(1000):
        nested = sized(25, nested)
    assert values(nested) == {"#25": None}, "what is not known is not entered"


def test_an_unknown_field_is_refused_as_in_a_text():
    from minidnn.layers import LAYERS

    raw = message_bytes(NET.parameter) + sized(300, b"abc")
    with pytest.raises(InvalidFile, match="there is no field '#300'"):
        check_net(Document(values(raw), what="f"), LAYERS)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"shape": {"dim": [2, 3]}, "data": []}, r"it has the shape \(2, 3\), but 0 numbers"),
        ({"shape": {"dim": [0]}}, "dim.0"),
        ({"shape": 5}, "shape"),
        ({"num": -1, "data": []}, "it has the shape"),
        ({"num": "x"}, "num"),
        ([], "it"),
    ],
)
def test_arrays_that_are_none(tmp_path, given, expected):
    file, _ = message(file_of(tmp_path, b""), BlobProto)
    with pytest.raises(InvalidFile, match=expected):
        blob(file, given, "it")


def test_weights_are_read_as_they_were_written_and_protobuf_reads_them(tmp_path):
    rng = np.random.default_rng(3)
    weights = {"c": [rng.standard_normal((4, 3, 3, 2)).astype(np.float32), np.float32([np.nan, -0.0, 1e-45, np.inf])]}
    path = tmp_path / "w.caffemodel"
    given = {layer: [rows.of(value) for value in blobs] for layer, blobs in weights.items()}
    path.write_bytes(b"".join(caffemodel.pieces(NET.parameter, given)))
    found = caffemodel.read(path)
    assert {name: values.whole().tobytes() for name, values in found.items()} == {
        f"c/{i}": value.tobytes() for i, value in enumerate(weights["c"])
    }
    protobuf = classes()["BinaryNet"].FromString(path.read_bytes())
    (layer,) = [layer for layer in protobuf.layer if layer.blobs]
    assert layer.name == "c" and list(layer.blobs[0].shape.dim) == [4, 3, 3, 2]
    assert np.float32(layer.blobs[0].data).tobytes() == weights["c"][0].tobytes()
    assert Net.from_file(path) == NET


def test_a_file_that_changes_meanwhile_is_refused(tmp_path):
    path = file_of(tmp_path, sized(5, bytes(12)) + sized(7, sized(1, varint(3))))
    found = blob(*message(path, BlobProto), "it")
    path.write_bytes(b"")
    with pytest.raises(InvalidFile, match=r"f\.binaryproto: changed while it was read"):
        found.whole()


def test_weights_of_two_gibibytes_are_refused_before_a_byte_is_written():
    huge = rows.full((2**29,), 0.0, np.dtype("<f4"))
    with pytest.raises(caffemodel.TooLarge, match=r"a \.caffemodel holds less than 2 GiB; write \.safetensors"):
        next(caffemodel.pieces(NET.parameter, {"c": [huge]}))
