"""Windows of tokens: what is foretold, the splits, what is refused; made-up tokens; and a net that learns a text."""

from __future__ import annotations

import math

import numpy as np
import pytest

import minidnn
from minidnn import L, Net
from minidnn.data import DataError, open_loader, parse
from minidnn.data.masks import UNMASKED, Masks
from minidnn.errors import BadInput
from minidnn.schema.sources import DataParameter, TransformationParameter
from minidnn.zoo.bert import BertBase


def opened(text, phase="TRAIN"):
    return parse(text, phase).open()


@pytest.mark.parametrize(("type", "dtype"), [("", "<u2"), (":type=uint32", "<u4")])
def test_labels_are_the_tokens_behind(type, dtype, tmp_path):
    ids = (np.arange(101) * 7 % 60000).astype(dtype)
    ids.tofile(tmp_path / "ids.bin")
    text = f"tokens:{tmp_path}/ids.bin:length=5{type}"
    source, train, test = parse(text), opened(text), opened(text, "TEST")
    assert (source.sample_shape(), source.label_shape()) == ((5,), (5,))
    assert (len(train), len(test)) == (18, 2), "the last tenth of 20 windows is for the test"
    for windows, first in ((train, 0), (test, 18)):
        x, y = windows.take(np.arange(len(windows)))
        whole = ids[first * 5 : (first + len(windows)) * 5 + 1]
        assert (x.ravel() == whole[:-1]).all() and (y.ravel() == whole[1:]).all() and y.dtype == np.int32
    assert opened(f"{text}:test").name == test.name


def test_the_bytes_of_a_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(bytes(range(256)))
    windows = opened(f"text:{tmp_path}/a.txt:length=15")
    x, y = windows.take(np.array([3]))
    assert x.tolist() == [[*range(45, 60)]] and y.tolist() == [[*range(46, 61)]]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tokens:a.bin", "expected tokens:FILE:length=1024"),
        ("tokens:a.bin:length=0", "length='0': expected a whole number of tokens"),
        ("tokens:a.bin:length=8:type=int8", "type='int8': expected uint16 or uint32"),
        ("text:a.bin:length=8:type=uint16", "type='uint16': expected uint8"),
        ("synthetic_tokens:x", "'length=x': expected synthetic_tokens:1024"),
        ("synthetic_tokens:8:seed=1", "expected synthetic_tokens:1024"),
    ],
)
def test_malformed_sources_are_refused(text, why):
    with pytest.raises(DataError, match=why):
        parse(text)


