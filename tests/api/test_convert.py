"""`minidnn convert`: each form of a net, a solver and weights from each other, and refusals in words."""

from __future__ import annotations

import json

import numpy as np
import pytest

from minidnn import zoo
from minidnn.api.convert import FORMS, convert
from minidnn.cli.main import main
from minidnn.layers import LAYERS
from minidnn.nets.net import Net
from minidnn.optimizers import OPTIMIZERS
from minidnn.schema import load_solver, plain
from minidnn.training.parameters import WeightsError
from minidnn.training.snapshot import load_weights
from tests.training.test_caffe_files import TEXT, net, values, written


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_net_through_all_forms_of_nets():
    forms = [suffix for suffix, form in FORMS.items() if form.net and form.net_text]
    last = "lenet"
    for i, suffix in enumerate([*forms, ".yaml"]):
        convert(last, last := f"net{i}{suffix}")
    assert Net.from_file(last) == zoo.load("lenet")


def test_a_solver_and_back():
    assert convert("digits_solver", "s.prototxt").what == "solver"
    convert("s.prototxt", "t.yaml")
    solvers = [load_solver(path, LAYERS, OPTIMIZERS) for path in (zoo.folder() / "digits_solver.yaml", "t.yaml")]
    assert plain(solvers[0]) == plain(solvers[1])


def test_weights_and_back_are_the_same_bytes(here):
    (here / "net.prototxt").write_text(TEXT)
    written(here / "old.caffemodel", values(), old=True)
    done = convert("old.caffemodel", "w.safetensors", net="net.prototxt")
    assert (done.what, done.count, done.notes) == ("weights", 7, [])
    names = {"conv": ("w", "b"), "bn": ("mean_sum", "variance_sum", "factor"), "ip": ("w", "b")}
    expected = {
        f"{layer}/{name}": array.tobytes()
        for layer, blobs in values().items()
        for name, array in zip(names[layer], blobs, strict=True)
    }
    assert {name: found.whole().tobytes() for name, found in load_weights("w.safetensors").items()} == expected
    convert("w.safetensors", "new.caffemodel", net="net.prototxt")
    convert("new.caffemodel", "again.safetensors", net="new.caffemodel")
    assert (here / "again.safetensors").read_bytes() == (here / "w.safetensors").read_bytes()
    convert("new.caffemodel", "net.yaml")
    assert Net.from_file("net.yaml") == net()


def test_shared_parameters_are_in_each_layer_of_a_caffemodel_and_once_in_safetensors(here):
    shared = TEXT.replace('top: "conv"\n', 'top: "conv" param { name: "w" }\n')
    twin = """layer { name: "twin" type: "Convolution" bottom: "data" top: "twin" param { name: "w" }
      convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }\n"""
    (here / "net.prototxt").write_text(shared + twin)
    blobs = values()
    blobs["twin"] = [blobs["conv"][0], np.float32([1, 2, 3, 4])]
    written(here / "w.caffemodel", blobs)
    convert("w.caffemodel", "w.safetensors", net="net.prototxt")
    assert {name for name in load_weights("w.safetensors") if "conv" in name or "twin" in name} == {
        "conv/w", "conv/b", "twin/b",
    }  # fmt: skip
    convert("w.safetensors", "x.caffemodel", net="net.prototxt")
    found = {name: array.whole().tobytes() for name, array in load_weights("x.caffemodel").items()}
    assert found == {f"{layer}/{i}": array.tobytes() for layer, its in blobs.items() for i, array in enumerate(its)}
    blobs["twin"][0] = blobs["twin"][0] + 1
    written(here / "w.caffemodel", blobs)
    with pytest.raises(WeightsError, match="conv/w and twin/w are one parameter, but have different values"):
        convert("w.caffemodel", "w.safetensors", net="net.prototxt")


def test_onnx_and_back_gives_the_same_weights(here):
    pytest.importorskip("onnx")
    first, last, end = (TEXT.index(f'layer {{ name: "{name}"') for name in ("bn", "ip", "loss"))
    text = TEXT[:first] + TEXT[last:end]
    (here / "net.prototxt").write_text(text.replace('bottom: "bn"', 'bottom: "conv"'))
    given = {layer: blobs for layer, blobs in values().items() if layer != "bn"}
    written(here / "w.caffemodel", given)
    convert("w.caffemodel", "w.onnx", net="net.prototxt")
    convert("w.onnx", "x.safetensors")
    found = sorted(array.whole().tobytes() for array in load_weights("x.safetensors").values())
    assert found == sorted(array.tobytes() for blobs in given.values() for array in blobs)
    assert convert("w.onnx", "x.yaml").what == "net" and [x.type for x in Net.from_file("x.yaml").layers][1:] == [
        "Convolution", "Flatten", "InnerProduct",
    ]  # fmt: skip


