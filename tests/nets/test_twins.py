"""Nets of the zoo beside the published code of the same nets: how many parameters, and every gradient."""

from __future__ import annotations

import numpy as np
import pytest

from minidnn.data.masks import UNMASKED
from minidnn.programs.autodiff import differentiate
from minidnn.zoo.bert import BertBase
from tests.support import peers
from tests.support.interpret import run

pytestmark = [pytest.mark.peer("torch"), pytest.mark.slow]


def drawn(program, **given):
    """Values of the inputs and the parameters, by name: those given, else small random ones."""
    random = np.random.default_rng(5)
    wanted = {t.name: t for t in (*program.inputs, *program.persistent)}
    return {name: 0.3 * random.standard_normal(t.shape) for name, t in wanted.items()} | given


def assign(module, values, names):
    """Let the module's parameters of these names have our values, and return them by our names."""
    theirs = dict(module.named_parameters())
    for ours, name in names.items():
        theirs[name].data = peers.torch.tensor(values[ours].reshape(theirs[name].shape))
    return {ours: theirs[name] for ours, name in names.items()}


def agree(held, names):
    for ours, theirs in names.items():
        got = held[f"{ours}.grad"]
        want = theirs.grad.numpy().reshape(got.shape)
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-9 * max(1, np.abs(want).max()), err_msg=ours)


# ---- BERT


def bert(module, **fields):
    from transformers import BertConfig

    names = ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"]
    config = BertConfig(**dict(zip(names, fields.pop("sizes"), strict=True)), **fields)
    return module(config)


@pytest.mark.peer("transformers")
@pytest.mark.parametrize(
    ("sizes", "restoring", "model"),
    [
        ((768, 12, 12, 3072, 30522), 109_514_298, 109_482_240),
        ((1024, 24, 16, 4096, 30522), 335_174_458, 335_141_888),
    ],
)
def test_bert_s_published_counts(sizes, restoring, model):
    """Those of which the docstring of minidnn/zoo/bert.py says what they have in them."""
    from transformers import BertForMaskedLM, BertModel

    with peers.torch.device("meta"):
        made = [bert(kind, sizes=sizes) for kind in (BertForMaskedLM, BertModel)]
    assert [sum(p.numel() for p in one.parameters()) for one in made] == [restoring, model]


@pytest.mark.peer("transformers")
def test_bert_has_the_gradients_of_its_published_code():
    from transformers import BertForMaskedLM

    width, words, length = 8, 13, 7
    net = BertBase(batch=3, seq=length, width=width, blocks=2, heads=2, vocabulary=words, dropout=0.0, mask=3)
    program = differentiate(net.graph("TRAIN"))
    random = np.random.default_rng(1)
    # Theirs takes token 0 for padding, which learns nothing.
    tokens, label = (random.integers(1, words, (3, length)).astype(np.int32) for _ in range(2))
    label[random.random(label.shape) < 0.6] = UNMASKED
    values = drawn(program, data=tokens, label=label)
    module = bert(
        BertForMaskedLM, sizes=(width, 2, 2, 4 * width, words), max_position_embeddings=length,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    ).double()  # fmt: skip
    head, embeddings = "cls.predictions.transform", "bert.embeddings"
    names = {
        "embed.w": f"{embeddings}.word_embeddings.weight", "positions.beta": f"{embeddings}.position_embeddings.weight",
        "segments.blob": f"{embeddings}.token_type_embeddings.weight", **pair("norm", f"{embeddings}.LayerNorm"),
        **pair("transform", f"{head}.dense"), **pair("transform_norm", f"{head}.LayerNorm"),
    }  # fmt: skip
    for i in (1, 2):
        theirs = f"bert.encoder.layer.{i - 1}"
        parts = {
            "out": "attention.output.dense", "norm1": "attention.output.LayerNorm", "mlp1": "intermediate.dense",
            "mlp2": "output.dense", "norm2": "output.LayerNorm",
        }  # fmt: skip
        names |= {k: v for ours, name in parts.items() for k, v in pair(f"block{i}/{ours}", f"{theirs}.{name}").items()}
        for j, part in enumerate(("query", "key", "value")):  # ours are rows of one matrix
            for own, kind in (("w", "weight"), ("b", "bias")):
                rows = slice(j * width, (j + 1) * width)
                values[f"block{i}/qkv/{j}.{own}"] = values[f"block{i}/qkv.{own}"][rows]
                names[f"block{i}/qkv/{j}.{own}"] = f"{theirs}.attention.self.{part}.{kind}"
    learned = assign(module, values, names)
    unshared = {"cls.predictions.bias", "cls.predictions.decoder.bias"}
    assert {n for n, _ in module.named_parameters()} - set(names.values()) <= unshared
    ignored = peers.torch.tensor(np.where(label == UNMASKED, -100, label)).long()
    loss = module(input_ids=peers.torch.tensor(tokens).long(), labels=ignored).loss
    loss.backward()
    held = run(program, {n: v for n, v in values.items() if "/qkv/" not in n}, "float64")
    for i in (1, 2):
        for own in "wb":
            for j, part in enumerate(np.split(held[f"block{i}/qkv.{own}.grad"], 3)):
                held[f"block{i}/qkv/{j}.{own}.grad"] = part
    assert held["loss.y"][0] == pytest.approx(loss.item(), rel=1e-9)
    agree(held, learned)


def pair(ours, theirs):
    """The names of a weight or a gain, and of a bias."""
    first, second = ("gamma", "beta") if "norm" in ours else ("w", "b")
    return {f"{ours}.{first}": f"{theirs}.weight", f"{ours}.{second}": f"{theirs}.bias"}
