"""A small vision transformer: patches, a block of attention and of an MLP, written as layers. Beside it an embedding
and sums that are losses."""

from __future__ import annotations

import numpy as np
import pytest

import minidnn
from minidnn import L, Net
from minidnn.formats import FORMATS
from minidnn.layers import FACTS
from minidnn.memory.budget import BudgetError
from minidnn.program import Op, Pass, Tensor
from minidnn.programs.autodiff import NotTrainable, differentiate
from minidnn.programs.fusion import as_cuda, fused
from minidnn.training.session import Session
from minidnn.zoo import load
from tests.support.cuda import host as cuda_host
from tests.support.cuda.host import HostCuda
from tests.support.graphs import graph, layer, net
from tests.support.op_examples import Example, attrs, bare, compiled, run
from tests.support.paths import NET_FILES
from tests.support.trains import baseline, train, train_on_cuda


@pytest.mark.parametrize("net", ["attention", "decoder", "windows"])
@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("policy", ["vdnn_all:m", "layrub:m", "recompute_all:m"])
def test_training_gives_the_bytes_of_baseline(net, device, policy):
    want, losses, algorithms = baseline(net, device, "m")
    assert train(net, device, policy, debug=True) == (want, losses, algorithms)


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_attention_in_parts_has_the_same_bytes(device):
    """All but dropped probabilities, whose random numbers count over the batch: that layer runs as a whole."""
    want, losses, algorithms = train("decoder", device, "liveness:m@2", debug=True)
    assert {
        "attention1.forward[0:3]",
        "attention1.backward[0:3]",
    } <= algorithms.keys() and "attention2.forward" in algorithms
    assert train("decoder", device, "vdnn_all:m@2", debug=True) == (want, losses, algorithms)


def test_a_window_of_all_keys_is_none():
    """Kernels count places in 32 bits."""
    made = layer("type: Attention, bottom: a, top: b, attention_param: {num_heads: 1, window: 2147483647}")
    assert made.attrs([(1, 5, 9)]).window is None and made.attrs([(1, 5, 9)]).pairs == 25


def test_so_does_the_smallest_budget():
    with pytest.raises(BudgetError) as refused:
        train("attention", "cpu", "recompute_all:m", budget=1)
    want, losses, _ = baseline("attention", "cpu", "m")
    got, got_losses, _ = train("attention", "cpu", "recompute_all:m", debug=True, budget=refused.value.smallest)
    assert (got, got_losses) == (want, losses)


@pytest.mark.parametrize("net", ["attention", "decoder", "windows"])
def test_cpu_and_reference_train_alike(net):
    (_, ours, _), (_, theirs, _) = (baseline(net, device, "m") for device in ("cpu", "reference"))
    assert ours == pytest.approx(theirs, rel=1e-4)


@pytest.mark.extended
@pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++ to run CUDA sources with")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("format", FORMATS)
def test_cuda_trains_it_in_every_format(format):
    if format == "bfloat16":
        pytest.importorskip("ml_dtypes")
    want, got = (train_on_cuda("attention", format, policy) for policy in ("baseline:m", "vdnn_all:m"))
    assert [name for name in want if want[name].tobytes() != got[name].tobytes()] == []
    theirs = train_on_cuda("attention", "float32", "baseline:m")
    off = {"float32": 0, "float16": 2e-2, "bfloat16": 2e-1}[format]
    for name in ("q/w", "narrow/w", "words/w", "norm1/gamma"):
        assert np.abs(want[name] - theirs[name]).max() <= off * np.abs(theirs[name]).max(), name


@pytest.mark.extended
@pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++ to run CUDA sources with")
@pytest.mark.parametrize("net", ["decoder", "windows"])
def test_cuda_trains_the_biases_of_attention(net):
    """As the reference does, under any policy."""
    want, got = (train_on_cuda(net, "float32", policy) for policy in ("baseline:m", "vdnn_all:m"))
    assert [name for name in want if want[name].tobytes() != got[name].tobytes()] == []
    theirs = train_on_cuda(net, "float32", "baseline:m", "reference")
    for name in {"decoder": ("places/blob", "windows/blob", "loss/b"), "windows": ("bias/w",)}[net]:
        assert np.abs(want[name] - theirs[name]).max() <= 1e-3 * np.abs(theirs[name]).max(), name
        assert theirs[name].any()


