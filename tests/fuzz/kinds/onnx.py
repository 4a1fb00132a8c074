"""ONNX models, with a file of weights beside them: refused with the file's name, or a net that is read again."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from minidnn.nets.net import Net
from minidnn.training.tensor_file import SUFFIX
from tests.fuzz.kind import Fault, Kind, command, readable, same
from tests.fuzz.pieces import BORDERS, TEXTS, damaged, pick

FILE, BESIDE, NET, WEIGHTS = "m.onnx", "m.onnx.data", "net.yaml", "weights" + SUFFIX
DATA = np.linspace(-1, 1, 64, dtype=np.float32)  # what lies beside the model
INTEGERS = [n for n in BORDERS if isinstance(n, int) and -(2**63) <= n < 2**63]
FLOATS = [n for n in BORDERS if isinstance(n, float)]
NAMES = ["x", "y", "w", "b", "c", "h", "", "X", *(text for text in TEXTS if text.isprintable() or "\x1b" in text)]
LENGTHS = [0, 1, 2, 3, 4, 16, 1000, 10**6, 10**9, 2**31, 2**62, -1, -(2**63)]
OPERATORS = [
    "Relu", "Add", "Sub", "Mul", "Div", "Mod", "Pow", "Gemm", "MatMul", "Conv", "MaxPool", "AveragePool",
    "BatchNormalization", "LayerNormalization", "Softmax", "Reshape", "Flatten", "Transpose", "Slice", "Split",
    "Gather", "Concat", "Squeeze", "Unsqueeze", "ReduceMean", "ReduceSum", "Expand", "Tile", "Range",
    "ConstantOfShape", "Where", "Cast", "Pad", "Resize", "OneHot", "EyeLike", "Trilu", "CumSum", "NonZero",
    "ScatterND", "GatherND", "Shape", "Size", "Identity", "Dropout", "Clip", "Equal", "If", "Loop", "Scan",
    "RandomNormal", "Einsum", "Constant", "Erf", "Min",
]  # fmt: skip
info = helper.make_tensor_value_info


def packed(nodes: list[Any], values: list[Any], shape: tuple[int, ...] = (2, 4), version: int = 17) -> bytes:
    graph = helper.make_graph(nodes, "g", [info("x", 1, shape)], [info("y", 1, [2])], initializer=values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8).SerializeToString()


def numbers(name: str, value: Any, kind: Any = np.float32) -> Any:
    with np.errstate(over="ignore"):  # of what float32 does not hold
        return numpy_helper.from_array(np.array(value, kind), name)


def beside(name: str, shape: tuple[int, ...], offset: int) -> Any:
    """A tensor whose data lie in the file beside the model."""
    tensor = TensorProto(name=name, data_type=1, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", BESIDE), ("offset", offset), ("length", 4 * int(np.prod(shape)))):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


@cache
def models() -> list[bytes]:
    """Good models."""
    node = helper.make_node
    mlp = [
        node("Gemm", ["x", "w", "b"], ["h"], transB=1), node("Relu", ["h"], ["r"]), node("MatMul", ["r", "v"], ["s"]),
        node("Softmax", ["s"], ["y"]),
    ]  # fmt: skip
    images = [
        node("Conv", ["x", "w", "b"], ["h"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("BatchNormalization", ["h", "b", "b", "m", "m"], ["n"]),
        node("MaxPool", ["n"], ["p"], kernel_shape=[2, 2]), node("Flatten", ["p"], ["y"]),
    ]  # fmt: skip
    folded = [
        node("Shape", ["x"], ["s"]), node("Gather", ["s", "one"], ["n"]), node("Unsqueeze", ["n", "zeros"], ["u"]),
        node("Concat", ["zeros", "u"], ["shape"], axis=0), node("Reshape", ["x", "shape"], ["r"]),
        node("Range", ["zero", "n", "one"], ["at"]), node("Cast", ["at"], ["f"], to=1), node("Cos", ["f"], ["cos"]),
        node("Mul", ["r", "cos"], ["t"]), node("Slice", ["t", "zeros", "ones", "ones"], ["y"]),
    ]  # fmt: skip
    mask = [
        node("ConstantOfShape", ["square"], ["c"], value=numbers("", [1])), node("Trilu", ["c"], ["t"], upper=0),
        node("Equal", ["t", "nought"], ["e"]), node("Where", ["e", "low", "nought"], ["m"]),
        node("Expand", ["m", "cube"], ["l"]), node("Squeeze", ["l", "zeros"], ["k"]), node("Add", ["x", "k"], ["y"]),
    ]  # fmt: skip
    whole = np.int64
    return [
        packed(mlp, [numbers("w", np.ones((3, 4))), numbers("b", np.zeros(3)), numbers("v", np.ones((3, 2)))]),
        packed(mlp, [beside("w", (3, 4), 0), beside("b", (3,), 48), beside("v", (3, 2), 60)]),
        packed(
            images, [numbers("w", np.ones((4, 3, 3, 3))), numbers("b", np.ones(4)), numbers("m", np.ones(4))],
            (2, 3, 8, 8),
        ),
        packed(
            folded, [numbers("one", 1, whole), numbers("zeros", [0], whole), numbers("ones", [1], whole),
                     numbers("zero", 0, whole)],
        ),
        packed(
            mask, [numbers("square", [4, 4], whole), numbers("cube", [1, 4, 4], whole), numbers("nought", 0),
                   numbers("low", -1e9), numbers("zeros", [0], whole)], (4, 4),
        ),
    ]  # fmt: skip


@st.composite
def strange(draw: Any) -> bytes:
    """A few nodes of any operators, on constants of any lengths."""
    values = [
        numbers("w", draw(st.lists(st.sampled_from(LENGTHS), max_size=3)), np.int64),
        numbers("b", pick(draw, LENGTHS), np.int64),
        numbers("c", [1.0, -1.0, 0.5]),
        numbers("h", [pick(draw, FLOATS)]),
    ]
    nodes = []
    known = ["x", "w", "b", "c", "h", ""]
    for i in range(draw(st.integers(1, 5))):
        node = helper.make_node(
            pick(draw, OPERATORS), [pick(draw, known) for _ in range(draw(st.integers(0, 4)))], [f"v{i}"]
        )
        for name in draw(st.lists(st.sampled_from(["axis", "to", "axes", "perm", "value", "k", "mode"]), max_size=1)):
            some = [pick(draw, LENGTHS), [pick(draw, LENGTHS)], 1, [0], [1, 0], "edge", numbers("", [1])]
            node.attribute.append(helper.make_attribute(name, pick(draw, some)))
        nodes.append(node)
        known.append(f"v{i}")
    nodes.append(helper.make_node(pick(draw, ["Relu", "Add", "Reshape", "Expand"]), ["x", f"v{len(nodes) - 1}"], ["y"]))
    return packed(nodes, values, version=pick(draw, [17, 13, 18, 21, 9, 1, 0, 99]))


# ---- changes of fields


def messages(message: Any) -> list[Any]:
    """The message, and all within it."""
    result = [message]
    for field, value in message.ListFields():
        if field.message_type:
            for part in value if field.is_repeated else [value]:
                result += messages(part)
    return result


def changed(draw: Any, message: Any) -> None:
    """Change one field of a message: its value, its presence, its length."""
    fields = [field for field, _ in message.ListFields()] or list(message.DESCRIPTOR.fields)
    field = pick(draw, fields if pick(draw, [True] * 4 + [False]) else list(message.DESCRIPTOR.fields))
    name = field.name
    if not field.is_repeated:
        if field.message_type or pick(draw, [False] * 3 + [True]):
            message.ClearField(name)
        else:
            setattr(message, name, _value(draw, field))
        return
    values = getattr(message, name)
    if field.message_type:
        how = pick(draw, ["less", "twice", "order", "new"])
        if how == "new" or not len(values):
            values.add()
        elif how == "less":
            del values[draw(st.integers(0, len(values) - 1))]
        elif how == "twice":
            values.add().CopyFrom(values[draw(st.integers(0, len(values) - 1))])
        else:
            first = values[0]
            last = type(first)()
            last.CopyFrom(first)
            del values[0]
            values.add().CopyFrom(last)
    elif len(values) and pick(draw, [True, True, False]):
        values[draw(st.integers(0, len(values) - 1))] = _value(draw, field)
    elif len(values) and pick(draw, [True, False]):
        del values[draw(st.integers(0, len(values) - 1))]
    else:
        values.append(_value(draw, field))


def _value(draw: Any, field: Any) -> Any:
    if field.enum_type:
        return pick(draw, list(field.enum_type.values_by_number))
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return pick(draw, FLOATS)
    if field.type == field.TYPE_BYTES:
        return pick(draw, [b"", b"\0", b"\xff\xff", bytes(48), bytes(1000), b"\x1b[2J"])
    if field.type == field.TYPE_STRING:
        return pick(draw, NAMES + OPERATORS[:9])
    wide = field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64)
    least, most = (-(2**63), 2**63 - 1) if wide else (-(2**31), 2**31 - 1)
    if field.cpp_type in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64):
        least = 0
    return pick(draw, [n for n in [*INTEGERS, *LENGTHS] if least <= n <= most])


@st.composite
def files(draw: Any) -> bytes:
    if pick(draw, [False, False, True]):
        return draw(strange())
    data = pick(draw, models())
    how = pick(draw, ["whole", "bytes", "fields", "fields", "fields"])
    if how == "bytes":
        return draw(damaged(data, most=2))
    if how == "fields":
        model = onnx.ModelProto.FromString(data)
        for _ in range(draw(st.integers(1, 2))):
            changed(draw, pick(draw, messages(model)))
        return model.SerializePartialToString()
    return data


def check(data: bytes, folder: Path) -> bool:
    (folder / FILE).write_bytes(data)
    (folder / BESIDE).write_bytes(DATA.tobytes())
    ended = [command("convert", FILE, to) for to in (NET, WEIGHTS)]
    for one in ended:
        if one.code:
            readable(one.err, FILE)
    if ended[0].code != ended[1].code:
        raise Fault(f"its net and its weights end with {ended[0].code} and {ended[1].code}: {ended[1].err}")
    if ended[0].code:
        return False
    again = command("convert", NET, "again.yaml")
    same("the net's code when it is read again", again.code, 0)
    same("the net and what is read again", Net.from_file("again.yaml").parameter, Net.from_file(NET).parameter)
    return True


KIND = Kind("onnx", files(), check, 60)
