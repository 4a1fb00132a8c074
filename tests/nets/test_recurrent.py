"""Nets that go through sequences: the same bytes under every policy, a text that is learnt, Caffe's own files."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest

import minidnn
from minidnn import L, Net
from minidnn.formats import FORMATS
from minidnn.layers.recurrent import LSTM
from minidnn.training import caffemodel
from minidnn.training.session import Session
from tests.support.cuda import host as cuda_host
from tests.support.trains import baseline, train, train_on_cuda


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("policy", ["vdnn_all:m", "layrub:m", "recompute_all:m"])
def test_training_gives_the_bytes_of_baseline(device, policy):
    want, losses, _ = baseline("recurrent", device, "m")
    got, ours, _ = train("recurrent", device, policy, debug=True)
    assert ours == losses and got == want


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_its_products_run_in_parts_of_the_steps_and_the_rest_as_a_whole(device):
    want, losses, algorithms = train("recurrent", device, "liveness:m@2", debug=True)
    assert {"gru.forward_input[0:6]", "lstm.forward", "lstm.backward", "gru.forward"} <= algorithms.keys()
    assert train("recurrent", device, "vdnn_all:m@2", debug=True) == (want, losses, algorithms)


def test_cpu_and_reference_train_alike():
    (_, ours, _), (_, theirs, _) = (baseline("recurrent", device, "m") for device in ("cpu", "reference"))
    assert ours == pytest.approx(theirs, rel=1e-4)


@pytest.mark.extended
@pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++ to run CUDA sources with")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("format", FORMATS)
def test_training_on_cuda_gives_the_bytes_of_baseline(format):
    plain, saving = (train_on_cuda("recurrent", format, policy) for policy in ("liveness:m", "vdnn_all:m"))
    assert all(np.array_equal(plain[name], saving[name]) and np.isfinite(plain[name]).all() for name in plain)


class Characters(Net):
    name = "characters"

    def define(self, source: str = "", batch: int = 16, kind: str = "LSTM") -> None:
        filler = {"type": "gaussian", "std": 0.1}
        tokens, label = L.Data(name="data", source=source, batch_size=batch)
        x = L.Embed(tokens, name="embed", num_output=32, input_dim=256, weight_filler=filler)
        x = L.Permute(x, name="steps", order=[1, 0, 2])
        x = getattr(L, kind)(x, name="memory", num_output=48, weight_filler=filler)
        x = L.Permute(x, name="sequences", order=[1, 0, 2])
        L.InnerProductWithLoss(
            x, label, name="loss", num_output=256, axis=2, bias_term=False, weight_filler=filler
        )  # fmt: skip


@pytest.mark.parametrize("kind, policy", [("LSTM", "liveness"), ("GRU", "vdnn_all:m")])
def test_a_net_learns_a_text(kind, policy, tmp_path):
    (tmp_path / "a.txt").write_text("the quick brown fox jumps over the lazy dog. " * 60)
    net = Characters(source=f"text:{tmp_path}/a.txt:length=16", kind=kind)
    with minidnn.Solver(net, device="cpu", policy=policy, type="Adam", base_lr=0.02, max_iter=60, seed=1) as solver:
        first, *_, last = (solver.step().loss for _ in range(60))
    assert first == pytest.approx(math.log(256), rel=0.1) and last < 0.5 * first


def test_a_plan_of_the_documents_example_counts_what_an_lstm_keeps():
    """Beside the top, float32 gates and cells: 20 bytes for each number of the state."""
    data = '- {name: data, type: Data, top: [data, label], data_param: {source: "synthetic_tokens:64", batch_size: 8}}'
    example = inspect.getdoc(LSTM).split("and their loss:")[1].replace("256", "50257")
    net = Net.from_text(f"layer:\n    {data}{example}")
    plans = [minidnn.plan(net, gpu="a100", seq=seq, policies=["liveness"]).rows[0].peak_bytes for seq in (64, 128)]
    assert plans[1] - plans[0] > 64 * 8 * 128 * 20


CAFFE = """
layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ dim: 5 dim: 2 dim: 3 }} }} }}
layer {{ name: "cont" type: "Input" top: "cont" input_param {{ shape {{ dim: 5 dim: 2 }} }} }}
layer {{ name: "lstm" type: "LSTM" bottom: "x" bottom: "cont" top: "lstm"
        param {{ lr_mult: 2 }} param {{ lr_mult: 3 }} param {{ lr_mult: 5 }}
        recurrent_param {{ num_output: {width} weight_filler {{ type: "uniform" min: -0.08 max: 0.08 }}
                          bias_filler {{ type: "constant" value: 0.25 }} debug_info: false }} }}
"""


def test_caffe_s_files(tmp_path):
    """W_xc, b_c and W_hc in this order, in a .caffemodel, too; YAML says the same."""
    net = Net.from_text(CAFFE.format(width=4), source="net.prototxt")
    (node,) = (n for n in net.graph("TEST").layers if n.name == "lstm")
    assert [(p.name, p.shape, p.lr_mult) for p in node.parameters] == [
        ("w", (16, 3), 2), ("b", (16,), 3), ("w_hidden", (16, 4), 5),
    ]  # fmt: skip
    again = Net.from_text(net.to_yaml())
    random = np.random.default_rng(0)
    given = {"x": random.normal(size=(5, 2, 3)), "cont": random.integers(0, 2, (5, 2))}
    given = {name: x.astype(np.float32) for name, x in given.items()}
    with Session(net, device="reference", seed=3) as session:
        layers = {layer: [blobs.rows(name) for name in blobs] for layer, blobs in session.params.items()}
        (tmp_path / "it.caffemodel").write_bytes(b"".join(caffemodel.pieces(net.parameter, layers)))
        want = session.forward(given)["lstm"].copy()
    assert np.all(np.abs(want) > 0)
    with Session(again, device="cpu") as session:
        session.load(tmp_path / "it.caffemodel", complete=True)
        np.testing.assert_allclose(session.forward(given)["lstm"], want, rtol=1e-5, atol=1e-6)
