"""Nets with losses: several, of pairs, of targets; tops without a name; matrices from files; what is printed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import minidnn
from minidnn import L, Net
from minidnn.cli.progress import outputs
from minidnn.formats import HALF
from minidnn.program import Role
from minidnn.programs.autodiff import NotTrainable, differentiate
from minidnn.schema import InvalidFile
from minidnn.training.predict import scores_of
from minidnn.training.session import Session
from tests.support.graphs import graph, net, tensor
from tests.support.paths import NET_FILES
from tests.support.trains import baseline, train


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("name", ["losses", "siamese", "autoencoder"])
def test_training_gives_the_bytes_of_baseline(name, device):
    want, losses, algorithms = baseline(name, device, "m")
    for policy in ("vdnn_all:m", "layrub:m", "recompute_all:m"):
        assert train(name, device, policy, debug=True) == (want, losses, algorithms)


def solver(name, **options):
    random = np.random.default_rng(7)
    data = random.standard_normal((24, 3, 12, 12)).astype(np.float32), random.integers(0, 3, 24).astype(np.int32)
    return minidnn.Solver(
        minidnn.load(NET_FILES / f"{name}.yaml"), seed=3, data=data, base_lr=0.02, momentum=0.9, **options
    )


@pytest.mark.parametrize("name", ["losses", "siamese", "autoencoder"])
def test_training_lowers_the_loss(name):
    with solver(name, device="cpu") as s:
        first = s.step().loss
        assert s.step(40).loss < 0.9 * first


@pytest.mark.parametrize("format", HALF)
def test_16_bits_train_nearly_as_float32_does(format):
    """The losses themselves work in float32; float16's scale multiplies the gradients of all of them alike."""
    ends = []
    for each in ("float32", format):
        with solver("losses", device="reference", format=each, minidnn={"loss_scale": 512}) as s:
            s.step(4)
            ends.append(s.params["left"]["w"])
    assert np.abs(ends[1] - ends[0]).max() < 0.03 * np.abs(ends[0]).max()
    g = minidnn.load(NET_FILES / "losses.yaml").graph("TRAIN", format=format)
    for op in differentiate(g).ops:
        if "_loss." in op.kind:
            assert {t.dtype for t in op.tensors} <= {"float32", "int32"}


def test_each_loss_is_shown_with_its_weight():
    with solver("autoencoder", device="cpu") as s:
        found = s.step().outputs
        cross, error = found["cross_entropy"], found["l2_error"]
        assert list(outputs("Train", found, s, "TRAIN")) == [
            f"    Train net output #0: cross_entropy = {cross:.6g} (* 0.01 = {0.01 * cross:.6g} loss)",
            f"    Train net output #1: l2_error = {error:.6g}",
        ]


# ---- tops without a name


UNNAMED = """
layer:
- {name: data, type: Input, top: data, input_param: {shape: {dim: [4, 3]}}}
- {name: label, type: Input, top: label, input_param: {shape: {dim: 4}}}
- {name: ip, type: InnerProduct, bottom: data, top: score, inner_product_param: {num_output: 3}}
- {name: loss, type: SoftmaxWithLoss, bottom: [score, label]}
- {name: score, type: HingeLoss, bottom: [score, label], loss_weight: 0.5}
- {name: accuracy, type: Accuracy, bottom: [score, label], include: {phase: TRAIN}}
- {name: accuracy, type: Accuracy, bottom: [score, label], include: {phase: TEST}}
"""


def test_a_loss_without_a_top_counts():
    """Its top has its name, or a number more where a blob has that. Caffe calls it "(automatic)"."""
    made = Net.from_text(UNNAMED)
    assert [layer.top for layer in made.layers[3:]] == [("loss",), ("score_2",), ("accuracy",), ("accuracy",)]
    program = differentiate(made.graph("TRAIN"))
    (objective,) = (op for op in program.ops if op.kind == "objective.forward")
    assert [t.name for t in objective.reads] == ["loss.y", "score.y"] and objective.attrs.weights == (1, 0.5)
    assert [t.name for t in differentiate(made.graph("TEST")).outputs] == ["loss.y", "score.y", "accuracy.y"]
    assert Net.from_text(made.to_yaml()) == made


def test_other_layers_need_a_top():
    with pytest.raises(InvalidFile, match="InnerProduct takes 1, got 0"):
        Net.from_text(UNNAMED.replace("top: score, ", ""))


