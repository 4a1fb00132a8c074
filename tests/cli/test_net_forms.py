"""A net is a net in every verb: FILE.py, FILE.py:CLASS and FILE.onnx, by themselves and in a solver's `net:`."""

from __future__ import annotations

import json

import numpy as np
import pytest

import minidnn
from minidnn.cli.main import main
from minidnn.schema import InvalidFile
from minidnn.training.snapshot import load_weights

NETS = """
import minidnn
from minidnn import L
from beside import WIDTH

print("not for standard output")

class Small(minidnn.Net):
    def define(self, batch=4):
        x, t = L.Data(source="synthetic:1x4x4:classes=3:count=8", batch_size=batch)
        L.SoftmaxWithLoss(L.InnerProduct(x, num_output=WIDTH, weight_filler=dict(type="xavier")), t)

class Deep(Small):
    def define(self, batch=4):
        x, t = L.Data(source="synthetic:1x4x4:classes=3:count=8", batch_size=batch)
        x = L.InnerProduct(x, num_output=8, weight_filler=dict(type="xavier"))
        L.SoftmaxWithLoss(L.InnerProduct(x, num_output=WIDTH, weight_filler=dict(type="xavier")), t)

if __name__ == "__main__":
    raise SystemExit("run as a program")
"""
OTHERS = """
class Fixed(minidnn.Net):
    def define(self):
        L.Softmax(L.InnerProduct(L.Input(shape=[dict(dim=[2, 5])]), num_output=3))

class Sized(Fixed):
    def define(self, depth, width):
        pass

class Batched(Fixed):
    def define(self, batch):
        L.Softmax(L.InnerProduct(L.Input(shape=[dict(dim=[batch, 5])]), num_output=3))

class Own(Fixed):
    def __init__(self, size=7):
        self.size = size
        super().__init__()

made = Fixed()
"""
FAST = ["--device", "reference"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beside.py").write_text("WIDTH = 3\n")
    (tmp_path / "nets.py").write_text(NETS)
    return tmp_path


def layers(capsys, *words: str) -> list[str]:
    assert main(["show", *words, "--json"]) == 0
    return [row["layer"] for row in json.loads(capsys.readouterr().out)["rows"]]


def refusal(capsys, *words: str) -> str:
    assert main([*words]) == 2
    return capsys.readouterr().err


class TestPython:
    def test_the_last_class_is_the_net_unless_one_is_named(self, capsys):
        assert len(layers(capsys, "nets.py")) == 4
        assert len(layers(capsys, "nets.py:Small")) == 3
        assert main(["plan", "nets.py:Deep", "--gpu", "titan_x", "--batch", "6", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert (document["net"], document["batch"], document["phase"]) == ("Deep", 6, "TRAIN")

    def test_several_are_named_and_how_to_choose(self, here, capsys):
        (here / "nets.py").write_text(NETS + OTHERS)
        told = refusal(capsys, "plan", "nets.py")
        assert "got Deep, Sized, Batched, Own: name one, as in nets.py:Own" in told
        assert "no net 'Dep' (did you mean 'Deep'?); it has Small, Deep, Fixed" in refusal(
            capsys, "plan", "nets.py:Dep"
        )
        assert "nets.py:WIDTH is a int, not a minidnn.Net" in refusal(capsys, "plan", "nets.py:WIDTH")
        assert "class Sized takes depth, width without a default" in refusal(capsys, "plan", "nets.py:Sized")
        assert "takes batch without a default: give one, or name it by --batch" in refusal(
            capsys, "plan", "nets.py:Batched"
        )
        assert len(layers(capsys, "nets.py:Batched", "--batch", "3")) == 3
        assert len(layers(capsys, "nets.py:made")) == len(layers(capsys, "nets.py:Own", "--batch", "3")) == 3

    def test_what_a_file_imports_counts_if_it_is_named(self, here, capsys):
        (here / "user.py").write_text("from nets import Deep\n")
        told = refusal(capsys, "plan", "user.py")
        assert "expected one class that is a minidnn.Net, got none" in told and "name it: user.py:Deep" in told
        assert len(layers(capsys, "user.py:Deep")) == 4
        (here / "made.py").write_text("from nets import Deep\nnet = Deep(batch=2)\n")
        assert len(layers(capsys, "made.py")) == 4

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("1 / 0\n", "bad.py: ZeroDivisionError: division by zero (bad.py:1)"),
            ("import sys\nsys.exit(3)\n", "bad.py: it ends Python before there is a net (SystemExit: 3)"),
            ("def f(:\n", "bad.py: SyntaxError: invalid syntax"),
            ("import nowhere_to_be_seen\n", "bad.py: ModuleNotFoundError"),
            ("import minidnn\nclass A(minidnn.Net):\n    def define(self): 1 / 0\n", "(bad.py:3)"),
            ("import minidnn\nclass A(minidnn.Net): pass\n", "bad.py: class A has no method `define`"),
            ("raise BaseException('x')\n", "bad.py: BaseException: x (bad.py:1)"),
            (
                "import minidnn\nclass A(minidnn.Net):\n    def __init__(self): pass\n",
                "bad.py: class A has an __init__ that does not call super().__init__()",
            ),
            (
                "import minidnn\nclass A(minidnn.Net):\n    def define(self):\n"
                "        x = minidnn.L.Input(shape=[dict(dim=[1, 3])])\n        minidnn.L.Pooling(x, kernel_size=9)\n",
                "bad.py: net A: layer 'pool1'",
            ),
        ],
    )
    def test_what_goes_wrong_in_a_file_is_told_in_a_line(self, here, capsys, text, told):
        (here / "bad.py").write_text(text)
        message = refusal(capsys, "plan", "bad.py")
        assert told in message and message.count("\n") == 1 and "internal error" not in message

    def test_a_file_is_read_anew_and_its_name_is_its_own(self, here, capsys):
        (here / "json.py").write_text(NETS)
        assert len(layers(capsys, "json.py")) == 4
        (here / "json.py").write_text(NETS.replace("class Deep", "class Deeper"))
        assert main(["plan", "json.py", "--gpu", "titan_x", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["net"] == "Deeper"

    def test_names_with_colons(self, here, capsys):
        assert "there is no file or model C:\\nets.py" in refusal(capsys, "plan", "C:\\nets.py")
        assert "there is no file or model no.py:Deep" in refusal(capsys, "plan", "no.py:Deep")
        (here / "a:b.py").write_text(NETS)
        assert len(layers(capsys, "a:b.py")) == len(layers(capsys, "a:b.py:Deep")) == 4

    def test_in_a_solver_it_lies_beside_the_solver(self, here, capsys, monkeypatch):
        (here / "solver.yaml").write_text("net: nets.py:Small\nbase_lr: 0.1\nlr_policy: fixed\nmax_iter: 2\n")
        (here / "elsewhere").mkdir()
        monkeypatch.chdir(here / "elsewhere")
        assert main(["train", "../solver.yaml", *FAST, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["iterations"] == 2

    def test_a_net_trains_with_solver_fields(self, capsys):
        assert "is a net: training needs a solver file" in refusal(capsys, "train", "nets.py")
        assert main(["train", "nets.py", *FAST, "--set", "type=Adam", "--max-iter", "3", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["iterations"] == 3


class TestOnnx:
    @pytest.fixture(autouse=True)
    def model(self, here):
        pytest.importorskip("onnx")
        from minidnn import onnx

        net = minidnn.Net.from_text(
            "name: m\nlayer:\n- {name: x, type: Input, top: x, input_param: {shape: {dim: [1, 1, 4, 4]}}}\n"
            "- {name: ip, type: InnerProduct, bottom: x, top: ip, inner_product_param: {num_output: 3}}\n"
        )
        self.w = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)
        onnx.write(net, {"ip/w": self.w, "ip/b": np.zeros(3, np.float32)}, "model.onnx")
        np.savez("set.npz", x=np.ones((8, 1, 4, 4), np.float32), y=np.arange(8) % 3)
        (here / "solver.yaml").write_text(
            "net: model.onnx\nbase_lr: 0\nlr_policy: fixed\nmax_iter: 1\nsnapshot_prefix: run\n"
        )

    def test_verbs_that_plan_take_it(self, capsys):
        assert layers(capsys, "model.onnx")[0] == "x"
        for verb in (["plan"], ["frontier", "--points", "2"], ["search", "--max", "batch", "--policy", "liveness"]):
            assert main([*verb, "model.onnx", "--gpu", "titan_x", "--json"]) == 0
            shown = capsys.readouterr()
            assert json.loads(shown.out)["phase"] == "TEST" and "the weights are those of model.onnx" in shown.err
        assert main(["plan", "model.onnx", "--loss", "--batch", "5", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert (document["phase"], document["batch"]) == ("TRAIN", 5)

    @pytest.mark.parametrize("words", [["solver.yaml"], ["model.onnx", "--set", "base_lr=0", "--max-iter", "1",
                                                         "--snapshot-prefix", "run"]])  # fmt: skip
    def test_training_begins_with_its_weights(self, words, capsys):
        assert main(["train", *words, *FAST, "--data", "set.npz", "--batch", "4"]) == 0
        shown = capsys.readouterr().out
        assert "the weights are those of model.onnx" in shown and "has no loss: labels and a SoftmaxWithLoss" in shown
        trained = load_weights("run_iter_1.safetensors")
        weight = next(rows for name, rows in trained.items() if name.endswith("/w"))
        assert np.array_equal(weight.whole(), self.w)

    def test_other_weights_overrule_them(self, capsys):
        assert main(["train", "solver.yaml", *FAST, "--data", "set.npz", "--set", "base_lr=0.5"]) == 0
        capsys.readouterr()
        for words in (["--resume", "latest"], ["--weights", "run_iter_1.safetensors"]):
            assert main(["train", "solver.yaml", *FAST, "--data", "set.npz", "--max-iter", "2", *words]) == 0
            assert "the weights are those of" not in capsys.readouterr().out
        after = next(rows for name, rows in load_weights("run_iter_2.safetensors").items() if name.endswith("/w"))
        assert not np.array_equal(after.whole(), self.w)

    def test_without_samples_it_says_how_to_give_them(self, capsys):
        assert "the command line --data SOURCE" in refusal(capsys, "train", "solver.yaml", *FAST)

    def test_predict_and_test_take_its_weights(self, capsys):
        np.savez("some.npz", x=np.ones((1, 1, 4, 4), np.float32))
        assert main(["predict", "model.onnx", "some.npz", *FAST, "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)["predictions"]
        assert row["classes"][0] == int(self.w.sum(1).argmax())
        assert main(["test", "solver.yaml", *FAST, "--data", "set.npz", "--batch", "8", "--json"]) == 0
        scores = self.w.sum(1).astype(np.float64)
        losses = np.log(np.exp(scores).sum()) - scores[np.arange(8) % 3]
        assert json.loads(capsys.readouterr().out)["outputs"]["loss"] == pytest.approx(losses.mean(), rel=1e-5)
        assert "has no weights" in refusal(capsys, "test", "nets.py")

    def test_free_lengths_are_given_by_shape(self, capsys):
        import onnx

        made, kind = onnx.helper, onnx.TensorProto.FLOAT
        x, y = (made.make_tensor_value_info(name, kind, ["N", "T", n]) for name, n in (("x", 16), ("y", 3)))
        weight = onnx.numpy_helper.from_array(self.w.T.copy(), "w")
        graph = made.make_graph([made.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weight])
        onnx.save(made.make_model(graph, opset_imports=[made.make_opsetid("", 17)]), "free.onnx")
        assert "give one by --shape NAME=..., or export" in refusal(capsys, "plan", "free.onnx")
        for more in ([], ["--loss"]):
            assert main(["plan", "free.onnx", "--gpu", "titan_x", "--shape", "x=4,7,16", *more, "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["batch"] == 4
        assert "it has no input 'z'" in refusal(capsys, "plan", "free.onnx", "--shape", "z=4,7,16")

    def test_in_python_too(self):
        with minidnn.Session("model.onnx", device="reference") as session:
            x = np.random.default_rng(1).standard_normal((1, 1, 4, 4)).astype(np.float32)
            (scores,) = session.forward(x).values()
            assert np.allclose(scores, x.reshape(1, 16) @ self.w.T, rtol=1e-5)
        net = minidnn.load("model.onnx", 2)
        assert net.with_loss().with_batch(3).weights.keys() == net.weights.keys() and net.weights_file == "model.onnx"
        wrong = net.with_weights({**net.weights, f"{net.layers[-1].name}/w": np.zeros((2, 2), np.float32)})
        with pytest.raises(InvalidFile, match="but the net comes with one of"):
            wrong.initial(0)
