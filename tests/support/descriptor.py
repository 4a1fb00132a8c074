"""protobuf's own descriptor of the schema's table: an independent reader and writer of Caffe's files."""

from __future__ import annotations

from typing import Any

from minidnn.schema.binary import BinaryNet, Datum, SolverState
from minidnn.schema.solver import SolverParameter
from minidnn.schema.table import fields

ROOTS = (BinaryNet, SolverParameter, SolverState, Datum)
PACKED = {"data", "diff", "double_data", "double_diff"}


def classes() -> dict[str, Any]:
    """protobuf's class of each message, by name."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="net.proto", package="net", syntax="proto2")
    models = list(ROOTS)
    for model in models:  # it grows
        made = file.message_type.add(name=model.__name__)
        for field in fields(model).values():
            if field.number is None:
                continue
            f = made.field.add(name=field.name, number=field.number)
            f.label = f.LABEL_REPEATED if field.repeated and field.itemsize != 1 else f.LABEL_OPTIONAL
            f.type = {4: f.TYPE_FLOAT, 8: f.TYPE_DOUBLE, 1: f.TYPE_BYTES}.get(field.itemsize) or {
                "float": f.TYPE_FLOAT, "int": f.TYPE_INT64, "bool": f.TYPE_BOOL, "string": f.TYPE_STRING,
                "enum": f.TYPE_ENUM, "message": f.TYPE_MESSAGE,
            }[field.kind]  # fmt: skip
            if field.name in PACKED and field.itemsize in (4, 8) and model is not Datum:
                f.options.packed = True
            if field.kind == "enum":
                enum = made.enum_type.add(name=f"Of_{field.name}")
                for i, word in enumerate(field.words):
                    enum.value.add(name=word, number=field.first + i)
                f.type_name = f".net.{model.__name__}.Of_{field.name}"
            if field.model is not None:
                f.type_name = f".net.{field.model.__name__}"
                if field.model not in models:
                    models.append(field.model)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = [model.__name__ for model in models]
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"net.{name}")) for name in names}
