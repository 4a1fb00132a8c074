"""The kinds of input, by name."""

from __future__ import annotations

from tests.fuzz.kind import Kind
from tests.fuzz.kinds import (
    arguments,
    caffe,
    cifar,
    gpu,
    hdf5,
    idx,
    lmdb,
    net,
    npz,
    onnx,
    pictures,
    plan,
    prototxt,
    snapshot,
    solver,
    tar,
    training,
    yaml,
)

NETS = (arguments, yaml, prototxt, net, solver, plan, snapshot, caffe, onnx, gpu, training)
DATA = (npz, idx, hdf5, lmdb, tar, pictures, cifar)
KINDS: dict[str, Kind] = {module.KIND.name: module.KIND for module in (*NETS, *DATA)}
