"""Scratch of PyTorch's operators: measured once, kept, or from a table, and each says which."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing

import pytest

from minidnn.torch.scratch import KEPT, MEASURED, TABLE, UNKNOWN, Call, Form, Found, Scratch, by_origin, kept, measuring

pytestmark = pytest.mark.peer("torch")

MIB = 1 << 20


@pytest.fixture
def aten():
    import torch

    return torch.ops.aten


def _meta(*sizes: int, **kwargs):
    import torch

    return torch.empty(*sizes, device="meta", **kwargs)


def test_forms_know_their_bytes_and_order():
    import torch

    sizes = [(), (0,), (1,), (5,), (2, 3), (1, 3), (3, 1), (2, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1), (2, 3, 2, 4, 5)]
    for size, kind in itertools.product(sizes, (torch.float32, torch.int64, torch.bool)):
        for x in (torch.empty(size, dtype=kind), torch.empty(size, dtype=kind).permute(tuple(range(len(size)))[::-1])):
            form = Form(tuple(x.shape), x.stride(), x.dtype)
            assert (form.nbytes, form.contiguous) == (x.untyped_storage().nbytes(), x.is_contiguous())
    x = torch.empty(2, 3, 4, 5)
    for y in (x, x.to(memory_format=torch.channels_last), x.transpose(1, 2), x[:, :, ::2]):
        last = y.is_contiguous(memory_format=torch.channels_last)
        assert Form(tuple(y.shape), y.stride(), y.dtype).channels_last == last


def test_a_call_is_told_by_its_operator_shapes_and_constants(aten):
    import torch

    x = _meta(8, 4)
    key = Call.of(aten.add.Tensor, (x, x), {"alpha": 2}).key
    assert key == "aten.add.Tensor(float32[8, 4], tensor 0, alpha=2)"
    assert key != Call.of(aten.add.Tensor, (x, _meta(8, 4)), {"alpha": 2}).key
    assert (
        Call.of(aten.cat.default, ([x, x.t()], 1)).key == "aten.cat.default([float32[8, 4], float32[4, 8]/[1, 4]], 1)"
    )
    call = Call.of(aten.bernoulli_.float, (x, 0.5), {"generator": torch.Generator()})
    assert call.key == "aten.bernoulli_.float(float32[8, 4], 0.5, generator=Generator)"
    assert Call.of(aten.mm.default, (Form((8, 4), (4, 1), torch.float32), _meta(4, 2))).results == (8 * 2 * 4,)
    assert Call.of(aten.t.default, (x,)).results == (0,)


def test_measured_once_then_kept(aten, tmp_path, monkeypatch):
    numbers = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    calls = [
        Call.of(aten.convolution.default, (_meta(4, 16, 9, 9), _meta(16, 16, 3, 3), None, *numbers)),
        Call.of(aten.sum.dim_IntList, (_meta(64, 8), [0])),
        Call.of(aten.logsumexp.default, (_meta(1024, 256), [0])),
        Call.of(aten.t.default, (_meta(64, 8),)),
        Call.of(aten.relu_.default, (_meta(64, 8),)),
    ]
    first = Scratch(directory=tmp_path).of([*calls, calls[2]])
    image, weights = 4 * 16 * 81 * 4, 16 * 16 * 9 * 4
    assert first[0].results == (image,) and image <= first[0].nbytes <= 2 * image + 2 * weights
    assert first[1] == Found(0, (32,), MEASURED)
    assert MIB <= first[2].nbytes < MIB + 4096 and first[2] == first[5]
    assert first[3] == first[4] == Found(0, (0,), MEASURED)
    assert by_origin(first)[MEASURED] == (6, sum(one.nbytes for one in first))

    monkeypatch.setattr(measuring, "_run", None)  # nothing runs
    again = Scratch(directory=tmp_path).of([*calls, calls[2]])
    assert [(one.nbytes, one.results) for one in again] == [(one.nbytes, one.results) for one in first]
    assert by_origin(again)[KEPT][0] == 6


def test_other_threads_are_measured_anew(aten, tmp_path):
    import torch

    call, threads = Call.of(aten.native_layer_norm.default, (_meta(64, 8), [8], _meta(8), _meta(8), 1e-5)), 1
    before = torch.get_num_threads()
    assert Scratch(directory=tmp_path).of([call])[0].origin == MEASURED
    try:
        torch.set_num_threads(threads if before != threads else 2)
        assert Scratch(directory=tmp_path).of([call])[0].origin == MEASURED
    finally:
        torch.set_num_threads(before)
    assert Scratch(directory=tmp_path).of([call])[0].origin == KEPT


def test_nothing_of_the_users_changes(aten, tmp_path):
    import torch

    mine, state, grad = torch.ones(100), torch.get_rng_state(), torch.is_grad_enabled()
    generator = torch.Generator().manual_seed(3)
    own = generator.get_state()
    calls = [
        Call.of(aten.add_.Tensor, (mine, mine)),
        Call.of(aten.bernoulli_.float, (mine, 0.5)),
        Call.of(aten.normal_.default, (mine,), {"generator": generator}),
        Call.of(aten.native_dropout.default, (mine, 0.5, True)),
    ]
    found = Scratch(directory=tmp_path).of(calls)
    assert {one.origin for one in found} == {MEASURED} and [one.results for one in found[:3]] == [(0,)] * 3
    assert mine.eq(1).all() and torch.equal(torch.get_rng_state(), state) and torch.is_grad_enabled() == grad
    assert torch.equal(generator.get_state(), own)


def test_what_the_caller_has_switched_on_does_not_matter(aten, tmp_path):
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    call = Call.of(aten.logsumexp.default, (_meta(64, 64), [0]))
    product = Call.of(aten.mm.default, (_meta(64, 64), _meta(64, 64)))
    expected = [(one.nbytes, one.results) for one in Scratch(directory=tmp_path / "plain").of([call, product])]
    modes = (FakeTensorMode(), torch.autocast("cpu", torch.bfloat16), torch.inference_mode(), torch.no_grad(),
             torch.device("meta"))  # fmt: skip
    for k, mode in enumerate(modes):
        with mode:
            found = Scratch(directory=tmp_path / str(k)).of([call, product])
        assert [one.origin for one in found] == [MEASURED] * 2
        assert [(one.nbytes, one.results) for one in found] == expected


def test_integers_are_valid_indices(aten, tmp_path):
    import torch

    index = _meta(7, dtype=torch.int64)
    calls = [
        Call.of(aten.embedding.default, (_meta(10, 4), index)),
        Call.of(aten.embedding_dense_backward.default, (_meta(7, 4), index, 10, -1, False)),
        Call.of(aten.nll_loss_forward.default, (_meta(7, 5), index, None, 1, -100)),
        Call.of(aten.index_put.default, (_meta(10, 4), [index], _meta(7, 4), True)),
        Call.of(aten.gather.default, (_meta(7, 4), 1, _meta(7, 2, dtype=torch.int64))),
        Call.of(aten.masked_fill.Scalar, (_meta(7), _meta(7, dtype=torch.bool), 0.0)),
        Call.of(aten.mm.default, (_meta(4, 4, dtype=torch.bfloat16), _meta(4, 4, dtype=torch.bfloat16))),
        Call.of(aten.mul.Tensor, (_meta(4, dtype=torch.complex64), _meta(4))),
        Call.of(aten.max_pool2d_with_indices_backward.default,
                (_meta(1, 2, 2, 2), _meta(1, 2, 4, 4), [2, 2], [2, 2], [0, 0], [1, 1], False,
                 _meta(1, 2, 2, 2, dtype=torch.int64))),
    ]  # fmt: skip
    assert [one.why for one in Scratch(directory=tmp_path).of(calls)] == [""] * len(calls)


def test_storages_that_shapes_do_not_tell(aten, tmp_path):
    """A loss keeps the storage of its elements; an LSTM makes a workspace, and its backward two gradients of biases."""
    times, batch, width, hidden = 5, 4, 8, 16
    state = (_meta(batch, hidden), _meta(batch, hidden))
    weights = (_meta(4 * hidden, width), _meta(4 * hidden, hidden), _meta(4 * hidden), _meta(4 * hidden))
    y = _meta(times, batch, hidden)
    forward = (_meta(times, batch, width), *weights, *state, False, [], 2, hidden, 1, True, False, False, True)
    backward = (_meta(times, batch, width), *weights, *state, y, *state, _meta(times, batch, hidden), None, None,
                False, 2, hidden, 1, True, True, False, [], False, _meta(0))  # fmt: skip
    calls = [
        Call.of(aten.mse_loss.default, (_meta(64, 8), _meta(64, 8))),
        Call.of(aten.mkldnn_rnn_layer.default, forward),
        Call.of(aten.mkldnn_rnn_layer_backward.default, backward),
    ]
    loss, lstm, gradients = Scratch(directory=tmp_path).of(calls)
    assert (loss.origin, loss.results) == (MEASURED, (64 * 8 * 4,))
    assert loss.beside(4) == loss.nbytes + 64 * 8 * 4 - 4
    assert lstm.why == gradients.why == ""
    assert lstm.results[:3] == (times * batch * hidden * 4, 256, 256) and lstm.results[3] > times * batch * hidden * 16
    assert gradients.results[3] == gradients.results[4] == 4 * hidden * 4


def test_what_cannot_be_measured_says_why(aten, tmp_path):
    import torch

    large = Call.of(aten.bmm.default, (_meta(1 << 20, 1024, 64), _meta(1 << 20, 64, 1024)))
    singular = Call.of(aten.index.Tensor, (_meta(0, 4), [_meta(3, dtype=torch.int64)]))
    sparse = torch.sparse_coo_tensor(torch.tensor([[0], [1]]), torch.ones(1), (2, 2), check_invariants=True)
    odd = Call.of(aten._sparse_sum.default, (sparse,))
    function = Call.of(sum, ([1, 2],))
    found = Scratch(directory=tmp_path).of([large, singular, odd, function])
    assert found[0].origin == TABLE and found[0].results == (4 << 40,)
    assert found[0].why.startswith("it takes 4.50 TiB, and ") and found[0].why.endswith(" may be taken to measure it")
    assert found[1].origin == TABLE and found[1].why.startswith("it does not run by itself: IndexError: index is out")
    assert found[2] == Found(0, (), UNKNOWN, "one of its arguments is torch.sparse_coo")
    assert found[3] == Found(0, (), UNKNOWN, "it is no operator of PyTorch")
    small = Call.of(aten.mm.default, (_meta(8, 8), _meta(8, 8)))
    assert (
        Scratch(directory=tmp_path, limit=767).of([small])[0].why
        == "it takes 768 B, and 767 B may be taken to measure it"
    )
    assert Scratch(directory=tmp_path, limit=768).of([small])[0].origin == MEASURED


def test_a_damaged_file_is_measured_anew(aten, tmp_path):
    call = Call.of(aten.relu.default, (_meta(8),))
    assert Scratch(directory=tmp_path).of([call])[0].origin == MEASURED
    (file,) = tmp_path.glob("*.json")
    file.write_bytes(file.read_bytes().replace(b"32", b"31"))
    assert Scratch(directory=tmp_path).of([call])[0] == Found(0, (32,), MEASURED)
    assert Scratch(directory=tmp_path).of([call])[0] == Found(0, (32,), KEPT)


def _add(file, k: int) -> None:
    for n in range(5):
        kept.add(file, {f"{k} {n}": (k, (n,))})


def test_several_processes_keep_values_at_once(tmp_path):
    file = tmp_path / "scratch.json"
    processes = [multiprocessing.get_context("fork").Process(target=_add, args=(file, k)) for k in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert kept.load(file) == {f"{k} {n}": (k, (n,)) for k in range(4) for n in range(5)}


def test_without_a_gpu_the_table_tells(aten, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = Scratch("cuda").of([Call.of(aten.mm.default, (_meta(8, 8), _meta(8, 8)))])
    assert found == [Found(0, (256,), TABLE, "this machine has no cuda")]


def test_on_a_gpu_the_second_run_counts(aten, tmp_path, monkeypatch, counters):
    """An imitation: the operator runs on the CPU, and tells the counters what a GPU's would take."""
    import torch

    runs = []

    def mm(a, b):
        if not runs:
            counters.take(8 * MIB)  # cuBLAS's workspace, which stays
        counters.take(3 * 512)
        counters.give(2 * 512)
        counters.take(512)
        counters.give(512)
        runs.append(1)
        return a @ b

    mm._schema = aten.mm.default._schema
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "imitation")
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91900)
    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: contextlib.nullcontext())
    monkeypatch.setattr(torch, "autocast", lambda kind, enabled: contextlib.nullcontext())
    made, generator = measuring.tensor, measuring._generator
    monkeypatch.setattr(measuring, "tensor", lambda form, device, generator: made(form, "cpu", generator))
    monkeypatch.setattr(measuring, "_generator", lambda device: generator("cpu"))
    call = Call(mm, Call.of(aten.mm.default, (_meta(8, 16), _meta(16, 16))).args, {}, (512,))
    found = Scratch("cuda", directory=tmp_path).of([call])
    assert found == [Found(2 * 512, (512,), MEASURED)] and len(runs) == 2
    assert Scratch("cuda:0", directory=tmp_path).of([call])[0].origin == KEPT
    assert Scratch("cuda:1").absent == "this machine has no cuda:1"
