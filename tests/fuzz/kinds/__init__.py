"""The kinds of input, by name."""

from __future__ import annotations

from tests.fuzz.kind import Kind
from tests.fuzz.kinds import (
    arguments,
    caffe,
    gpu,
    idx,
    net,
    npz,
    onnx,
    plan,
    prototxt,
    snapshot,
    solver,
    training,
    yaml,
)

KINDS: dict[str, Kind] = {
    module.KIND.name: module.KIND
    for module in (arguments, yaml, prototxt, net, solver, plan, snapshot, caffe, onnx, npz, idx, gpu, training)
}
