"""Data of tensors that lie in files beside the model: read from any folder, or refused with the tensor's name."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed (the extra `onnx`)")

import onnx

from minidnn.onnx import InvalidModel, read
from minidnn.onnx.file import load
from tests.fuzz.kind import command

h = onnx.helper
W = np.arange(12, dtype=np.float32).reshape(3, 4)
B = np.array([1, -1, 0.5], np.float32)


def tensor(name, value, location, offset=0, length=None, **more):
    """A tensor that says where its data lie; None: it does not say how many bytes."""
    result = onnx.TensorProto(name=name, data_type=h.np_dtype_to_tensor_dtype(value.dtype), dims=value.shape)
    result.data_location = onnx.TensorProto.EXTERNAL
    said = {"location": location, "offset": offset, "length": length, **more}
    for key, what in said.items():
        if what is not None:
            result.external_data.add(key=key, value=str(what))
    return result


def model(*initializers, nodes=(), outputs=("y",)):
    nodes = [h.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1), *nodes]
    info = h.make_tensor_value_info
    graph = h.make_graph(
        nodes, "g", [info("x", 1, [2, 4])], [info(n, 1, [2, 3]) for n in outputs], initializer=initializers
    )
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8).SerializeToString()


def usual(folder, where="m.onnx.data", **more):
    """A model in the folder whose weights lie beside it."""
    folder.mkdir(exist_ok=True)
    (folder / "m.onnx").write_bytes(
        model(tensor("w", W, where, **{"offset": 0, "length": 48, **more}), tensor("b", B, "m.onnx.data", 64, 12))
    )
    (folder / "m.onnx.data").write_bytes(W.tobytes() + bytes(16) + B.tobytes())
    return folder / "m.onnx"


def test_weights_beside_the_model_are_read_from_any_folder(tmp_path, monkeypatch):
    path = usual(tmp_path / "there")
    for here in (tmp_path, tmp_path / "there"):
        monkeypatch.chdir(here)
        _, weights = read(os.path.relpath(path))
        np.testing.assert_array_equal(weights["y/w"], W)
        np.testing.assert_array_equal(weights["y/b"], B)
    assert command("convert", str(path), "net.yaml").code == 0


def test_what_onnx_saves_is_read(tmp_path):
    path = usual(tmp_path)
    whole = onnx.load(path)
    whole.graph.node.add(op_type="Constant", output=["c"]).attribute.append(
        h.make_attribute("value", onnx.numpy_helper.from_array(W, "c"))
    )
    whole.graph.node.append(h.make_node("MatMul", ["y", "c"], ["z"]))
    whole.graph.output[0].name = "z"
    onnx.save(whole, path, save_as_external_data=True, size_threshold=0, convert_attribute=True, location="all.data")
    _, weights = read(path)
    np.testing.assert_array_equal(weights["y/w"], W)
    np.testing.assert_array_equal(weights["z/w"], W.T)


@pytest.mark.parametrize("kind", ["float64", "float16", "bfloat16"])
def test_other_types_are_read(tmp_path, kind):
    if kind == "bfloat16":
        kind = pytest.importorskip("ml_dtypes").bfloat16
    w, b = W.astype(kind), B.astype(kind)
    path = tmp_path / "m.onnx"
    size = w.nbytes
    path.write_bytes(model(tensor("w", w, "d"), tensor("b", b, "e", 0, b.nbytes)))
    (tmp_path / "d").write_bytes(w.tobytes())
    (tmp_path / "e").write_bytes(b.tobytes())
    _, weights = read(path)
    np.testing.assert_array_equal(weights["y/w"], W)
    assert size == (tmp_path / "d").stat().st_size


def test_two_tensors_of_one_place_are_one_array(tmp_path):
    path = tmp_path / "m.onnx"
    twice = h.make_node("Gemm", ["x", "v", "b"], ["z"], transB=1)
    path.write_bytes(model(tensor("w", W, "d", 0, 48), tensor("v", W, "d", 0, 48), tensor("b", B, "e"), nodes=[twice]))
    (tmp_path / "d").write_bytes(W.tobytes())
    (tmp_path / "e").write_bytes(B.tobytes())
    _, beside = load(path)
    assert np.shares_memory(beside["w"], beside["v"])


REFUSED = [
    ("/etc/passwd", {}, "only files in the model's folder are read"),
    ("../secret", {}, "only files in the model's folder are read"),
    ("a/../../secret", {}, "only files in the model's folder are read"),
    ("", {}, "only files in the model's folder are read"),
    ("a\0b", {}, "only files in the model's folder are read"),
    (".", {}, "only files in the model's folder are read"),
    ("folder", {}, "Is a directory"),
    ("link", {}, "a link out of the model's folder"),
    ("away/secret", {}, "a link out of the model's folder"),
    ("loop", {}, "symbolic links"),
    ("pipe", {}, "not a regular file"),
    ("nothing.data", {}, "No such file or directory; that file belongs next to the model"),
    ("x" * 300, {}, "File name too long"),
    ("m.onnx.data", {"offset": 1000}, "48 bytes at 1000 of 'm.onnx.data', which has 76"),
    ("m.onnx.data", {"offset": 64}, "48 bytes at 64 of 'm.onnx.data', which has 76: the file is truncated"),
    ("m.onnx.data", {"length": 44}, "and its shape and type need 48"),
    ("m.onnx.data", {"length": None}, "76 bytes at 0 of 'm.onnx.data', and its shape and type need 48"),
    ("m.onnx.data", {"offset": -1}, "the offset of its data is '-1'"),
    ("m.onnx.data", {"length": "4e1"}, "the length of its data is '4e1'"),
    ("m.onnx.data", {"length": 10**30}, "which is not a number of bytes"),
]


@pytest.mark.parametrize(("where", "more", "reason"), REFUSED)
def test_other_places_are_refused_by_name(tmp_path, where, more, reason):
    path = usual(tmp_path / "there", where, **more)
    (tmp_path / "secret").write_bytes(W.tobytes())
    (path.parent / "link").symlink_to("../secret")
    (path.parent / "away").symlink_to("..")
    (path.parent / "loop").symlink_to("loop")
    (path.parent / "folder").mkdir()
    os.mkfifo(path.parent / "pipe")
    with pytest.raises(InvalidModel, match="not a valid ONNX model: tensor 'w': .*" + re.escape(reason)):
        read(path)


def test_a_few_bytes_are_not_read_again_and_again(tmp_path):
    path = tmp_path / "m.onnx"
    many = [tensor(f"w{i}", W[:1], "d", i, 16) for i in range(40)]
    path.write_bytes(model(tensor("w", W, "d", 0, 48), tensor("b", B, "d", 4, 12), *many))
    (tmp_path / "d").write_bytes(bytes(60))
    with pytest.raises(InvalidModel, match="tensor 'w0': its data overlap with those of other tensors"):
        read(path)


def test_a_model_that_is_no_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "m.onnx")
    with pytest.raises(OSError, match="not a regular file"):
        read(tmp_path / "m.onnx")


@pytest.mark.peer("torch", "onnxscript")
def test_what_pytorch_exports_by_default_is_read_from_another_folder(tmp_path, monkeypatch):
    import torch

    module = torch.nn.Sequential(torch.nn.Linear(4, 300), torch.nn.GELU(), torch.nn.Linear(300, 3)).eval()
    (tmp_path / "there").mkdir()
    path = tmp_path / "there" / "m.onnx"
    torch.onnx.export(module, (torch.zeros(2, 4),), str(path), dynamo=True)
    assert (tmp_path / "there" / "m.onnx.data").exists()
    monkeypatch.chdir(tmp_path)
    _, weights = read("there/m.onnx")
    theirs = {tuple(p.shape): p.detach().numpy() for p in module.parameters()}
    assert len(weights) == 4
    for value in weights.values():
        np.testing.assert_array_equal(value, theirs[value.shape])