def test_losses_in_python_are_called_loss():
    class Two(Net):
        def define(self):
            x, y = L.Input(shape=[{"dim": [4, 3]}, {"dim": [4, 3]}], top=["x", "y"])
            z = L.InnerProduct(x, num_output=3)
            L.EuclideanLoss(z, y, loss_weight=0)
            L.SigmoidCrossEntropyLoss(z, y, normalization="FULL")
            L.SmoothL1Loss(z, y, sigma=2.0)

    made = Two()
    assert [layer.name for layer in made.layers[2:]] == ["loss", "loss2", "loss3"]
    assert [made.graph("TRAIN")[name].layer.loss_weight() for name in ("loss", "loss2", "loss3")] == [0, 1, 1]
    assert made.layers[3].loss_param.mode("BATCH_SIZE") == "FULL" and made.layers[4].smooth_l1_loss_param.sigma == 2


# ---- gradients and targets


TARGET = """
- {name: data, type: Input, top: [x, y], input_param: {shape: {dim: [4, 3]}}}
- {name: ip, type: InnerProduct, bottom: x, top: a, inner_product_param: {num_output: 3}}
- {name: MADE}
- {name: loss, type: SigmoidCrossEntropyLoss, bottom: [a, b], top: loss}
"""
LEARNED = "ip2, type: InnerProduct, bottom: y, top: b, inner_product_param: {num_output: 3}"
GIVEN = "r, type: ReLU, bottom: y, top: b"


def test_a_target_that_is_learned_is_refused():
    text = TARGET.replace("MADE", LEARNED)
    with pytest.raises(NotTrainable, match=r"no gradient flows into 'b', .*; propagate_down: \[true, false\] holds it"):
        differentiate(graph(text))
    still = text.replace("top: loss}", "top: loss, propagate_down: [true, false]}")
    assert not [op for op in differentiate(graph(still)).ops if op.name.startswith("ip2.backward")]


def test_a_forced_gradient_leaves_targets_out():
    """As Caffe's force_backward does; into the data below the score it goes."""
    program = differentiate(graph(TARGET.replace("MADE", GIVEN), head="force_backward: true"))
    written = {t.name for op in program.ops for t in op.writes}
    assert "x.grad" in written and not {"b.grad", "r.y.grad", "y.grad"} & written


def test_a_loss_lets_no_gradient_out_of_its_top():
    through = TARGET.replace("MADE", GIVEN) + "- {name: e, type: Eltwise, bottom: [loss, loss], top: e, loss_weight: 1}"
    with pytest.raises(NotTrainable, match="layer loss: no gradient flows out of the tops of SigmoidCrossEntropyLoss"):
        differentiate(graph(through))


def test_labels_read_as_numbers_are_numbers():
    g = graph("""
- {name: data, type: Data, top: [data, label], data_param: {source: digits, batch_size: 8}}
- {name: ip, type: InnerProduct, bottom: data, top: ip, inner_product_param: {num_output: 1}}
- {name: loss, type: EuclideanLoss, bottom: [ip, label], top: loss}
""")
    assert (tensor(g, "label").dtype, tensor(g, "label").role) == ("float32", Role.INPUT)


def test_forward_returns_what_losses_compare():
    """Without targets and without labels of pairs."""
    with Session(minidnn.load(NET_FILES / "siamese.yaml"), device="reference") as s:
        found = s.forward(np.ones((2, 3, 12, 12), np.float32))
    assert {name: v.shape for name, v in found.items()} == {"feat": (2, 2), "feat_p": (2, 2)}
    with Session(minidnn.load(NET_FILES / "autoencoder.yaml"), device="reference") as s:
        assert s.forward(np.ones((2, 3, 12, 12), np.float32))["decode"].shape == (2, 432)


def test_pairs_have_no_scores():
    assert scores_of(net("losses", "TEST")) == ("chances", True)
    with pytest.raises(ValueError, match="nothing to classify with"):
        scores_of(net("siamese", "TEST"))


# ---- a matrix from a file


INFOGAIN = """
name: info
layer:
- {name: data, type: Data, top: [data, label], data_param: {source: digits, batch_size: 50}}
- {name: ip, type: InnerProduct, bottom: data, top: ip, inner_product_param: {num_output: 10}}
- {name: loss, type: InfogainLoss, bottom: [ip, label], top: loss, infogain_loss_param: {source: FILE}}
"""


