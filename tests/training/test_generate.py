"""Texts with keys and values kept from token to token, and with a whole window for each: they are the same."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from minidnn import L, Net
from minidnn.backends.cpu.native.binding import NAME
from minidnn.jobs.setting import Setting
from minidnn.nets.placed import Mixing, placed
from minidnn.programs.autodiff import NotTrainable, differentiate
from minidnn.training.generate import Generator, Sampling
from minidnn.training.session import Session
from minidnn.zoo.gpt import GPT2
from minidnn.zoo.llama import Llama
from tests.support.slow import usual_are, usual_pairs

WINDOW = 24
SIZES = dict(batch=2, seq=WINDOW, width=32, blocks=2, vocabulary=61)


class Sliding(Llama):
    """Tokens that see the last few alone, and heads of q, k and v apart."""

    def define(self, seq=WINDOW):
        tokens, label = L.Data(name="data", source=f"synthetic_tokens:{seq}:classes=61", batch_size=2)
        x = L.Embed(tokens, name="embed", num_output=16, input_dim=61, weight_filler={"type": "gaussian"})
        for i in range(2):
            q, k = (
                L.RotaryEmbedding(
                    L.InnerProduct(x, name=f"{what}{i}", axis=2, num_output=n, weight_filler={"type": "xavier"}),
                    num_heads=n // 4, head_dim=4, in_place=True,
                )
                for what, n in (("q", 16), ("k", 8))
            )  # fmt: skip
            v = L.InnerProduct(x, name=f"v{i}", axis=2, num_output=8, weight_filler={"type": "xavier"})
            y = L.Attention(q, k, v, num_heads=4, num_kv_heads=2, causal=True, window=5)
            x = L.Eltwise(x, y, name=f"sum{i}")
        scores = L.InnerProduct(x, name="scores", axis=2, num_output=61, weight_filler={"type": "xavier"})
        L.SoftmaxWithLoss(scores, label, name="loss", axis=2)


NETS = {
    "gpt": lambda: GPT2(heads=4, dropout=0.1, **SIZES), "llama": lambda: Llama(heads=4, kv_heads=2, mlp=48, **SIZES),
    "sliding": Sliding,
}  # fmt: skip


@cache
def told(name: str, device: str, cached: bool, begun: tuple[int, ...] = (5, 7, 9), temperature: float = 1.0):
    """(the tokens, the scores behind each, whether our own kernels made all products), far beyond a window."""
    made, scores = Generator.of(NETS[name]()), []
    setting = Setting.of({"device": device, "keep": [made.scores], "seed": 5})
    with made.opened(setting, cached) as writer:
        own = writer._scores
        writer._scores = lambda window: scores.append(own(window).copy()) or scores[-1]
        tokens = list(writer.go_on(begun, 50, Sampling(temperature, None, 3)))
        chosen = writer.session.arrangement.schedules["TEST"].plan.algorithm
        ours = all(a.name == NAME for op, a in chosen.items() if op.family == "inner_product")
    return tokens, scores, ours


HOW = [pytest.param(device, temperature) for temperature in (0.0, 1.0) for device in ("reference", "cpu")]


@pytest.mark.parametrize(("net", "device", "temperature"), usual_pairs(NETS, HOW))
def test_the_text_is_the_same_with_the_cache(net, device, temperature):
    """Also where the window begins anew, which is when 24 tokens are there, and then after each 13."""
    want, their, _ = told(net, device, False, temperature=temperature)
    got, our, ours = told(net, device, True, temperature=temperature)
    assert got == want and (len(set(got)) > 9 or not temperature)
    assert max(np.abs(a - b).max() for a, b in zip(their, our, strict=True)) < 1e-5
    if ours and device == "cpu":
        assert [a.tobytes() for a in their] == [b.tobytes() for b in our]


@pytest.mark.parametrize("length", usual_are([1, WINDOW, 100], [1, WINDOW - 1, WINDOW, WINDOW + 1, 100]))
def test_a_prompt_may_have_any_length(length):
    begun = tuple(k * k % 61 for k in range(length))
    assert told("gpt", "cpu", True, begun)[0] == told("gpt", "cpu", False, begun)[0]


def test_a_long_prompt_comes_a_few_tokens_at_a_time(monkeypatch):
    want = told("llama", "cpu", False, tuple(range(20)))[0]
    monkeypatch.setattr("minidnn.training.generate.FEW", 7)
    assert told("llama", "cpu", True, tuple(range(20)))[0] == want


def test_a_full_window_goes_on_with_its_last_half():
    made = Generator.of(NETS["gpt"]())
    windows = []
    with made.opened(Setting.of({"device": "cpu", "keep": [made.scores], "seed": 5})) as writer:
        own = writer._scores
        writer._scores = lambda window: windows.append(list(window)) or own(window)
        tokens = [5, *writer.go_on([5], 40, Sampling())]
    assert [len(w) for w in windows] == [*range(1, 25), *range(12, 25), 12, 13, 14]
    assert all(w == tokens[i + 1 - len(w) : i + 1] for i, w in enumerate(windows))


class Convolved(Net):
    """Words seen three at a time."""

    def define(self):
        tokens, label = L.Data(name="data", source="synthetic_tokens:8:classes=9", batch_size=2)
        x = L.Embed(tokens, name="embed", num_output=6, input_dim=9, weight_filler={"type": "xavier"})
        x = L.Reshape(x, name="image", shape={"dim": [0, 1, 8, 6]})
        x = L.Convolution(
            x, name="near", num_output=6, kernel_h=3, kernel_w=6, pad_h=1, pad_w=0, weight_filler={"type": "xavier"}
        )
        x = L.Permute(L.Reshape(x, shape={"dim": [0, 6, 8]}), name="back", order=[0, 2, 1])
        scores = L.InnerProduct(x, name="scores", axis=2, num_output=9, weight_filler={"type": "xavier"})
        L.SoftmaxWithLoss(scores, label, name="loss", axis=2)


def test_a_net_that_mixes_tokens_otherwise_has_no_cache():
    made = Generator.of(Convolved())
    setting = Setting.of({"device": "cpu", "keep": [made.scores], "seed": 5})
    with pytest.raises(Mixing, match=r"layer image \(Reshape\): its bottoms and tops are not \(N, T, ...\) of tokens"):
        made.opened(setting)
    with made.opened(setting, cached=False) as writer:
        assert len(list(writer.go_on([1, 2], 9, Sampling()))) == 9


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (lambda x: L.Softmax(x, name="mixed", axis=1), r"layer mixed \(Softmax\): it mixes tokens"),
        (lambda x: L.Scale(x, name="mixed", axis=1), r"layer mixed \(Scale\): .*or does not treat all of them alike"),
        (lambda x: L.LayerNorm(x, name="mixed", axis=1), r"layer mixed \(LayerNorm\)"),
        (lambda x: L.Eltwise(x, L.Permute(x, name="mixed", order=[0, 2, 1])), r"layer mixed \(Permute\)"),
        (lambda x: L.Attention(x, x, x, x, name="mixed", num_heads=1, causal=True), r"layer mixed \(Attention\)"),
    ],
    ids=["softmax", "scale", "norm", "permute", "biased attention"],
)
def test_layers_that_mix_tokens_are_named(layer, said):
    class Mixed(Net):
        def define(self):
            tokens = L.Input(name="data", shape={"dim": [1, 8]})
            layer(L.Embed(tokens, name="embed", num_output=8, input_dim=9))

    with pytest.raises(Mixing, match=said):
        placed(Mixed(), "data", 1)


class Placed(Net):
    def define(self, tokens=3, more=3, bias=True):
        x, y = (L.Input(name=n, shape={"dim": [1, count, 12]}) for n, count in (("data", tokens), ("more", more)))
        if bias:
            x = L.Bias(x, axis=1, num_axes=2, places=9, filler={"type": "gaussian"})
        L.Attention(x, num_heads=1, causal=True, places=9, name="a", loss_weight=1)
        L.Attention(y, num_heads=1, causal=True, places=9, name="b")


def test_forward_begins_at_the_first_place():
    """And neither keys nor values are parameters that a file must have."""
    x = np.random.default_rng(0).standard_normal((1, 3, 12)).astype(np.float32)
    with Session(Placed(bias=False), device="cpu") as session:
        once, again = (session.forward({"data": x, "more": x}) for _ in range(2))
        assert all(np.array_equal(once[name], again[name]) for name in ("a", "b")) and np.array_equal(
            once["a"], once["b"]
        )
        assert np.allclose(once["a"][0, 0], x[0, 0, 8:]) and session.weights() == {} and session.state() == {}


def test_all_layers_with_places_have_the_same_tokens():
    with pytest.raises(NotTrainable, match="layers with places have 2 and 3 tokens"):
        differentiate(Placed(more=2).graph("TEST"))


def test_nothing_is_trained_with_places():
    with pytest.raises(
        NotTrainable, match="places: keys and values are kept from step to step only in phase TEST; leave it out"
    ):
        differentiate(Placed().graph("TRAIN"))


@pytest.mark.parametrize("format", ["float32", "float16"])
def test_what_is_kept_has_the_format_of_the_net(format):
    program = differentiate(Placed().graph("TEST", format=format))
    kept = {t.name: t.dtype for t in program.persistent if t.name.startswith(("a.", "b."))}
    assert kept == dict.fromkeys(("a.keys", "a.values", "b.keys", "b.values"), format)
