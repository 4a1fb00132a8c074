"""Where inputs come from: several labels a sample, arrays by name, MemoryData, fillers, a Parameter as a bottom."""

from __future__ import annotations

import numpy as np
import pytest

import minidnn
from minidnn.data import DataError
from minidnn.errors import InvalidInput
from minidnn.layers.base import ShapeError
from tests.support.graphs import graph

SEGMENT = """
name: segment
layer:
- {name: data, type: Input, top: data, input_param: {shape: {dim: [4, 2, 5, 5]}}}
- {name: truth, type: Input, top: truth, input_param: {shape: {dim: [4, 1, 5, 5]}}}
- {name: score, type: Convolution, bottom: data, top: score,
   convolution_param: {num_output: 3, kernel_size: 1, weight_filler: {type: msra}}}
- {name: loss, type: SoftmaxWithLoss, bottom: [score, truth], top: loss, loss_param: {ignore_label: 255}}
- {name: accuracy, type: Accuracy, bottom: [score, truth], top: accuracy, accuracy_param: {ignore_label: 255}}
"""
BY_FILE = """- {name: data, type: Data, top: [data, truth], data_param: {source: "pictures.npz", batch_size: 4}}
"""
APART = """
- {name: data, type: Data, top: data, data_param: {source: "pictures.npz", batch_size: 4}, transform_param: {T}}
- {name: truth, type: Data, top: truth, data_param: {source: "truths.npz", batch_size: 4}, transform_param: {T}}
"""
END = SEGMENT[SEGMENT.index("- {name: score") :]


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(3)
    x = random.standard_normal((12, 2, 5, 5)).astype(np.float32)
    y = (x[:, :1] > 0).astype(np.int64) + (x[:, 1:] > 0)
    y[:, :, 0, 0] = 255
    np.savez("pictures.npz", x=x, y=y)
    np.savez("truths.npz", x=y, y=np.zeros(12, int))
    return x, y


def trained(net, steps=5, **options):
    with minidnn.Solver(net, base_lr=0.1, device=options.pop("device", "reference"), seed=2, **options) as s:
        losses = [s.step().loss for _ in range(steps)]
        return losses, s.session.weights()["score/w"].tobytes()


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_a_label_for_each_pixel_by_arrays_and_by_files_alike(pictures, device):
    arrays = trained(minidnn.Net.from_text(SEGMENT), data=pictures, device=device)
    assert trained(minidnn.Net.from_text(SEGMENT), 30, data=pictures, device=device)[0][-1] < arrays[0][0]
    x, y = pictures
    by_name = {"data": x, "truth": y[:, 0]}  # labels fit in any shape with as many of them
    assert trained(minidnn.Net.from_text(SEGMENT), data=by_name, device=device) == arrays
    assert trained(minidnn.Net.from_text(f"layer:\n{BY_FILE}{END}"), device=device) == arrays
    assert trained(minidnn.Net.from_text(f"layer:\n{APART.replace('{T}', '{}')}{END}"), device=device) == arrays


def test_pictures_and_their_labels_are_cropped_and_mirrored_alike(pictures):
    """From two Data layers, as FCN has them: a net that copies its input gets all labels right."""
    _, y = pictures
    np.savez("pictures.npz", x=np.eye(3)[y.clip(0, 2)[:, 0]].transpose(0, 3, 1, 2), y=np.zeros(12, int))
    text = f"layer:\n{APART.replace('{T}', '{crop_size: 3, mirror: true}')}{END}"
    net = minidnn.Net.from_text(text)
    assert net.graph("TRAIN")["truth"].tops[0].tensor.shape == (4, 1, 3, 3)
    with minidnn.Solver(net, base_lr=0, device="reference", seed=2) as s:
        s.params["score"]["w"] = np.eye(3, dtype=np.float32).reshape(3, 3, 1, 1)
        assert [s.step().outputs["accuracy"] for _ in range(6)] == [1.0] * 6


