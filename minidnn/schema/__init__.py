"""The language of files: Caffe's fields, types and defaults, and errors with a place and a suggestion."""

from __future__ import annotations

from minidnn.schema import prototext
from minidnn.schema.caffe import LayerParameter, NetParameter
from minidnn.schema.checks import (
    PHASES,
    CheckedNet,
    Problem,
    check_net,
    check_solver,
    in_caffe_s_words,
    load_net,
    load_solver,
    message_of,
    several,
    wiring,
)
from minidnn.schema.common import FillerParameter, NetState
from minidnn.schema.document import Document, InvalidFile, quote
from minidnn.schema.files import parse, read
from minidnn.schema.message import Message, Repeated
from minidnn.schema.plain import plain
from minidnn.schema.solver import SolverParameter
from minidnn.schema.table import present
from minidnn.schema.yaml import dump

__all__ = [
    "PHASES",
    "CheckedNet",
    "Document",
    "FillerParameter",
    "InvalidFile",
    "LayerParameter",
    "Message",
    "NetParameter",
    "NetState",
    "Problem",
    "Repeated",
    "SolverParameter",
    "check_net",
    "check_solver",
    "dump",
    "in_caffe_s_words",
    "load_net",
    "load_solver",
    "message_of",
    "parse",
    "plain",
    "present",
    "prototext",
    "quote",
    "read",
    "several",
    "wiring",
]
