"""Text from files may hold anything. A terminal, a log, a listing, an error and a picture show it without obeying it;
JSON, snapshots and plan files keep it."""

from __future__ import annotations

import json
import xml.dom.minidom
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import minidnn
from minidnn.cli.main import main
from minidnn.visible import visible

CONV = "\x1b]0;PWNED\x07\x1b[31m\u202e<b>"  # sets the terminal's title and colour, and turns the text around
IP = "ip\n\rminidnn: all is fine"  # forges a line
LOSS = "lo\x9b2J\u2028ss\nI1122 00:00:00.000000 1 solver.py:1] Iteration 999, loss = 0"
NET = {
    "name": "evil\nnet",
    "layer": [
        {"name": "data", "type": "Data", "top": ["data", "label"],
         "data_param": {"source": "synthetic:1x8x8", "batch_size": 4}},
        {"name": CONV, "type": "Convolution", "bottom": "data", "top": "\x1b[2Jc1",
         "convolution_param": {"num_output": 4, "kernel_size": 3, "weight_filler": {"type": "msra"}}},
        {"name": IP, "type": "InnerProduct", "bottom": "\x1b[2Jc1", "top": "ip]]>",
         "inner_product_param": {"num_output": 10, "weight_filler": {"type": "xavier"}}},
        {"name": "loss", "type": "SoftmaxWithLoss", "bottom": ["ip]]>", "label"], "top": LOSS},
    ],
}  # fmt: skip
SOLVER = {
    "net": "evil.yaml", "base_lr": 0.01, "lr_policy": "fixed", "max_iter": 2, "display": 1, "snapshot_prefix": "e",
    "random_seed": 1,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, own_cache, monkeypatch):
    (tmp_path / "evil.yaml").write_text(json.dumps(NET))  # JSON is YAML
    (tmp_path / "solver.yaml").write_text(json.dumps(SOLVER))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(capsys, *argv, code=0) -> str:
    """What a command prints on both streams; it has no effect on a terminal, and none of its lines is forged."""
    assert main(list(argv)) == code
    captured = capsys.readouterr()
    text = captured.out + captured.err
    assert text.replace("\n", "").isprintable()
    forged = [line for line in text.split("\n") if line.startswith(("I1122 00:00:00.000000", "minidnn: all is fine"))]
    assert not forged
    return text


@pytest.mark.parametrize("c", ["\0", "\a", "\b", "\t", "\n", "\r", "\x1b", "\x7f", "\x85", "\x9b", "\xad", "\u2028",
                               "\u2029", *map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A)),
                               "\ufeff", "\uffff", "\udcff", "\U000e0041"])  # fmt: skip
def test_no_character_that_does_something_is_shown_as_itself(c):
    shown = visible(f"a{c}b")
    assert shown.isascii() and shown.isprintable() and shown == f"a{repr(c)[1:-1]}b"
    assert visible(shown) == shown


def test_text_that_can_be_read_is_shown_as_it_is():
    text = "conv1/3x3 – 1.2 µs × 中 \\n é 😀 'a' \"b\""
    assert visible(text) == text


@pytest.mark.parametrize(
    "argv", [("plan", "--listing"), ("plan",), ("time", "--iterations", "1"), ("time", "--algorithms", "--gpu", "k40")]
)
def test_names_in_tables_and_listings(folder, capsys, argv):
    verb, *more = argv
    text = printed(capsys, verb, "evil.yaml", *more)
    assert ("PWNED" in text or "ip\\n\\rminidnn:" in text) and ("evil\\nnet" in text or "--listing" in argv)