def test_what_is_left_out_is_told(here):
    (here / "net.prototxt").write_text(TEXT)
    written(here / "w.caffemodel", {**values(), "fc8": [np.ones((1, 1), np.float32)]})
    assert convert("w.caffemodel", "w.safetensors", "net.prototxt").notes == ["not in net.prototxt, left out: fc8/0"]


def test_what_caffe_does_not_know_is_told(here):
    (here / "s.yaml").write_text("base_lr: 0.1\nlr_policy: fixed\nrampup_interval: 5\nminidnn: {budget: 1GiB}\n")
    (note,) = convert("s.yaml", "s.prototxt").notes
    assert note == "Caffe does not know minidnn, rampup_interval: it will refuse the file"
    assert convert("s.prototxt", "t.yaml").notes == [] and convert("lenet", "lenet.prototxt").notes == []
    (here / "n.yaml").write_text("""
layer:
- {name: data, type: Input, top: t, input_param: {shape: {dim: [4]}}}
- {name: e, type: Embed, bottom: t, top: e, embed_param: {num_output: 4, input_dim: 9, weight_filler: {type: sinusoid}}}
""")
    assert "Caffe does not know filler sinusoid: it will refuse the file" in convert("n.yaml", "n.prototxt").notes


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["lenet", "x.onxx"], "x.onxx: expected a name that ends in .yaml, .yml, .prototxt"),
        (["net.prototxt", "x.caffemodel"], "net.prototxt contains no weights, so it cannot become a .caffemodel"),
        (["w.caffemodel", "x.safetensors"], "w.caffemodel: layer[conv].type: required, but not given"),
        (["s.safetensors", "x.caffemodel"], "s.safetensors: a .caffemodel needs the net that the weights belong to"),
        (["w.caffemodel", "x.safetensors", "--net", "lenet"], "w.caffemodel: these are not the weights of lenet"),
        (["w.caffemodel", "x.safetensors", "--net", "nosuch"], "there is no file or model nosuch"),
        (["digits_solver", "x.py"], "is a solver; a solver can be written as .yaml or .prototxt"),
        (["net.prototxt", "net.prototxt"], "net.prototxt and net.prototxt are the same file"),
        (["net.prototxt", "no/x.yaml"], "no/x.yaml: there is no folder no"),
        (["bad.prototxt", "x.yaml"], "bad.prototxt:2:1: foo: there is no field 'foo'"),
        (["raises.py", "x.yaml"], "raises.py: ZeroDivisionError: division by zero"),
        (["two.py", "x.yaml"], "two.py: expected one class that is a minidnn.Net, got A, B"),
        (["none.py", "x.yaml"], "none.py: expected one class that is a minidnn.Net, got none"),
        (["none.caffemodel", "x.yaml"], "there is no file or model none.caffemodel"),
    ],
)
def test_refusals(here, capsys, words, expected):
    (here / "net.prototxt").write_text(TEXT)
    (here / "bad.prototxt").write_text("\nfoo: 3" + TEXT)
    (here / "raises.py").write_text("1 / 0\n")
    (here / "two.py").write_text("import minidnn\nclass A(minidnn.Net): pass\nclass B(minidnn.Net): pass\n")
    (here / "none.py").write_text("import minidnn\n")
    (here / "s.safetensors").write_bytes(b"")
    written(here / "w.caffemodel", values())
    assert main(["convert", *words]) == 2
    assert expected in capsys.readouterr().err
    assert not list(here.glob("x.*"))


def test_the_verb(here, capsys):
    (here / "net.prototxt").write_text("foo: 3\n" + TEXT)
    assert main(["convert", "net.prototxt", "x.yaml", "--ignore-unknown"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "x.yaml: the net, 6 layers\n" and shown.err == "minidnn: ignored: net.prototxt:1:1: foo\n"
    assert main(["convert", "net.prototxt", "x.py", "--ignore-unknown", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "version": 1, "kind": "convert", "file": "x.py", "what": "net", "name": "", "count": 6,
        "notes": ["ignored: net.prototxt:1:1: foo"],
    }  # fmt: skip


def test_what_becomes_of_a_prototxt_s_snapshots_is_told(here):
    (here / "s.prototxt").write_text('base_lr: 0.1 lr_policy: "fixed" snapshot: 5')
    (note,) = convert("s.prototxt", "s.yaml").notes
    assert note.endswith("snapshot_format: BINARYPROTO, a .prototxt's default, keeps Caffe's")
    (here / "s.prototxt").write_text('base_lr: 0.1 lr_policy: "fixed" snapshot: 5 snapshot_format: BINARYPROTO')
    assert convert("s.prototxt", "s.yaml").notes == []
