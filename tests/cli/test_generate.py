"""generate: a net that has learnt a text goes on with it; tokens that are no bytes; what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from minidnn.cli.main import main
from minidnn.training.generate import Sampling

TEXT = "abcdefgh" * 100
XAVIER = "bias_term: false, weight_filler: {type: xavier}"
DATA = '- {{name: data, type: Data, top: [data, label], data_param: {{source: "{source}", batch_size: 8}}}}'
BODY = """
- {name: embed, type: Embed, bottom: data, top: embed,
   embed_param: {num_output: 24, input_dim: 310, bias_term: false, weight_filler: {type: gaussian, std: 0.2}}}
- {name: attention, type: Attention, bottom: [embed, embed, embed], top: attention,
   attention_param: {num_heads: 1, causal: true}}
- {name: sum, type: Eltwise, bottom: [embed, attention], top: sum}
"""
MERGED = """
- {{name: loss, type: InnerProductWithLoss, bottom: [sum, label], top: loss,
   inner_product_param: {{num_output: {classes}, axis: 2, {xavier}}}}}
"""
APART = """
- {{name: ip, type: InnerProduct, bottom: sum, top: ip,
   inner_product_param: {{num_output: {classes}, axis: 2, {xavier}}}}}
- {{name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss, softmax_param: {{axis: 2}}}}
"""
SOLVER = "net: net.yaml\ntype: Adam\nbase_lr: 0.02\nlr_policy: fixed\nmax_iter: 60\nsnapshot_prefix: out\n"


@pytest.fixture(scope="module", params=[MERGED, APART], ids=["merged", "apart"])
def learnt(request, tmp_path_factory):
    """A folder with nets that have learnt a text, and the same as tokens."""
    folder = tmp_path_factory.mktemp("learnt")
    (folder / "text.txt").write_text(TEXT)
    np.array([ord(c) - ord("a") + 300 for c in TEXT], np.uint16).tofile(folder / "ids.bin")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, source, classes in (
            ("text", "text:text.txt:length=6", 256), ("ids", "tokens:ids.bin:length=6", 310),
        ):  # fmt: skip
            head = request.param.format(classes=classes, xavier=XAVIER)
            (folder / f"{name}.yaml").write_text("layer:\n" + DATA.format(source=source) + BODY + head)
            (folder / "solver.yaml").write_text(SOLVER.replace("net.yaml", f"{name}.yaml").replace("out", name))
            assert main(["train", "solver.yaml", "--device", "cpu", "--json"]) == 0
    return folder


def told(capsys, *argv, code=0):
    assert main(["generate", *argv, "--device", "cpu"]) == code
    return capsys.readouterr()


def test_it_goes_on_with_a_text(learnt, monkeypatch, capsys):
    monkeypatch.chdir(learnt)
    capsys.readouterr()
    given = ("text.yaml", "--weights", "text_iter_60.safetensors", "--prompt", "cde", "--count", "21")
    assert told(capsys, *given, "--temperature", "0").out == "cdefghabcdefghabcdefghab\n"
    one, again, other = (told(capsys, *given, "--seed", seed).out for seed in ("1", "1", "2"))
    assert one == again and len(one) == len(other) == 25
    document = json.loads(told(capsys, *given, "--temperature", "0", "--json").out)
    assert document["text"] == "fghabcdefghabcdefghab" and document["prompt"] == [99, 100, 101]


def test_and_with_tokens(learnt, monkeypatch, capsys):
    monkeypatch.chdir(learnt)
    capsys.readouterr()
    given = ("ids.yaml", "--weights", "ids_iter_60.safetensors", "--count", "9", "--top-k", "1")
    assert told(capsys, *given, "--prompt", "302,303").out.split() == [str(300 + i % 8) for i in range(4, 13)]
    assert json.loads(told(capsys, *given, "--prompt", "302", "--json").out)["text"] is None
    assert "expected tokens such as 12,7,300, each from 0 to 309" in told(capsys, *given, "--prompt", "x", code=2).err
    assert "each from 0 to 309" in told(capsys, *given, "--prompt", "310", code=2).err


def test_what_gives_no_tokens_is_refused(learnt, monkeypatch, capsys):
    monkeypatch.chdir(learnt)
    capsys.readouterr()
    said = told(capsys, "digits_lenet", "--weights", "text_iter_60.safetensors", "--prompt", "a", code=2).err
    assert "expected one Data layer of tokens" in said


def test_draws_follow_the_scores():
    scores = np.log(np.array([0.1, 0.6, 0.3], np.float32))
    drawn = np.bincount([Sampling(seed=3).draw(scores, i) for i in range(2000)], minlength=3) / 2000
    assert np.abs(drawn - [0.1, 0.6, 0.3]).max() < 0.05
    few = {Sampling(top_k=2, seed=3).draw(scores, i) for i in range(200)}
    cold = {Sampling(temperature=0.01).draw(scores, i) for i in range(50)}
    assert few == {1, 2} and cold == {1} and Sampling(temperature=0).draw(scores, 0) == 1


@pytest.mark.peer("onnx")
def test_it_goes_to_onnx_with_its_scores(learnt, monkeypatch):
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    monkeypatch.chdir(learnt)
    assert main(["convert", "text_iter_60.safetensors", "text.onnx", "--net", "text.yaml"]) == 0
    model = onnx.load("text.onnx")
    (given,) = (i.name for i in model.graph.input)
    (scores,) = ReferenceEvaluator(model).run(None, {given: np.array([[*b"abcdef"]], np.float32)})
    assert bytes(scores[0].argmax(-1).tolist()) == b"bcdefg"


TURNED = APART.replace("bottom: [ip, label]", "bottom: [turned, label]").replace(", softmax_param: {{axis: 2}}", "")
TURNED += "- {{name: turned, type: Permute, bottom: ip, top: turned, permute_param: {{order: [0, 2, 1]}}}}"


def test_classes_may_lie_along_another_axis(learnt, monkeypatch, capsys):
    monkeypatch.chdir(learnt)
    lines = TURNED.strip().split("- {{")[1:]
    head = "".join(f"- {{{{{line}\n" for line in (lines[0], lines[2], lines[1]))
    text = "layer:\n" + DATA.format(source="text:text.txt:length=6") + BODY + head.format(classes=256, xavier=XAVIER)
    (learnt / "turned.yaml").write_text(text)
    weights = "text_iter_60.safetensors"
    given = ("--weights", weights, "--prompt", "cde", "--count", "9", "--temperature", "0")
    if "name: ip," in (learnt / "text.yaml").read_text():  # the same weights
        assert told(capsys, "turned.yaml", *given).out == "cdefghabcdef\n"


def test_a_net_may_read_other_data_in_its_test(learnt, monkeypatch, capsys):
    monkeypatch.chdir(learnt)
    text = (learnt / "text.yaml").read_text()
    first, rest = text.split("\n")[1], "\n".join(text.split("\n")[2:])
    train, test = (first[:-1] + f", include: {{phase: {phase}}}}}" for phase in ("TRAIN", "TEST"))
    (learnt / "phases.yaml").write_text("\n".join(["layer:", train, test.replace("=6", "=9"), rest]))
    given = ("--weights", "text_iter_60.safetensors", "--prompt", "cde", "--count", "9", "--temperature", "0")
    assert told(capsys, "phases.yaml", *given).out == "cdefghabcdef\n"


def test_tokens_are_a_text_by_their_source(learnt, monkeypatch, capsys):
    monkeypatch.chdir(learnt)
    text = (learnt / "text.yaml").read_text()
    (learnt / "bytes.yaml").write_text(text.replace("text:text.txt:length=6", "synthetic_tokens:6:classes=256"))
    given = ("--weights", "text_iter_60.safetensors", "--count", "3", "--temperature", "0")
    assert told(capsys, "bytes.yaml", *given, "--prompt", "99,100,101").out.split() == ["102", "103", "104"]
    assert told(capsys, "text.yaml", *given, "--prompt", "cde\udcff").out.startswith("cde\ufffd")


def test_a_net_that_looks_ahead_is_refused(learnt, monkeypatch, capsys):
    monkeypatch.chdir(learnt)
    text = (learnt / "text.yaml").read_text()
    (learnt / "ahead.yaml").write_text(text.replace("causal: true", "causal: false"))
    said = told(capsys, "ahead.yaml", "--weights", "text_iter_60.safetensors", "--prompt", "a", code=2).err
    assert "layer attention: a token sees later tokens" in said


def test_without_the_cache_the_text_is_the_same(learnt, monkeypatch, capsys):
    monkeypatch.chdir(learnt)
    capsys.readouterr()
    given = ("text.yaml", "--weights", "text_iter_60.safetensors", "--prompt", "cde", "--count", "21", "--seed", "4")
    with_it, without = told(capsys, *given), told(capsys, *given, "--no-cache")
    assert with_it.out == without.out and "21 tokens, " in with_it.err and " tokens/s" in without.err
    documents = [json.loads(told(capsys, *given, *more, "--json").out) for more in ((), ("--no-cache",))]
    assert [d["cached"] for d in documents] == [True, False] and all(d["elapsed_seconds"] > 0 for d in documents)


def test_a_net_that_cannot_have_a_cache_says_so(learnt, monkeypatch, capsys):
    monkeypatch.chdir(learnt)
    capsys.readouterr()
    text = (learnt / "text.yaml").read_text().replace("bottom: [sum, label]", "bottom: [mixed, label]")
    mixed = "- {name: mixed, type: Softmax, bottom: sum, top: mixed, softmax_param: {axis: 1}}\n"
    text = text.replace("bottom: [ip, label]", "bottom: [ip, label]").replace("- {name: loss", f"{mixed}- {{name: loss")
    (learnt / "mixed.yaml").write_text(text)
    given = ("mixed.yaml", "--weights", "text_iter_60.safetensors", "--prompt", "cde", "--count", "3", "--json")
    said = told(capsys, *given)
    assert "layer mixed (Softmax): it mixes tokens" in said.err and not json.loads(said.out)["cached"]
    assert "keys and values are not kept, so each token takes a whole window" in " ".join(said.err.split())
