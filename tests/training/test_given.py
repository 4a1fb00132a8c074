"""Data that the caller gives: arrays, samples from Python, and sources by their text."""

from __future__ import annotations

from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest

import minidnn
from minidnn.data import DataError
from tests.support.pictures import folder

TEXT = """
name: small
layer:
- {name: in, type: Input, top: [data, label], input_param: {shape: [{dim: [6, 3, 8, 8]}, {dim: 6}]}}
- {name: ip, type: InnerProduct, bottom: data, top: ip,
   inner_product_param: {num_output: 4, weight_filler: {type: xavier}}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
- {name: accuracy, type: Accuracy, bottom: [ip, label], top: accuracy, include: {phase: TEST}}
"""
IMAGES = np.random.default_rng(1).integers(0, 256, (20, 3, 8, 8)).astype(np.float32) / 255
LABELS = np.arange(20) % 4
NAMES = ("ant", "bee", "cow", "dog")
FIELDS = dict(device="reference", base_lr=0.1, momentum=0.9, random_seed=3)


class OfTorch:
    """A PyTorch Dataset by its contract, with names as torchvision's ImageFolder has them."""

    classes = NAMES

    def __len__(self):
        return len(IMAGES)

    def __getitem__(self, index):
        return IMAGES[index], int(LABELS[index])


class OfFace:
    """One of Hugging Face's datasets, by its contract: a row by number, and named classes among its features."""

    features = MappingProxyType({"image": None, "label": SimpleNamespace(names=list(NAMES))})

    def __len__(self):
        return len(IMAGES)

    def __getitem__(self, index):
        return {"image": IMAGES[index], "label": int(LABELS[index])}


def net() -> minidnn.Net:
    return minidnn.Net.from_text(TEXT)


def trained(data, steps=7, **more) -> dict[str, bytes]:
    with minidnn.Solver(net(), data=data, **FIELDS, **more) as solver:
        solver.step(steps - solver.iteration)
        return {name: values.tobytes() for name, values in solver.values().items()}


SAMPLES = [(x, int(y)) for x, y in zip(IMAGES, LABELS, strict=True)]


@pytest.mark.parametrize("data", [SAMPLES, OfTorch(), OfFace(), (s for s in SAMPLES), [IMAGES, LABELS]],
                         ids=["list", "torch", "face", "iterable", "two arrays"])  # fmt: skip
def test_samples_train_to_the_bytes_of_their_arrays(data):
    assert trained(data) == trained((IMAGES, LABELS))


@pytest.mark.peer("torch")
def test_pytorchs_own_dataset():
    import torch

    data = torch.utils.data.TensorDataset(torch.from_numpy(IMAGES), torch.from_numpy(LABELS))
    assert trained(data) == trained((IMAGES, LABELS))


def test_a_run_on_a_sequence_goes_on_bit_for_bit(tmp_path):
    prefix = str(tmp_path / "a")
    with minidnn.Solver(net(), data=OfTorch(), **FIELDS) as solver:
        solver.step(4)
        path = solver.save(prefix).path
        assert solver.position == 24
    assert trained(OfTorch(), resume=path) == trained(OfTorch())


def test_two_samples_are_no_pair_of_arrays():
    with minidnn.Solver(net(), data=SAMPLES[:2], **FIELDS) as solver:
        assert len(solver.feeds["TRAIN"]) == 2


def test_an_iterable_is_told_what_it_cannot_do(monkeypatch):
    with minidnn.Solver(net(), data=iter(SAMPLES), **FIELDS) as solver:
        (note,) = solver.notes
    assert note == (
        "TRAIN data: an iterable has no access by index, so its 20 samples were read into memory, once (15.0 KiB)"
    )
    monkeypatch.setattr("minidnn.training.given.MOST", 1000)
    with pytest.raises(DataError, match="more than 1000 bytes; give a sequence, with __len__ and __getitem__"):
        minidnn.Solver(net(), data=iter(SAMPLES), **FIELDS)


def test_names_of_classes_come_with_the_samples():
    for data in (OfTorch(), OfFace()):
        with minidnn.Solver(net(), data=SAMPLES, test_data=data, **FIELDS) as solver:
            assert solver.test(confusion=True).confusion.names == NAMES


@pytest.mark.parametrize("channels", [3, 1])
def test_a_source_by_its_text(tmp_path, channels):
    """Images of a folder get the input's size; their order of channels is that of a Data layer."""
    path = folder(tmp_path / "made")
    made = minidnn.Net.from_text(TEXT.replace("[6, 3, 8, 8]", f"[6, {channels}, 8, 8]"))
    layer = (
        f'{{name: in, type: Data, top: [data, label], data_param: {{source: "folder:{path}", batch_size: 6}}, '
        f"transform_param: {{resize: [8, 8], force_gray: {str(channels == 1).lower()}}}}}"
    )
    own = minidnn.Net.from_text(TEXT.replace(TEXT.splitlines()[3][2:], layer))
    found = []
    for one, data in ((made, {"data": f"folder:{path}", "test_data": path}), (own, {"test_iter": 1})):
        with minidnn.Solver(one, **data, **FIELDS) as solver:
            solver.step(3)
            found.append({name: values.tobytes() for name, values in solver.values().items()})
            assert solver.test(confusion=True).confusion.names == ("digit_0", "digit_1", "digit_2", "3")
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (IMAGES, r"TRAIN arrays: expected \(x, y\), or a dict of arrays by name, got one array of shape \(20,"),
        ([(x[:, :, 1:], y) for x, y in SAMPLES], r"a batch has shape \(6, 3, 8, 7\), but data \(6, 3, 8, 8\)"),
        ({"train": SAMPLES, "test": SAMPLES}, "the inputs are data, label; got arrays for train, test"),
        ("nosuch", "source 'nosuch' is not known"),
        (3, "TRAIN data: expected arrays, or a sequence or an iterable"),
        ([(x, np.array([1, 2])) for x, _ in SAMPLES], r"TRAIN data: a batch has labels of shape \(6, 2\), but label"),
        ([(x, 4) for x, _ in SAMPLES], "TRAIN data: label 4 of sample .* names none of the 4 classes of layer loss"),
    ],
    ids=["one array", "shape", "names", "source", "number", "labels", "label"],
)  # fmt: skip
def test_what_does_not_fit_is_named(data, said):
    with pytest.raises(DataError, match=said):
        trained(data, 1)


def test_a_net_whose_inputs_are_no_samples_and_labels_takes_arrays_by_name():
    three = TEXT.replace("top: [data, label]", "top: [data, label, more]").replace("{dim: 6}]", "{dim: 6}, {dim: 6}]")
    with pytest.raises(DataError, match="do not tell which array goes to data, label, more: give a dict of arrays"):
        minidnn.Solver(minidnn.Net.from_text(three), data=OfTorch(), **FIELDS)
