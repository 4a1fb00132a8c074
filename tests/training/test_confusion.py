"""The table of confusions: each sample once, along any axis, with names if the source knows them."""

from __future__ import annotations

import io

import numpy as np
import pytest

from minidnn.data import SOURCES
from minidnn.data.dataset import Arrays, Source
from minidnn.errors import InvalidInput
from minidnn.nets.net import Net
from minidnn.report import confusion as report
from minidnn.training.confusion import Confusion, Judge
from minidnn.training.evaluate import evaluate
from minidnn.training.feeds import Feeds
from minidnn.training.session import Session
from minidnn.training.solver import Solver
from tests.support.tiny import CLASSES, SAMPLES, samples, tiny


def by_hand(answers: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    counts = np.zeros((classes, classes), np.int64)
    for label, answer in zip(labels.ravel(), answers.ravel(), strict=True):
        counts[label, answer] += 1
    return counts


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_each_sample_counts_once(device):
    """Four batches of six show twenty samples; the four that are shown again count once."""
    x, y = samples()
    with Solver(tiny(), device=device, data=(x, y), test_data=(x, y), max_iter=1, seed=2) as run:
        run.step(3)
        tested = run.test(confusion=True)
        answers = run.forward(x)["ip"].argmax(1)
        assert run.test().confusion is None
        part = run.test(batches=2, confusion=True).confusion
        assert run.test(batches=9, confusion=True).confusion.samples == SAMPLES  # more than there are
    found = tested.confusion
    assert (found.counts == by_hand(answers, y, CLASSES)).all() and found.samples == SAMPLES
    assert found.names == ("0", "1", "2") and found.layer == "accuracy"
    assert (part.counts == by_hand(answers[:12], y[:12], CLASSES)).all()
    assert found.accuracy == (answers == y).mean()
    assert found.class_accuracy == [float((answers[y == k] == k).mean()) for k in range(CLASSES)]


PIXELS = """
layer:
- {name: in, type: Input, top: [x, label], input_param: {shape: [{dim: [2, 3, 4, 5]}, {dim: [2, 1, 4, 5]}]}}
- {name: conv, type: Convolution, bottom: x, top: scores,
   convolution_param: {num_output: 3, kernel_size: 1, weight_filler: {type: gaussian, std: 1}}}
- {name: loss, type: SoftmaxWithLoss, bottom: [scores, label], top: loss, loss_param: {ignore_label: 255}}
"""
LAST = """
layer:
- {name: in, type: Input, top: [x, label], input_param: {shape: [{dim: [2, 7, 3]}, {dim: [2, 7]}]}}
- {name: power, type: Power, bottom: x, top: scores, power_param: {scale: 2}}
- {name: accuracy, type: Accuracy, bottom: [scores, label], top: accuracy, accuracy_param: {axis: -1}}
"""
HINGE = """
layer:
- {name: in, type: Input, top: [x, label], input_param: {shape: [{dim: [2, 4]}, {dim: 2}]}}
- {name: ip, type: InnerProduct, bottom: x, top: scores,
   inner_product_param: {num_output: 3, weight_filler: {type: gaussian, std: 1}}}
- {name: loss, type: HingeLoss, bottom: [scores, label], top: loss}
"""


@pytest.mark.parametrize(
    ("text", "shape", "labelled", "axis"),
    [
        (PIXELS, (3, 3, 4, 5), (3, 1, 4, 5), 1),
        (LAST, (3, 7, 3), (3, 7), -1),
        (HINGE, (3, 4), (3,), 1),
    ],
    ids=["pixels", "last axis", "hinge"],
)
def test_along_any_axis_and_without_ignored_labels(text, shape, labelled, axis):
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal(shape).astype(np.float32), rng.integers(0, 3, labelled)
    if text is PIXELS:
        y[0, 0, :2] = 255
    net = Net.from_text(text)
    with Session(net, device="reference") as session:
        feeds = Feeds(session.graphs["TEST"], data={"x": x, "label": y})
        found = evaluate(session, feeds, confusion=True).confusion
        feeds.close()
        answers = session.forward({"x": x})["scores"].argmax(axis)
    kept = y.reshape(answers.shape) != 255
    assert (found.counts == by_hand(answers[kept], y.reshape(answers.shape)[kept], 3)).all()
    assert found.samples == kept.sum()


class Named(Source):
    """Samples of classes with names, two of three."""

    form = "named:"

    @classmethod
    def parse(cls, text, split):
        return cls(split)

    def sample_shape(self):
        return (4,)

    def class_names(self):
        return ("cat", "dog")

    def open(self):
        return Arrays.of("named", *samples())


def test_names_come_from_the_source(monkeypatch):
    monkeypatch.setitem(SOURCES, "named", Named)
    net = Net.from_text("""
layer:
- {name: data, type: Data, top: [x, label], data_param: {source: "named:", batch_size: 5}}
- {name: ip, type: InnerProduct, bottom: x, top: ip, inner_product_param: {num_output: 3}}
- {name: accuracy, type: Accuracy, bottom: [ip, label], top: accuracy}
""")
    with Session(net, device="reference") as session:
        feeds = Feeds(session.graphs["TEST"])
        found = evaluate(session, feeds, confusion=True).confusion
        feeds.close()
    assert found.names == ("cat", "dog", "2") and found.samples == SAMPLES


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ("", "no layer of the test net compares scores of classes with labels"),
        (
            "- {name: slice, type: Slice, bottom: label, top: [l, m], slice_param: {axis: 1}}\n"
            "- {name: accuracy, type: Accuracy, bottom: [ip, l], top: accuracy}\n"
            "- {name: silence, type: Silence, bottom: m}",
            "the labels of layer accuracy are not the data's own",
        ),
    ],
)
def test_nets_that_have_no_table(layers, said):
    net = Net.from_text(f"""
layer:
- {{name: in, type: Input, top: [x, label], input_param: {{shape: [{{dim: [2, 4]}}, {{dim: [2, 2]}}]}}}}
- {{name: ip, type: InnerProduct, bottom: x, top: ip, inner_product_param: {{num_output: 3}}}}
{layers}
""")
    arrays = {"x": np.zeros((2, 4), np.float32), "label": np.zeros((2, 2), np.int32)}
    if not layers:
        del arrays["label"]
        net = Net.from_text("""
layer:
- {name: in, type: Input, top: x, input_param: {shape: {dim: [2, 4]}}}
- {name: ip, type: InnerProduct, bottom: x, top: ip, inner_product_param: {num_output: 3}}
- {name: mean, type: Reduction, bottom: ip, top: mean}
""")
    with Session(net, device="reference") as session:
        feeds = Feeds(session.graphs["TEST"], data=arrays)
        with pytest.raises(InvalidInput, match=said):
            evaluate(session, feeds, confusion=True)
        feeds.close()


