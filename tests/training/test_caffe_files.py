"""Weights and snapshots in Caffe's own files: exact, refused in words, and fine-tuned from."""

from __future__ import annotations

import errno

import numpy as np
import pytest

from minidnn.layers import rows
from minidnn.nets.net import Net
from minidnn.schema import InvalidFile
from minidnn.schema.wire import head, sized, varint
from minidnn.training import caffemodel, snapshot, solverstate
from minidnn.training.parameters import WeightsError
from minidnn.training.session import Session
from minidnn.training.snapshot import SaveError, SnapshotError
from minidnn.training.solver import Solver

TEXT = """
layer { name: "data" type: "Input" top: "data" top: "label"
  input_param { shape { dim: 4 dim: 3 dim: 6 dim: 6 } shape { dim: 4 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "bn" }
layer { name: "drop" type: "Dropout" bottom: "bn" top: "bn" }
layer { name: "ip" type: "InnerProduct" bottom: "bn" top: "ip"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""  # fmt: skip
RUN = {"device": "reference", "policy": "liveness:m"}
SHAPES = {"conv": [(4, 3, 3, 3), (4,)], "bn": [(4,), (4,), (1,)], "ip": [(5, 64), (5,)]}


def net(text: str = TEXT) -> Net:
    return Net.from_text(text, source="net.prototxt")


def arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return rng.standard_normal((40, 3, 6, 6)).astype(np.float32), rng.integers(0, 5, 40).astype(np.int32)


def values(seed: int = 1, shapes=SHAPES) -> dict[str, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    return {layer: [rng.uniform(0.1, 1, s).astype(np.float32) for s in blobs] for layer, blobs in shapes.items()}


def written(path, given, old: bool = False):
    """A .caffemodel with these blobs; `old` ones have four axes, and their layers the old form."""
    raw = b""
    for layer, blobs in given.items():
        inner = sized(4 if old else 1, layer.encode())
        for array in blobs:
            shape = (1,) * (4 - array.ndim) + array.shape
            dims = b"".join(varint(i << 3) + varint(n) for i, n in enumerate(shape, 1))
            dims = dims if old else sized(7, sized(1, b"".join(varint(n) for n in array.shape)))
            inner += sized(6 if old else 7, dims + sized(5, array.tobytes()))
        raw += sized(2 if old else 100, inner)
    path.write_bytes(raw)
    return path


@pytest.fixture(scope="module")
def session():
    with Session(net(), **RUN) as found:
        yield found


@pytest.mark.parametrize("old", [False, True])
def test_weights_are_loaded_by_layer_and_number(tmp_path, session, old):
    given = values()
    found = session.load(written(tmp_path / "w.caffemodel", given, old), complete=True)
    assert (len(found.taken), found.missing, found.unused) == (7, (), ())
    for layer, blobs in given.items():
        for mine, array in zip(session.params[layer].values(), blobs, strict=True):
            assert mine.tobytes() == array.tobytes()


def test_a_caffemodel_gives_the_outputs_of_the_safetensors(tmp_path, session):
    session.load(written(tmp_path / "w.caffemodel", values()))
    x, _ = arrays()
    before = session.forward(x)["ip"]
    layers = {layer: [blobs.rows(name) for name in blobs] for layer, blobs in session.params.items()}
    path = tmp_path / "again.caffemodel"
    path.write_bytes(b"".join(caffemodel.pieces(net().parameter, layers)))
    session.load(written(tmp_path / "other.caffemodel", values(2)))
    assert not np.array_equal(session.forward(x)["ip"], before)
    session.load(path)
    assert np.array_equal(session.forward(x)["ip"], before)


def test_fine_tuning_from_a_caffemodel_is_exact(tmp_path):
    """Another classifier on trained layers: the same bytes as from safetensors, before and after training."""
    for form in ("BINARYPROTO", "SAFETENSORS"):
        with solver(tmp_path, snapshot_format=form) as first:
            first.step(2)
            trained = {name: value.tobytes() for name, value in first.session.weights().items()}
            first.save()
    other = net(TEXT.replace('"ip"', '"mine"').replace("num_output: 5", "num_output: 7"))
    found = []
    for suffix in ("caffemodel", "safetensors"):
        weights = tmp_path / f"run_iter_2.{suffix}"
        with solver(tmp_path, net=other, weights=weights) as tuned:
            taken = {name: value.tobytes() for name, value in tuned.session.weights().items()}
            kept = {name for name in trained if not name.startswith("ip/")}
            assert kept == {name for name, value in taken.items() if value == trained.get(name)}
            tuned.step(3)
            found.append({name: value.tobytes() for name, value in tuned.values().items()})
    assert found[0] == found[1]
    assert all(found[0][name] != trained[name] for name in kept)


def test_layers_of_other_nets_are_told(tmp_path, session):
    given = {**values(), "fc8": [np.ones((2, 2), np.float32)]}
    del given["ip"]
    found = session.load(written(tmp_path / "w.caffemodel", given))
    assert found.missing == ("ip/b", "ip/w") and found.unused == ("fc8/0",)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"ip": [(5, 63), (5,)]}, r"w\.caffemodel: layer ip: its w has shape \(5, 64\), but is given with \(5, 63\)"),
        ({"ip": [(5, 64)]}, r"layer ip: has 2 blobs \(w, b\), but is given with 1"),
        ({"ip": [(5, 64), (5,), (5,)]}, r"layer ip: has 2 blobs \(w, b\), but is given with 3 or more"),
    ],
)
def test_blobs_that_do_not_fit_are_refused(tmp_path, session, change, expected):
    path = written(tmp_path / "w.caffemodel", values(shapes={**SHAPES, **change}))
    with pytest.raises(WeightsError, match=expected):
        session.load(path)


def test_a_file_of_no_weights_of_this_net(tmp_path, session):
    with pytest.raises(WeightsError, match="these are not the net's weights: it has no bn/factor"):
        session.load(written(tmp_path / "w.caffemodel", {}))
    (tmp_path / "torn.caffemodel").write_bytes(written(tmp_path / "w.caffemodel", values()).read_bytes()[:-5])
    with pytest.raises(InvalidFile, match=r"torn\.caffemodel: truncated, or not a BinaryNet"):
        session.load(tmp_path / "torn.caffemodel")
    with pytest.raises(FileNotFoundError):
        session.load(tmp_path / "none.caffemodel")


# ---- snapshots


def solver(tmp_path, **more) -> Solver:
    fields = {"base_lr": 0.05, "momentum": 0.9, "max_iter": 6, "snapshot": 3, "snapshot_format": "BINARYPROTO"}
    prefix = str(tmp_path / "run")
    of = more.pop("net", None) or net()
    return Solver(of, data=arrays(), snapshot_prefix=prefix, seed=11, **{**RUN, **fields, **more})


def test_a_run_goes_on_from_caffes_files_to_the_bit(tmp_path):
    with solver(tmp_path) as whole:
        whole.solve()
        expected = whole.values()
    names = [f"run_iter_{n}.{suffix}" for n in (3, 6) for suffix in ("caffemodel", "solverstate")]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    last = (tmp_path / "run_iter_6.caffemodel").read_bytes()
    for name in names[2:]:
        (tmp_path / name).unlink()
    with solver(tmp_path, resume="latest") as second:
        assert second.iteration == 3 and second.notes == []
        second.solve()
        assert all(np.array_equal(value, expected[name]) for name, value in second.values().items())
    assert (tmp_path / "run_iter_6.caffemodel").read_bytes() == last
    with solver(tmp_path, weights=tmp_path / "run_iter_6.caffemodel", max_iter=0) as third:
        taken = third.values()
        assert all(np.array_equal(taken[f"{name}"], expected[name]) for name in third.session.weights())


def test_the_history_has_caffes_order(tmp_path):
    with solver(tmp_path, max_iter=3) as run:
        run.solve()
        momenta = run.session.state()
    found = solverstate.load(tmp_path / "run_iter_3.solverstate")
    assert {name: found.state[name].whole().reshape(-1).tobytes() for name in momenta} == {
        name: value.reshape(-1).tobytes() for name, value in momenta.items()
    }
    weights = [f"{layer}/{blob}" for layer, blobs in (("conv", "wb"), ("ip", "wb")) for blob in blobs]
    order = solverstate.history(weights, ["ip.w.m", "ip.w.v", "conv.w.m", "conv.w.v", "ip.b.m", "ip.b.v", "scale"])
    assert [name for _, name in order] == ["conv.w.m", "", "ip.w.m", "ip.b.m", "conv.w.v", "", "ip.w.v", "ip.b.v"]


def test_adam_s_history_is_all_means_then_all_squares_as_caffes(tmp_path):
    with solver(tmp_path, type="Adam", max_iter=3, base_lr=0.01) as run:
        run.solve()
        names = solverstate.history(run.session.weight_rows(), run.session.state_rows())
    assert [name for _, name in names if "mean" in name.rpartition(".")[2]] == [
        "conv.w.mean", "conv.b.mean", "ip.w.mean", "ip.b.mean",
    ]  # fmt: skip
    assert len(names) == 14 and {name.rpartition(".")[2] for _, name in names[:7]} == {"mean", ""}
    with solver(tmp_path, type="Adam", resume="latest", base_lr=0.01) as run:
        assert run.iteration == 3


def test_layers_that_share_parameters_have_them_in_each_layer(tmp_path):
    text = TEXT.replace('top: "conv"\n', 'top: "conv" param { name: "w" }\n')
    twin = """layer { name: "twin" type: "Convolution" bottom: "conv" top: "twin" param { name: "w" }
      convolution_param { num_output: 3 kernel_size: 3 } }\n"""
    text = text.replace("num_output: 4", "num_output: 3").replace('layer { name: "bn"', twin + 'layer { name: "bn"')
    fields = {"base_lr": 0.05, "momentum": 0.9, "max_iter": 4, "snapshot": 2, "snapshot_format": "BINARYPROTO", **RUN}
    with Solver(net(text), data=arrays(), snapshot_prefix=str(tmp_path / "run"), seed=1, **fields) as run:
        run.solve()
        expected = run.values()
    found = {name: values.whole() for name, values in caffemodel.read(tmp_path / "run_iter_4.caffemodel").items()}
    assert np.array_equal(found["conv/0"], found["twin/0"]) and not np.array_equal(found["conv/1"], found["twin/1"])
    (tmp_path / "run_iter_4.solverstate").unlink()
    with Solver(net(text), data=arrays(), snapshot_prefix=str(tmp_path / "run"), resume="latest", **fields) as run:
        run.solve()
        assert all(np.array_equal(value, expected[name]) for name, value in run.values().items())


def test_a_state_of_caffes_own(tmp_path):
    """It has no seed and no position, and its history has no names."""
    with solver(tmp_path) as whole:
        whole.solve()
        expected = whole.values()
    path = tmp_path / "run_iter_3.solverstate"
    raw = path.read_bytes()
    ours = head(solverstate._OURS, 0)[:-1]
    path.write_bytes(raw[: raw.rindex(ours, 0, raw.rindex(ours))])
    with solver(tmp_path, resume=path) as run:
        (note,) = run.notes
        assert run.iteration == 3 and note.startswith("the state is Caffe's own: it has no seed")
        run.solve()
        assert all(np.array_equal(value, expected[name]) for name, value in run.values().items())
    with pytest.raises(SnapshotError, match="it has 7 arrays of history; this net and this optimizer have 5"):
        other = net(TEXT.replace("num_output", "bias_term: false num_output"))
        kept = {"conv": 1, "bn": 3, "ip": 1}
        blobs = {layer: list(map(rows.of, given[: kept[layer]])) for layer, given in values().items()}
        path.with_suffix(".caffemodel").write_bytes(b"".join(caffemodel.pieces(other.parameter, blobs)))
        Solver(other, data=arrays(), base_lr=0.1, momentum=0.9, resume=path, **RUN)


def test_files_that_are_not_whole_are_refused(tmp_path):
    with solver(tmp_path, max_iter=3) as run:
        run.solve()
    state, model = tmp_path / "run_iter_3.solverstate", tmp_path / "run_iter_3.caffemodel"
    for path in (state, model):
        raw = path.read_bytes()
        for at in (60, len(raw) // 2, len(raw) - 30):
            changed = bytearray(raw)
            changed[at] ^= 1
            path.write_bytes(changed)
            with pytest.raises(SnapshotError):
                snapshot.load(state)
        path.write_bytes(raw[: len(raw) // 2])
        with pytest.raises(SnapshotError):
            snapshot.load(state)
        path.write_bytes(raw)
    assert snapshot.load(state).iteration == 3
    model.unlink()
    found, _, (reason,) = snapshot.latest(tmp_path / "run")
    assert found is None and "run_iter_3.caffemodel: No such file" in reason


def test_a_disk_that_fills_between_both_files_leaves_the_earlier_snapshot(tmp_path, monkeypatch):
    with solver(tmp_path) as run:
        run.step(3)
        run.save()
        run.step(1)
        monkeypatch.setattr(solverstate, "_state", full)
        with pytest.raises(SaveError, match=r"run_iter_4\.solverstate: could not be written: No space left"):
            run.save()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "run_iter_3.caffemodel", "run_iter_3.solverstate", "run_iter_4.caffemodel",
    ]  # fmt: skip
    path, found, _ = snapshot.latest(tmp_path / "run")
    assert path == tmp_path / "run_iter_3.solverstate" and found is not None and found.iteration == 3


def full(*_):
    yield b"x"
    raise OSError(errno.ENOSPC, "No space left on device")


def test_weights_alone_are_no_snapshot(tmp_path):
    with pytest.raises(
        SnapshotError, match=r"weights only: the state of its run is in the \.solverstate file next to it"
    ):
        snapshot.load(written(tmp_path / "w.caffemodel", values()))


def test_a_folder_in_the_way_of_either_file_is_told_before_the_run(tmp_path):
    (tmp_path / "run_iter_6.caffemodel").mkdir()
    with solver(tmp_path) as run, pytest.raises(SaveError, match="cannot write a snapshot there"):
        run.solve()
    assert run.iteration == 0


def test_scale_and_bias_of_nvidia_s_batch_norm_are_those_of_the_scale_behind_it(tmp_path):
    text = """
    layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 4 dim: 4 } } }
    layer { name: "b" type: "BatchNorm" bottom: "x" top: "y" batch_norm_param { scale_bias: true } }
    """
    blobs = [np.float32([k, k + 1, k + 2]) for k in (1, 2, 3, 4)]
    given = [*blobs[:2], np.float32([1]), *blobs[2:]]  # mean, variance, factor, scale, bias
    layer = sized(1, b"b") + sized(2, b"BatchNorm")
    layer += b"".join(sized(7, sized(7, sized(1, varint(a.size))) + sized(5, a.tobytes())) for a in given)
    (tmp_path / "nv.caffemodel").write_bytes(sized(100, layer))
    with Session(Net.from_text(text, source="nv.prototxt"), **RUN) as session:
        session.load(tmp_path / "nv.caffemodel", complete=True)
        x = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32)
        (y,) = session.forward(x).values()
    mean, variance, scale, bias = (a[:, None, None] for a in blobs)
    np.testing.assert_allclose(y, (x - mean) / np.sqrt(variance + 1e-5) * scale + bias, rtol=1e-4, atol=1e-5)