def test_names_in_a_log_and_in_a_snapshot(folder, capsys):
    text = printed(capsys, "train", "solver.yaml")
    assert text.count("lo\\x9b2J\\u2028ss\\nI1122") == 2 and "Solving evil\\nnet from" in text
    held = load_file("e_iter_2.safetensors")
    assert f"{CONV}/w" in held and f"{IP}/b" in held, "a snapshot keeps the true names"
    save_file({**held, "\x1b[2Jnew\n/w": np.zeros(1, np.float32)}, "more.safetensors")
    text = printed(capsys, "train", "solver.yaml", "--weights", "more.safetensors", "--max-iter", "1")
    assert "Weights not used: " in text and "\\x1b[2Jnew\\n" in text
    torn = "torn\x1b[2J\n.safetensors"
    Path(torn).write_bytes(b"x")
    assert "torn\\x1b[2J\\n" in printed(capsys, "train", "solver.yaml", "--resume", torn, code=2)


def test_names_in_pictures_and_pages(folder, capsys):
    argv = ["compare", "evil.yaml", "--gpu", "k40", "--policies", "baseline,vdnn_all"]
    printed(capsys, *argv, "--report", "a.svg")
    printed(capsys, *argv, "--report", "a.html")
    picture = xml.dom.minidom.parse("a.svg")
    titles = [t.firstChild.data for t in picture.getElementsByTagName("title")]
    assert any("\\x1b]0;PWNED\\x07\\x1b[31m\\u202e<b>" in t for t in titles)
    for file in ("a.svg", "a.html"):
        assert Path(file).read_text(encoding="utf-8").replace("\n", "").isprintable()


def test_json_keeps_the_true_names(folder, capsys):
    text = printed(capsys, "time", "evil.yaml", "--iterations", "1", "--json")
    assert {CONV, IP} <= {row["layer"] for row in json.loads(text)["rows"]}


def test_names_in_errors(folder, capsys):
    bad = json.loads(json.dumps(NET))
    bad["layer"][1]["convolution_param"]["kernel_size"] = 99
    bad["layer"][2]["bottom"] = "ip\n2"
    Path("bad\x1b[2J.yaml").write_text(json.dumps(bad))
    lines = printed(capsys, "plan", "bad\x1b[2J.yaml", code=2).splitlines()
    assert len(lines) == 1 and lines[0].startswith("minidnn: bad\\x1b[2J.yaml:1:") and "'ip\\n2'" in lines[0]
    bad["layer"][2]["bottom"] = "\x1b[2Jc1"
    bad["layer"][2]["\x1b[31mtypo\n"] = 1
    bad["layer"][3]["nosuch"] = 1
    Path("bad.yaml").write_text(json.dumps(bad))
    lines = printed(capsys, "plan", "bad.yaml", code=2).splitlines()
    assert len(lines) == 2 and "\\x1b[31mtypo\\n" in lines[0] and "nosuch" in lines[1], "a line for each error"
    with pytest.raises(ValueError) as caught:
        minidnn.load("bad.yaml")
    assert str(caught.value).split("\n") == [lines[0].removeprefix("minidnn: "), lines[1]]


def test_names_in_plan_files_and_profiles(folder, capsys):
    printed(capsys, "plan", "evil.yaml", "--policy", "vdnn_all", "--gpu", "k40", "--save", "a.plan")
    text = Path("a.plan").read_text(encoding="utf-8")
    assert json.dumps(IP)[1:-1] in text, "a plan file keeps the true names"
    printed(capsys, "compare", "evil.yaml", "--gpu", "k40", "--policies", "a.plan")
    Path("b.plan").write_text(text.replace("all is fine", "\\u001b[2J is fine"))
    assert "\\x1b[2J is fine" in printed(capsys, "plan", "evil.yaml", "--policy", "b.plan", "--gpu", "k40", code=2)
    k40 = Path(minidnn.__file__).with_name("costs") / "gpus" / "k40.yaml"
    lines = [r'title: "K40\e[2J\n\u202e"' if x.startswith("title:") else x for x in k40.read_text().splitlines()]
    Path("evil_gpu.yaml").write_text("\n".join(lines))
    assert "K40\\x1b[2J\\n\\u202e" in printed(capsys, "plan", "evil.yaml", "--gpu", "evil_gpu.yaml")