def test_files_that_hold_too_little_or_half_a_token(tmp_path):
    path = tmp_path / "ids.bin"
    with pytest.raises(DataError, match="No such file"):
        opened(f"tokens:{path}:length=8")
    for content, why in (
        (b"", "0 tokens make 0 windows"),
        (bytes(32), "16 tokens make 1 windows"),
        (b"abc", "3 bytes"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=why):
            opened(f"tokens:{path}:length=8")
    np.full(17, 2**24, np.uint32).tofile(path)
    with pytest.raises(DataError, match="token 16777216 is not an id"):
        opened(f"tokens:{path}:length=8:type=uint32").take(np.array([0]))


def test_made_up_tokens_follow_a_rule_most_of_the_time():
    windows = opened("synthetic_tokens:200:classes=97:count=4")
    x, y = windows.take(np.arange(4))
    follows = (y == (5 * x + 1) % 97).mean()
    assert 0.8 < follows < 0.95 and x.min() >= 0 and x.max() < 97
    assert (x == opened("synthetic_tokens:200:classes=97:count=4").take(np.arange(4))[0]).all()
    assert (x != opened("synthetic_tokens:200:classes=97:count=4", "TEST").take(np.arange(4))[0]).any()


class Tiny(Net):
    name = "tiny"

    def define(self, source: str = "", batch: int = 16) -> None:
        table = [{"name": "table"}]
        tokens, label = L.Data(name="data", source=source, batch_size=batch)
        filler = {"type": "gaussian", "std": 0.1}
        x = L.Embed(
            tokens, name="embed", param=table, num_output=32, input_dim=256, bias_term=False, weight_filler=filler
        )
        y = L.InnerProduct(L.LayerNorm(x), name="qkv", axis=2, num_output=96, weight_filler=filler)
        x = L.Eltwise(x, L.Attention(y, name="attention", num_heads=4, causal=True))
        L.InnerProductWithLoss(
            L.LayerNorm(x), label, name="loss", param=table, num_output=256, axis=2, bias_term=False,
            weight_filler=filler,
        )  # fmt: skip


@pytest.mark.parametrize("policy", ["liveness", "recompute_all"])
def test_a_net_learns_a_text(policy, tmp_path):
    (tmp_path / "a.txt").write_text("the quick brown fox jumps over the lazy dog. " * 60)
    net = Tiny(source=f"text:{tmp_path}/a.txt:length=16")
    with minidnn.Solver(net, device="cpu", policy=policy, type="Adam", base_lr=0.01, max_iter=40, seed=1) as solver:
        first, *_, last = (solver.step().loss for _ in range(40))
    assert first == pytest.approx(math.log(256), rel=0.1) and last < 0.5 * first


def test_the_length_of_windows_may_be_asked_for(tmp_path):
    plans = [minidnn.plan("gpt2", gpu="a100", batch=1, seq=seq, policies=["liveness"]) for seq in (128, 256)]
    assert plans[1].rows[0].peak_bytes > plans[0].rows[0].peak_bytes
    with pytest.raises(BadInput, match="no Data layer gives tokens"):
        minidnn.plan("lenet", gpu="a100", seq=8)


def test_the_most_tokens_that_fit():
    tiny = Tiny(source="synthetic_tokens:16", batch=2)
    found = minidnn.search(tiny, max="tokens", gpu="k40", budget="1MiB", policies=["liveness"], step=16)
    (row,) = found.rows
    assert (
        row.tokens % 16 == 0
        and row.next == row.tokens + 16
        and row.peak_bytes <= row.budget_bytes < row.next_peak_bytes
    )
    with pytest.raises(BadInput, match="no layer of LeNet gives tokens"):
        minidnn.search("lenet", max="tokens", gpu="k40")
    with pytest.raises(BadInput, match="leave out seq"):
        minidnn.search("gpt2", max="tokens", gpu="k40", seq=8)


@pytest.mark.parametrize("field", ["scale: 2", "mean_value: [3]"])
def test_no_arithmetic_changes_ids(field):
    text = f"""
layer:
- {{name: data, type: Data, top: [x, y], transform_param: {{{field}}},
   data_param: {{source: "synthetic_tokens:8", batch_size: 2}}}}
- {{name: e, type: Embed, bottom: x, top: e, embed_param: {{num_output: 3, input_dim: 50257}}}}
"""
    with pytest.raises(BadInput, match="samples are token ids, which scale, mean_value and mean_file"):
        Net.from_text(text).graph("TRAIN")


def test_numbers_of_any_length_are_refused():
    for text in (f"text:a:length={'9' * 5000}", f"synthetic_tokens:{'9' * 5000}"):
        with pytest.raises(DataError, match="expected"):
            parse(text)
    with pytest.raises(BadInput, match="no window has more than 16777216 tokens"):
        minidnn.search("gpt2", max="tokens", gpu="k40", step=99_999_999)


def test_a_text_of_few_letters_needs_few_classes(tmp_path):
    (tmp_path / "a.txt").write_text("abc" * 100)
    net = Tiny(source=f"text:{tmp_path}/a.txt:length=16").to_yaml().replace("256", "100")
    with minidnn.Solver(Net.from_text(net), device="reference", base_lr=0.01, max_iter=1) as solver:
        assert solver.step().loss == pytest.approx(math.log(100), rel=0.2)


# ---- masked tokens

MASKED = dict(mask_token=3, mask_vocabulary=50)


def masked(source="synthetic_tokens:64:classes=50", seed=0, workers=0, phase="TRAIN", **change):
    param = DataParameter(source=source, batch_size=8, workers=workers)
    return open_loader(param, TransformationParameter(**MASKED | change), phase, seed)


def test_chosen_tokens_become_labels_and_most_of_them_are_hidden():
    tokens = np.random.default_rng(0).integers(4, 50, (2000, 64)).astype(np.int32)
    seen, labels = Masks(3, 50, 0.15)(tokens, np.arange(2000))
    chosen = labels != UNMASKED
    assert chosen.mean() == pytest.approx(0.15, abs=0.005) and (labels[chosen] == tokens[chosen]).all()
    assert (seen[~chosen] == tokens[~chosen]).all() and seen.min() >= 0 and seen.max() < 50
    hidden, stays = (seen == 3)[chosen].mean(), (seen == tokens)[chosen].mean()
    any_one = 0.1 / 50  # a token drawn at random may be the one that masks, or the same one again
    assert (hidden, stays) == (pytest.approx(0.8 + any_one, abs=0.01), pytest.approx(0.1 + any_one, abs=0.01))
    assert seen.dtype == labels.dtype == np.int32


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_masks_follow_from_the_seed_and_the_sample_s_number(phase):
    with masked(phase=phase) as first, masked(phase=phase) as again, masked(phase=phase, seed=1) as other:
        later, (x, y) = first.batch(1024), first.batch(0)  # a later epoch begins at 1024
        assert all((a == b).all() for a, b in zip((x, y), again.take(0), strict=True)), "also without what was before"
        places = y != UNMASKED
        for another in (other.batch(0), later):
            assert ((another[1] != UNMASKED) != places).any()


def test_workers_mask_the_same_tokens():
    with masked() as alone, masked(workers=2) as together:
        for position in (0, 8, 1020):
            for a, b in zip(alone.take(position), together.take(position), strict=True):
                assert (a == b).all()


@pytest.mark.parametrize(
    ("field", "why"),
    [
        ("mask_token: 3", "masks need mask_token, such as 103, and mask_vocabulary, such as 30522"),
        ("mask_ratio: 0.3", "masks need mask_token, such as 103, and mask_vocabulary"),
        ("mask_token: 3, mask_vocabulary: 9, mask_ratio: 0", "mask_ratio: expected more than 0, got 0"),
        (
            "mask_token: 3, mask_vocabulary: 9",
            "synthetic:3x8x8: mask_token hides token ids, but samples are not tokens",
        ),
    ],
)
def test_masks_of_what_cannot_be_masked_are_refused(field, why):
    text = f"""
layer:
- {{name: data, type: Data, top: x, transform_param: {{{field}}},
   data_param: {{source: "synthetic:3x8x8", batch_size: 2}}}}
"""
    with pytest.raises(BadInput, match=why):
        Net.from_text(text).graph("TRAIN")


def test_bert_learns_to_restore_a_text(tmp_path):
    """Each window is one of 26 letters again and again, so that the tokens around a masked one tell which it is."""
    letters = 4 * "abcdefghijklmnopqrstuvwxyz"
    (tmp_path / "a.txt").write_text("".join(16 * letter for letter in letters) + "a")
    net = BertBase(batch=16, seq=16, width=32, blocks=1, heads=4, vocabulary=256, dropout=0.0, mask=0).to_yaml()
    net = Net.from_text(net.replace("synthetic_tokens:16:classes=256", f"text:{tmp_path}/a.txt:length=16"))
    with minidnn.Solver(net, device="cpu", type="Adam", base_lr=0.003, max_iter=120, seed=1) as solver:
        losses = [solver.step().loss for _ in range(120)]
    assert losses[0] == pytest.approx(math.log(256), rel=0.1)
    assert np.mean(losses[-10:]) < 0.5 * math.log(26), "without the tokens around it is log 26"