def test_a_transform_that_would_part_pixels_from_labels_is_refused(pictures):
    text = f"layer:\n{BY_FILE.replace('batch_size: 4}', 'batch_size: 4}, transform_param: {mirror: true}')}{END}"
    with pytest.raises(
        DataError, match=r"net.yaml:2:3: .*crop_size, mirror, resize and rotation move the pixels .* but not its labels"
    ):
        minidnn.Net.from_text(text).graph("TRAIN")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda x, y: (x, y[:, :, :4]), "a batch has labels of shape"),
        (lambda x, y: (x, y + 3), "label 258 occurs, but layer loss gets 3 scores"),
        (lambda x, y: x, r"expected \(x, y\), or a dict of arrays by name, got one array of shape \(12, 2, 5, 5\)"),
        (lambda x, y: (x, y, y), r"expected \(x, y\), or a dict of arrays by name, got 3 of them"),
        (lambda x, y: {"data": x}, "the inputs are data, truth; got arrays for data"),
        (
            lambda x, y: {"data": x, "truth": y[:5]},
            "expected the same number of samples for each input; got data 12, truth 5",
        ),
        (lambda x, y: {"data": x[:, :1], "truth": y}, r"array 'data'.*expected numbers of shape \(n, 2, 5, 5\)"),
        (lambda x, y: {"data": x, "truth": y + 0.5}, r"\d+.5 in sample \d+ is not a label: truth takes whole numbers"),
        (
            lambda x, y: {"data": x, "truth": y + 2**40},
            r"\d+ in sample \d+ is not a label: .* whole numbers below 2\^31",
        ),
        (
            lambda x, y: {"data": x, "truth": y + 2**32},
            r"429496\d+ in sample \d+ is not a label: truth takes whole numbers",
        ),
        (
            lambda x, y: {"data": x, "truth": y + 1e20},
            r"1[.\d]*e\+20 in sample \d+ is not a label: truth takes whole numbers",
        ),
        (
            lambda x, y: {"data": x, "truth": y + 3},
            r"label \d+ of sample \d+ names none of the 3 classes of layer loss",
        ),
        (lambda x, y: {"data": x * np.inf, "truth": y}, "sample 0 holds values that are not finite"),
        (lambda x, y: {"data": x, "truth": np.array(["a"] * 12)}, "expected numbers of shape"),
    ],
)
def test_arrays_that_do_not_fit(pictures, change, says):
    with pytest.raises(DataError, match=says):
        trained(minidnn.Net.from_text(SEGMENT), data=change(*pictures))


def test_forward_needs_what_its_outputs_depend_on(pictures):
    with minidnn.Session(minidnn.Net.from_text(SEGMENT), device="reference") as s:
        assert s.forward(pictures[0])["score"].shape == (12, 3, 5, 5)
    two = """
layer:
- {name: data, type: Input, top: [a, b, target], input_param: {shape: {dim: [4, 3]}}}
- {name: sum, type: Eltwise, bottom: [a, b], top: sum}
- {name: apart, type: Eltwise, bottom: [sum, target], top: apart, eltwise_param: {coeff: [1, -1]}}
- {name: ip, type: InnerProduct, bottom: sum, top: ip, inner_product_param: {num_output: 2}}
"""
    given = {"a": np.ones((5, 3)), "b": np.ones((5, 3))}
    whole = minidnn.Net.from_text(two)
    with (
        minidnn.Session(whole, device="reference") as s,
        pytest.raises(InvalidInput, match="no value for input target"),
    ):
        s.forward(given)
    without = minidnn.Net.from_text(two.replace("name: apart,", "name: apart, exclude: {},"))
    with minidnn.Session(without, device="cpu") as s:
        assert set(s.forward(given)) == {"ip"}


# ---- MemoryData


IP = "type: InnerProduct, inner_product_param: {num_output: 3, weight_filler: {type: xavier}}"
MEMORY = f"""
name: memory
layer:
- {{name: m, type: MemoryData, top: [data, label],
   memory_data_param: {{batch_size: 4, channels: 2, height: 5, width: 5}}}}
- {{name: score, bottom: data, top: ip, {IP}}}
- {{name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}}
"""


def test_memory_data_is_filled_by_the_caller(pictures):
    x, y = pictures[0], np.arange(12) % 3
    net = minidnn.Net.from_text(MEMORY)
    losses, _ = trained(net, data=(x, y))
    assert losses[-1] < losses[0]
    as_input = MEMORY.replace("type: MemoryData", "type: Input").replace(
        "memory_data_param: {batch_size: 4, channels: 2, height: 5, width: 5}",
        "input_param: {shape: [{dim: [4, 2, 5, 5]}, {dim: 4}]}",
    )
    assert trained(minidnn.Net.from_text(as_input), data=(x, y)) == trained(net, data={"data": x, "label": y})
    assert net.with_batch(6).graph("TRAIN")["m"].tops[0].tensor.shape == (6, 2, 5, 5)
    assert net.with_images(7).graph("TRAIN")["m"].tops[0].tensor.shape == (4, 2, 7, 7)
    with pytest.raises(
        DataError, match=r"data, label come from Input or MemoryData layers: a Solver needs data=\(x, y\)"
    ):
        trained(net)


# ---- DummyData


DUMMY = f"""
name: dummy
layer:
- {{name: d, type: DummyData, top: [x, one, label], dummy_data_param: {{
   shape: [{{dim: [4, 6]}}, {{dim: [4, 3]}}, {{dim: [4, 1, 1, 1]}}],
   data_filler: [{{type: gaussian, std: 2}}, {{value: 0.5}}, {{type: uniform, min: 0, max: 3}}]}}}}
- {{name: score, bottom: x, top: ip, {IP}}}
- {{name: sum, type: Eltwise, bottom: [ip, one], top: sum}}
- {{name: loss, type: SoftmaxWithLoss, bottom: [sum, label], top: loss}}
"""


