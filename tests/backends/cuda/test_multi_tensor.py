"""One launch for many tensors: tables of pointers by value, and nets with one parameter or more than a table holds, on
a CUDA of the host's memory. (Kernel by kernel: test_kernels.py, test_reductions.py. Which ops: tests/programs.)"""

from __future__ import annotations

import numpy as np
import pytest

import minidnn
from minidnn.backends.cuda.recipe import Read, Table, Write
from minidnn.nets.net import Net
from minidnn.program import MULTI_TENSOR
from minidnn.programs.fusion import multi_tensor
from tests.support.cuda import host as cuda_host
from tests.support.cuda.fake import fake_device
from tests.support.cuda.op_examples import all_examples

pytestmark = [
    pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++ to run CUDA sources with"),
    pytest.mark.extended,
]


def test_a_table_s_bytes_are_those_of_a_struct_of_arrays():
    columns = ((Read(1), Write(0)), (np.int64(-5), np.int64(7)), (np.int32(3), np.int32(4)), (np.uint8(1), np.uint8(0)))
    table = Table(3, columns)
    packed = table.packed(lambda a: a if isinstance(a, np.generic) else np.uint64(1000 + a.index))
    want = np.zeros(1, [("p", "u8", 3), ("n", "i8", 3), ("first", "i4", 3), ("wide", "u1", 3), ("pad", "u1", 1)])
    want["p"], want["n"], want["first"], want["wide"] = (1001, 1000, 0), (-5, 7, 0), (3, 4, 0), (1, 0, 0)
    assert packed.tobytes() == want.tobytes() and packed.nbytes % 8 == 0
    assert list(table.pointers) == [Read(1), Write(0)]


def test_every_launch_s_parameters_are_within_what_cuda_takes():
    device, most = cuda_host.HostCuda(), 0
    for e in (e for e in all_examples() if e.op.kind in device.kinds):
        for recipe in device.recipes(e.op):
            for step in recipe.steps:
                most = max(most, sum(-(-v.nbytes // 8) * 8 for v in step.values(lambda _: 0)))
    assert 3000 < most <= 4096


def net(layers: int, bias: bool) -> Net:
    text = ["name: net", "layer:"]
    text.append("- {name: data, type: Input, top: x0, input_param: {shape: {dim: [4, 5]}}}")
    text.append("- {name: label, type: Input, top: label, input_param: {shape: {dim: 4}}}")
    for k in range(layers):
        p = f"{{num_output: 5, bias_term: {str(bias).lower()}, weight_filler: {{type: xavier}}}}"
        text.append(f"- {{name: ip{k}, type: InnerProduct, bottom: x{k}, top: x{k + 1}, inner_product_param: {p}}}")
    text.append(f"- {{name: loss, type: SoftmaxWithLoss, bottom: [x{layers}, label], top: loss}}")
    return Net.from_text("\n".join(text))


def trained(made: Net, policy: str, fuse: bool, format: str, seed: int = 0) -> tuple[dict[str, bytes], list[int]]:
    random = np.random.default_rng(7)
    data = random.standard_normal((8, 5)).astype(np.float32), random.integers(0, 5, 8).astype(np.int32)
    p = dict(base_lr=0.1, momentum=0.9, weight_decay=5e-4, lr_policy="fixed", max_iter=9, seed=3, data=data)
    device = fake_device(seed)
    with minidnn.Solver(made, policy=policy, device=device, fuse=fuse, format=format, **p) as solver:
        for _ in range(4):
            solver.step()
        assert device.api.replays, "the table is part of the graph"
        found = [len(op.members) for op in solver.session.programs["TRAIN"].ops if op.kind.endswith(MULTI_TENSOR)]
        return {name: array.tobytes() for name, array in solver.values().items()}, found


@pytest.mark.parametrize("format", ["float32", "bfloat16"])
@pytest.mark.parametrize(("layers", "bias"), [(1, False), pytest.param(65, True, marks=pytest.mark.slow)])
def test_nets_with_one_parameter_or_very_many(layers, bias, format, monkeypatch):
    monkeypatch.setattr(multi_tensor, "WAITING", 100)
    if format != "float32":
        pytest.importorskip("ml_dtypes")
    want, none = trained(net(layers, bias), "baseline:m", False, format)
    assert none == []
    for seed, policy in enumerate(("liveness:m", "vdnn_all:m")):
        got, several = trained(net(layers, bias), policy, True, format, seed)
        assert got == want and several == ([130] * (1 if format == "float32" else 2) if layers > 1 else [])