def test_written_in_python_it_is_the_same_net():
    made = minidnn.load(NET_FILES / "attention.yaml")
    namespace = {}
    exec(made.to_python(), namespace)
    (written,) = (v for v in namespace.values() if isinstance(v, type) and issubclass(v, Net))
    assert written() == made and written().to_yaml() == made.to_yaml()


@pytest.mark.parametrize("facts", FACTS)
def test_all_facts_have_a_program(facts):
    kinds = {op.kind for op in differentiate(net("attention"), FACTS[facts]).ops}
    assert {"matmul.forward", "row_norm.backward_filter", "batch_reindex.backward", "reduction.backward"} <= kinds


def test_an_embedding_and_what_follows_have_the_net_s_format():
    made = load(NET_FILES / "attention.yaml").graph("TRAIN", format="float16")
    dtypes = {b.name: b.tensor.dtype for b in made.blobs}
    assert (dtypes["label"], dtypes["words"], dtypes["best"], dtypes["scores"]) == (
        "int32", "float16", "float32", "float16",
    )  # fmt: skip


def test_a_relu_s_backward_takes_no_bias_of_rows_with_several_axes():
    """The fused kernel sums over all axes but axis 1."""
    program = fused(differentiate(net("attention")), as_cuda)
    ops = {op.layer: op for op in program.ops if op.kind == "inner_product.backward_bias"}
    assert "rectified" in ops and not any(op.kind == "relu.backward_bias" for op in program.ops)


def test_no_gradient_goes_through_argmax():
    text = """
- {name: data, type: Input, top: data, input_param: {shape: {dim: [6, 9]}}}
- {name: ip, type: InnerProduct, bottom: data, top: ip, inner_product_param: {num_output: 5}}
- {name: best, type: ArgMax, bottom: ip, top: best}
- {name: sum, type: Reduction, bottom: best, top: sum, loss_weight: 1}
"""
    with pytest.raises(NotTrainable, match="ArgMax has no gradient: no loss may depend on 'best'"):
        differentiate(graph(text))


def test_an_embedding_takes_whole_numbers_alone():
    text = """
- {name: data, type: Input, top: data, input_param: {shape: {dim: [6, 9]}}}
- {name: ip, type: InnerProduct, bottom: data, top: ip, inner_product_param: {num_output: 5}}
- {name: e, type: Embed, bottom: ip, top: e, embed_param: {num_output: 5, input_dim: 3}}
"""
    with pytest.raises(ValueError, match=r"layer 'e' .Embed. on 'ip' .*expected int32 indices, got float32"):
        graph(text)


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_an_index_of_no_row_is_named(device):
    class Words(Net):
        def define(self):
            index = L.Input(shape={"dim": [2, 3]}, name="index")
            L.Embed(index, num_output=4, input_dim=5, weight_filler={"type": "gaussian"})

    with Session(Words(), device=device) as session:
        (y,) = session.forward(np.array([[0, 1, 2], [3, 4, 0]])).values()
        assert y.shape == (2, 3, 4) and np.array_equal(y[0, 0], y[1, 2])
        with pytest.raises(ValueError, match=r"5"):
            session.forward(np.array([[0, 1, 2], [3, 5, 0]]))


@pytest.mark.parametrize("mean", [0.0, 1e3, 1e5])
def test_rows_far_from_zero_are_normalized_right(mean):
    """Each element is off by no more than a rounding of the mean makes it."""
    x = (np.random.default_rng(0).standard_normal((5, 768)) + mean).astype(np.float32)
    a = attrs(first=1, last=2, centred=True, divisor="VARIANCE", eps=1e-5)
    t, y, inverse = Tensor("x", x.shape), Tensor("y", x.shape), Tensor("inverse", (5, 1))
    e = Example("rows", Op("it", "row_norm.forward", "it", Pass.FORWARD, (t,), (y, inverse), a), {t: x})
    wide = x.astype(np.float64)
    want = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    for device in (compiled(), bare(), *([HostCuda()] if cuda_host.COMPILER else [])):
        (algorithm,) = device.algorithms(e.op)
        got, _ = run(device, e, algorithm)
        assert np.abs(got - want).max() <= 5e-6 + 1.5 * np.spacing(np.float32(mean)), device