def test_too_many_classes():
    net = Net.from_text(PIXELS.replace("num_output: 3", "num_output: 4097"))
    with pytest.raises(InvalidInput, match="layer loss compares 4097 classes; a table of confusions has room for 4096"):
        Judge.of(net.graph("TEST"))


def shown(found: Confusion) -> str:
    file = io.StringIO()
    report.show(found, file)
    return file.getvalue()


def test_few_classes_are_shown_whole():
    text = shown(Confusion("accuracy", ("cat", "dog", "owl"), np.array([[4, 1, 0], [0, 2, 3], [0, 0, 0]])))
    assert "cat 4 1 · 5 80.0%" in " ".join(text.split())
    assert "owl · · · 0 –" in " ".join(text.split())
    assert text.splitlines()[-1] == "60.00% right: 6 of 10; mean over classes 60.00%"


def test_many_classes_have_a_line_each():
    counts = np.diag(np.full(60, 5))
    counts[7, [3, 9, 11, 12]] = 4, 2, 2, 1
    text = shown(Confusion("accuracy", tuple(f"c{k}" for k in range(60)), counts))
    assert "c7 c3 4, c9 2, c11 2 14 35.7%" in " ".join(text.split())
    assert "c8 – 5 100.0%" in " ".join(text.split())
    wide = shown(Confusion("accuracy", tuple(f"a name as long as this {k}" for k in range(12)), counts[:12, :12]))
    assert "What each label was taken for" in wide


def test_nothing_counted():
    empty = Confusion("loss", ("0", "1"), np.zeros((2, 2), np.int64))
    assert empty.accuracy is None and empty.class_accuracy == [None, None]
    assert "right:" not in shown(empty)