@pytest.fixture
def matrix(tmp_path):
    path = tmp_path / "h.npy"

    def write(values):
        np.save(path, np.asarray(values))
        return INFOGAIN.replace("FILE", f"'{path}'")

    return SimpleNamespace(path=path, write=write)


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_the_matrix_of_a_file(matrix, device):
    """The identity is the softmax loss. Twice that is twice the loss; no file of weights has the matrix, so that the
    net's own file says it."""
    text = matrix.write(np.eye(10, dtype=np.float32))
    plain = text.replace("Infogain", "SoftmaxWith").split(", infogain_loss_param")[0] + "}\n"
    ends = {}
    for name, each in (("plain", plain), ("file", text)):
        options = dict(seed=1, base_lr=0.01, momentum=0.9, device=device, policy="vdnn_all:m")
        with minidnn.Solver(Net.from_text(each), **options) as s:
            ends[name] = [s.step().loss, s.step(3).loss]
            weights, state = s.session.weights(), s.session.state()
    assert ends["file"] == pytest.approx(ends["plain"], rel=1e-5)
    assert sorted(weights) == ["ip/b", "ip/w"] and sorted(state) == ["ip.b.momentum", "ip.w.momentum"]
    twice = matrix.write(2 * np.eye(10))
    with minidnn.Solver(Net.from_text(twice), seed=1, base_lr=0.01, device=device, weights=weights) as s:
        double = s.step().loss
    with minidnn.Solver(Net.from_text(plain), seed=1, base_lr=0.01, device=device, weights=weights) as s:
        assert double == pytest.approx(2 * s.step().loss, rel=1e-5)


def test_files_that_hold_no_matrix(matrix):
    text = matrix.write(np.eye(9))
    with pytest.raises(ValueError, match=r"h\.npy is 9x9; 10 classes need a matrix of 10x10"):
        Net.from_text(text).graph("TRAIN")
    for values, message in ((np.eye(10, dtype=int), "holds int64; expected float32"),
                            (np.full((10, 10), np.nan), "holds numbers that are not finite")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            Net.from_text(matrix.write(values)).graph("TRAIN")
    matrix.path.write_bytes(b"\x93NUMPY\x01\x00 no header")
    with pytest.raises(ValueError, match=r"h\.npy' cannot be read: "):
        Net.from_text(text).graph("TRAIN")
    matrix.path.unlink()
    with pytest.raises(ValueError, match=r"h\.npy' cannot be read: No such file"):
        Net.from_text(text).graph("TRAIN")
    with pytest.raises(ValueError, match=r"is not a \.binaryproto or \.npy file"):
        Net.from_text(text.replace(".npy", ".txt")).graph("TRAIN")


def test_a_matrix_in_caffe_s_form(matrix):
    """A BlobProto has the four axes 1, 1, 10, 10 in fields 1 to 4, and the floats in field 5."""
    values = np.arange(100, dtype="<f4")
    path = matrix.path.with_suffix(".binaryproto")
    path.write_bytes(bytes([8, 1, 16, 1, 24, 10, 32, 10, 42, 0x90, 3]) + values.tobytes())
    (p,) = Net.from_text(INFOGAIN.replace("FILE", f"'{path}'")).graph("TRAIN")["loss"].parameters
    assert p.shape == (10, 10) and np.array_equal(p.filler.array.ravel(), values)
    path.write_bytes(b"\xff\xff")
    with pytest.raises(ValueError, match=r"h\.binaryproto' cannot be read: "):
        Net.from_text(INFOGAIN.replace("FILE", f"'{path}'")).graph("TRAIN")


def test_both_phases_have_one_matrix(matrix):
    text = matrix.write(np.eye(10))
    other = matrix.path.with_name("other.npy")
    np.save(other, np.ones((10, 10)))
    both = text.replace("- {name: loss", "- {include: {phase: TRAIN}, name: loss")
    both += both.splitlines()[-1].replace("TRAIN", "TEST").replace(str(matrix.path), str(other)) + "\n"
    with pytest.raises(ValueError, match="its infogain has other values in phase TEST than in phase TRAIN"):
        Session(Net.from_text(both), phases=("TRAIN", "TEST"), device="reference")


def test_accuracy_for_each_class_is_caffe_s_second_top():
    text = """
    layer { name: "x" type: "Input" top: "s" top: "t" input_param { shape { dim: 4 dim: 3 } shape { dim: 4 } } }
    layer { name: "a" type: "Accuracy" bottom: "s" bottom: "t" top: "acc" top: "each" }
    """
    net = Net.from_text(text, source="net.prototxt")
    assert [top.tensor.shape for top in net.graph("TEST")["a"].tops] == [(1,), (3,)]
    with minidnn.Session(net, device="cpu", phases=("TEST",)) as session:
        assert session.scalar_names("TEST") == ["acc", "each[0]", "each[1]", "each[2]"]