def test_fillers_make_data_that_depend_on_seed_and_iteration():
    net = minidnn.Net.from_text(DUMMY)
    g = net.graph("TRAIN")
    assert [(b.tensor.shape, b.tensor.dtype) for b in g["d"].tops] == [
        ((4, 6), "float32"), ((4, 3), "float32"), ((4,), "int32"),
    ]  # fmt: skip
    losses, weights = trained(net)
    assert len(set(losses)) == 5, "each batch is another"
    assert trained(net, iter_size=1, policy="vdnn_all") == (losses, weights)
    assert trained(net, device="cpu")[0] == pytest.approx(losses, rel=1e-5)


def test_a_run_of_dummy_data_resumed_is_the_run(tmp_path):
    options = dict(base_lr=0.1, device="reference", seed=2, iter_size=2, snapshot_prefix=str(tmp_path / "d"))
    with minidnn.Solver(minidnn.Net.from_text(DUMMY), **options) as s:
        s.step(2)
        path = s.save().path
        want = s.step(2).loss
    with minidnn.Solver(minidnn.Net.from_text(DUMMY), resume=path, **options) as s:
        assert s.step(2).loss == want


def test_forward_has_the_constants_of_dummy_data():
    text = DUMMY.replace("type: gaussian, std: 2", "value: 2")
    extra = "- {name: data, type: Input, top: data, input_param: {shape: {dim: [4, 3]}}}\n"
    text = text.replace("bottom: [ip, one]", "bottom: [data, one]").replace("- {name: sum", f"{extra}- {{name: sum")
    with minidnn.Session(minidnn.Net.from_text(text), device="cpu") as s:
        x = np.ones((5, 3), np.float32)
        np.testing.assert_array_equal(s.forward(x)["sum"], x + 0.5)


@pytest.mark.parametrize(
    ("param", "says"),
    [
        ("shape: [{dim: 4}, {dim: 4}]", "expected one dummy_data_param.shape, or 3 for 3 tops; got 2"),
        ("data_filler: [{}, {}], shape: {dim: 4}", "expected no data_filler, one, or 3 for 3 tops; got 2"),
        ("num: 4, channels: 2, height: 1", "expected either shape, or num, channels, height and width"),
        ("num: 4, channels: 2, height: 1, width: 1, shape: {dim: 4}", "expected either shape"),
        ("num: [4, 4], channels: [2, 2, 2], height: 1, width: 1", "expected either shape"),
        ("", "got 0"),
    ],
)
def test_shapes_of_dummy_data_that_cannot_be(param, says):
    with pytest.raises(ShapeError, match=says):
        graph(f"- {{name: d, type: DummyData, top: [a, b, c], dummy_data_param: {{{param}}}}}")


def test_the_old_form_of_shapes():
    text = "name: d, type: DummyData, top: [a, b], dummy_data_param: {num: [4, 5], channels: 2, height: 3, width: 3}"
    net = minidnn.Net.from_text(f"layer: {{{text}}}")

    def shapes(net):
        return [b.tensor.shape for b in net.graph("TRAIN")["d"].tops]

    assert shapes(net) == [(4, 2, 3, 3), (5, 2, 3, 3)]
    assert shapes(net.with_batch(7)) == [(7, 2, 3, 3)] * 2
    assert shapes(net.with_images(6)) == [(4, 2, 6, 6), (5, 2, 6, 6)]
    assert minidnn.Net.from_text(net.to_yaml()) == net


def test_a_filler_s_label_that_names_no_class_is_refused():
    with pytest.raises(DataError, match="layer d: its filler's label 7 names none of the 3 classes of layer loss"):
        trained(minidnn.Net.from_text(DUMMY.replace("type: uniform, min: 0, max: 3", "value: 7")))


# ---- Parameter


@pytest.mark.parametrize("format", ["float32", "float16"])
def test_a_parameter_as_a_bottom_learns(format):
    """The sum of (x + bias)^2 / 2, at rate 1/4 * 2: each step halves x + bias."""
    text = """
layer:
- {name: data, type: Input, top: data, input_param: {shape: {dim: [4, 3]}}}
- {name: bias, type: Parameter, top: bias, parameter_param: {shape: {dim: [4, 3]}}, param: {name: p, lr_mult: 2}}
- {name: sum, type: Eltwise, bottom: [data, bias], top: sum}
- {name: square, type: Eltwise, bottom: [sum, sum], top: square, loss_weight: 0.5, eltwise_param: {operation: PROD}}
"""
    x = np.repeat(np.float32([[1, -2, 0.5]]), 4, 0)
    net = minidnn.Net.from_text(text)
    options = dict(base_lr=0.25, device="reference", format=format, seed=0, minidnn={"loss_scale": 512})
    with minidnn.Solver(net, data={"data": x}, **options) as s:
        assert not s.notes, "zeros are no mistake there"
        s.step(3)
        np.testing.assert_allclose(s.params["bias"]["blob"], -x * (1 - 2.0**-3), rtol=1e-3)
        assert "bias/blob" in s.values()
