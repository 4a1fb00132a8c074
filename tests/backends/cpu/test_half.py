"""16 bits on the cpu: conversions, each kind beside the reference in the same format, and whole nets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from minidnn import formats
from minidnn.backends.cpu import CpuDevice, half, native
from minidnn.backends.cpu.half import columns, copies
from minidnn.backends.cpu.native.convert import conversion
from minidnn.backends.reference import ReferenceDevice, bound
from minidnn.program import Op, Pass, Tensor
from tests.support.cpu_step import trained
from tests.support.op_examples import Example, attrs, bare, compiled, examples, guarded, run, stored
from tests.support.policies import FEW
from tests.support.slow import usual_are

pytest.importorskip("ml_dtypes")
formats.usable("bfloat16")

EPSILON = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
RELU = attrs(negative_slope=0.0, saved="y")
CONVOLUTION = attrs(kernel=(3, 3), stride=(1, 1), pad=(1, 1), dilation=(1, 1), group=1)
NETS = ["chain", "residual", "inception", "nested", "lenet", "attention", "blocks", "decoder", "windows"]
LONG = [pytest.mark.slow, pytest.mark.extended]
SMALL = 1 << 14  # bytes of a block, so that small examples have several
MOST = 1 << 15  # elements of an example that is quick


@cache
def halves(format: str) -> tuple[Example, ...]:
    """Examples of every kind that has tensors of 16 bits."""
    return tuple(e for e in (stored(e, format) for e in examples()) if half.halved(e.op))


def wanted(e: Example) -> list[np.ndarray]:
    """The example's results by the reference, which rounds each once."""
    arrays = {t: x.copy() for t, x in e.data.items()}
    for t in e.op.writes:
        arrays.setdefault(t, np.zeros(t.shape, t.dtype))
    bound(e.op, [arrays[t] for t in e.op.reads], [arrays[t] for t in e.op.writes])()
    return [arrays[t] for t in e.op.writes]


def near(got: np.ndarray, want: np.ndarray, format: str) -> bool:
    """Whether results are equal but for the order of float32 sums, and so for the last bit of 16."""
    if got.dtype.kind in "iub":
        return np.array_equal(got, want)
    spacing = 2 * EPSILON[format] if str(got.dtype) == format else 2e-5
    g, w = got.astype(np.float64), want.astype(np.float64)
    ordinary = np.isfinite(w)
    most = np.abs(w[ordinary]).max(initial=1e-3 if str(got.dtype) == format else 1.0)
    return bool(np.array_equal(ordinary, np.isfinite(g)) and (np.abs(g - w)[ordinary] <= spacing * most).all())


# ---- conversions


@pytest.mark.parametrize("format", EPSILON)
@pytest.mark.parametrize("threads", [1, 3])
def test_every_number_of_16_bits_is_widened_and_comes_back(format, threads):
    device = compiled(threads)
    x = np.arange(1 << 16, dtype=np.uint16).view(format)
    wide, back = np.zeros(x.size, np.float32), np.zeros_like(x)
    conversion(device.native, x, wide)()
    conversion(device.native, wide, back)()
    want, ordinary = x.astype(np.float32), ~np.isnan(x.astype(np.float32))
    assert wide[ordinary].tobytes() == want[ordinary].tobytes() and np.isnan(wide[~ordinary]).all()
    assert back[ordinary].tobytes() == x[ordinary].tobytes() and np.isnan(back[~ordinary].astype(np.float32)).all()


@pytest.mark.parametrize("format", EPSILON)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_float32_is_rounded_to_nearest_and_ties_to_even(format):
    """Numbers of 16 bits, the middle between two of them, and their neighbours; and of every length of a rest."""
    device = compiled(2)
    one = np.arange(1 << 16, dtype=np.uint16).view(format).astype(np.float32).view(np.uint32)
    shift = 16 if format == "bfloat16" else 13
    x = (one[:, None] + np.uint32([0, 1, 2 ** (shift - 1) - 1, 2 ** (shift - 1), 2 ** (shift - 1) + 1])).reshape(-1)
    below = np.float32(2.0**-24) * np.linspace(0, 3, 97, dtype=np.float32)  # the least numbers of float16
    x = np.concatenate([x.view(np.float32), below, -below])
    for values in (x, *(x[10:][:n] for n in range(1, 34))):
        source, got, want = values.copy(), np.zeros(values.size, format), values.astype(format)
        conversion(device.native, source, got)()  # a call holds addresses, not arrays
        ordinary = ~np.isnan(values)
        assert got[ordinary].tobytes() == want[ordinary].tobytes()
        assert np.isnan(got[~ordinary].astype(np.float32)).all()


# ---- kinds


def _kinds() -> list[str]:
    return sorted({e.op.kind for e in halves("float16")})


def _some(format: str, which: str) -> list[Example]:
    """The first example of each kind, or the other small ones, or the large ones."""
    firsts = {e.op.kind: e for e in reversed(halves(format)) if _elements(e) <= MOST}
    if which == "first":
        return list(firsts.values())
    return [e for e in halves(format) if (_elements(e) > MOST) == (which == "large") and e is not firsts.get(e.op.kind)]


def _elements(e: Example) -> int:
    return sum(t.size for t in e.op.tensors)


@pytest.mark.parametrize("format", EPSILON)
@pytest.mark.parametrize("which", ["first", *(pytest.param(name, marks=LONG) for name in ("small", "large"))])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_each_kind_is_the_reference_s_in_that_format(format, which, monkeypatch):
    """Whether in blocks or at once, in place or not, and within its workspace."""
    monkeypatch.setattr(copies, "LEAST", SMALL)
    monkeypatch.setattr(copies, "MOST", 4 * SMALL)
    device, blocks = CpuDevice(), 0
    for e in _some(format, which):
        if "hard_sigmoid" in e.name:  # its slope has jumps, and 16 bits hit them
            continue
        want = wanted(e)
        for algorithm in device.algorithms(e.op):
            for together in (False, True) if e.op.inplace else (False,):
                got = run(device, e, algorithm, together=together)
                for t, g, w in zip(e.op.writes, got, want, strict=True):
                    assert near(g, w, format), f"{e.name} by {algorithm}: {t.name}, in place: {together}"
            assert guarded(device, e, algorithm), e.name
            whole = sum(t.size * 4 for t in e.op.tensors if t.dtype == format)
            blocks += algorithm.workspace < whole // 2
    assert blocks or which == "first", "some ops run in blocks"


@pytest.mark.slow
@pytest.mark.extended
@pytest.mark.parametrize("format", EPSILON)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_same_bits_for_any_number_of_threads(format):
    one, *others = (compiled(n) for n in (1, 2, 3))
    for e in _some(format, "large"):
        want = run(one, e, one.algorithms(e.op)[0])
        for device in others:
            got = run(device, e, device.algorithms(e.op)[0])
            assert [a.tobytes() for a in got] == [a.tobytes() for a in want], f"{e.name}: {device.threads} threads"


def test_an_op_that_reads_a_tensor_twice_shares_no_recipe_with_one_that_reads_two():
    device = CpuDevice()
    a, b, y = (Tensor(name, (3, 5), "float16") for name in "aby")
    results = []
    for reads in ((a, a), (a, b)):
        op = Op("add", "gradient.add", "l", Pass.BACKWARD, reads, (y,))
        data = {a: np.full((3, 5), 1, np.float16), b: np.full((3, 5), 2, np.float16)}
        e = Example("add", op, {t: data[t] for t in reads})
        results.append(float(run(device, e, device.algorithms(op)[0])[0][0, 0]))
    assert results == [2, 3]


def test_blocks_have_a_small_part_of_the_op_s_bytes():
    """A ReLU of 64 MiB needs 4 MiB besides, and no more with more rows; a convolution's filter is read as a whole."""
    device = CpuDevice()
    x, y = (Tensor(name, (64, 64, 64, 64), "float16") for name in "xy")
    relu = Op("relu", "relu.forward", "l", Pass.FORWARD, (x,), (y,), RELU)
    assert max(a.workspace for a in device.algorithms(relu)) <= copies.MOST < x.nbytes // 4
    w = Tensor("w", (64, 64, 3, 3), "float16")
    conv = Op("conv", "convolution.forward", "l", Pass.FORWARD, (x, w), (y,), CONVOLUTION)
    least = min(a.workspace for a in device.algorithms(conv))
    assert least <= copies.MOST + 2 * 4 * w.size + (1 << 20) < x.nbytes // 4


@pytest.mark.parametrize("verb", ["forward", "backward_data", "backward_filter"])
def test_an_inner_product_with_large_weights_needs_a_part_of_them(verb):
    """As float32 the weights are 24 MiB. They, or their gradient, are converted some outputs at a time."""
    device, random = CpuDevice(), np.random.default_rng(0)
    x, w, y = (Tensor(name, s, "float16") for name, s in (("x", (5, 2048)), ("w", (3072, 2048)), ("y", (5, 3072))))
    given = {t: (random.standard_normal(t.shape) / 8).astype(np.float16) for t in (x, w, y)}
    reads, written = {"forward": ((x, w), y), "backward_data": ((w, y), x), "backward_filter": ((x, y), w)}[verb]
    op = Op(verb, f"inner_product.{verb}", "l", Pass.FORWARD, reads, (written,))
    e = Example(verb, op, {t: given[t] for t in reads})
    for algorithm in device.algorithms(op):
        assert algorithm.workspace < 8 << 20
        assert near(run(device, e, algorithm)[0], wanted(e)[0], "float16")


def _of_transformers(format: str, tokens: int, width: int, words: int) -> Iterator[tuple[Op, int]]:
    """Ops of a net of tokens, where x and its like have 16 bits; and bytes beyond which none needs a workspace."""
    shape, of_row = (2, tokens, width), (2, tokens, 1)
    names = {"x": shape, "y": shape, "dy": shape, "dx": shape, "words": (words, width)}
    names |= {"inverse": of_row, "mean": of_row, **dict.fromkeys(("gamma", "beta", "dgamma", "dbeta"), (width,))}
    small = ("x", "y", "dy", "dx", "words")
    ts = {name: Tensor(name, s, format if name in small else "float32") for name, s in names.items()}
    ts |= {"index": Tensor("index", (2, tokens), "int32"), "iteration": Tensor("iteration", (1,), "int64")}
    row = attrs(first=2, last=3, centred=True, divisor="VARIANCE", eps=1e-5)
    drop, rows = attrs(ratio=0.25, seed=3, key=4, block=0), 4 * width * 3 * CpuDevice().threads
    for kind, a, reads, writes, most in (
        ("row_norm.forward", row, "x gamma beta", "y inverse mean", rows),
        ("row_norm.backward_data", row, "x dy inverse mean gamma", "dx", rows),
        ("row_norm.backward_filter", row, "x dy inverse mean", "dgamma dbeta", rows + 4 * 2 * width * 72),
        ("dropout.forward", drop, "x iteration", "y", 0),
        ("batch_reindex.backward", None, "index dy", "words", copies.MOST + 4 * 32 * (words + 2 * tokens)),
    ):
        read, written = (tuple(ts[name] for name in of.split()) for of in (reads, writes))
        yield Op(kind, kind, "l", Pass.FORWARD, read, written, a), most


def _with_data(op: Op, words: int) -> Example:
    random = np.random.default_rng(0)
    data = {t: random.standard_normal(t.shape).astype(t.dtype) for t in op.reads if not t.dtype.startswith("int")}
    data |= {t: random.integers(0, words, t.shape).astype(t.dtype) for t in op.reads if t.dtype.startswith("int")}
    return Example(op.name, op, data)


@pytest.mark.parametrize("format", EPSILON)
def test_ops_of_transformers_have_the_bits_that_they_have_on_copies(format, monkeypatch):
    """Those that take 16 bits as they are, and a sum of rows by columns."""
    monkeypatch.setattr(copies, "LEAST", SMALL)
    given = [_with_data(op, 70) for op, _ in _of_transformers(format, 9, 77, 70)]
    own = [[got.tobytes() for got in run(d, e, d.algorithms(e.op)[0])] for d in [CpuDevice()] for e in given]
    monkeypatch.setattr(native, "HALF", {})
    monkeypatch.setattr(columns, "KIND", "no op is one")
    d = CpuDevice()
    copied = [[got.tobytes() for got in run(d, e, d.algorithms(e.op)[0])] for e in given]
    assert own == copied
    for e in given:
        for got, want in zip(run(d, e, d.algorithms(e.op)[0]), wanted(e), strict=True):
            assert near(got, want, format), e.name


def test_ops_of_transformers_need_no_copies_of_whole_tensors():
    """GPT-2's, of two windows of 4096 tokens: each of its maps is 25 MB as float32, and its words are 154 MB."""
    device = CpuDevice()
    for op, most in _of_transformers("bfloat16", 4096, 768, 50257):
        assert max(a.workspace for a in device.algorithms(op)) <= most < 13e6, op.name


def test_without_our_kernels_numpy_converts():
    device = bare()
    for e in halves("bfloat16"):
        if e.op.kind in ("relu.forward", "softmax.forward") and _elements(e) <= MOST:
            (want,), (got, *_) = wanted(e)[:1], run(device, e, device.algorithms(e.op)[0])
            assert near(got, want, "bfloat16"), e.name


# ---- nets


@cache
def baseline(net: str, algorithms: str, format: str) -> dict[str, np.ndarray]:
    return trained(net, CpuDevice(), f"baseline:{algorithms}", format=format)


@pytest.mark.slow
@pytest.mark.parametrize("format", EPSILON)
@pytest.mark.parametrize("net", usual_are(["residual", "attention"], NETS))
def test_trains_as_the_reference_does(net, format):
    want, got = trained(net, ReferenceDevice(), "baseline:m", format=format), baseline(net, "m", format)
    assert want.keys() == got.keys() and {v.dtype for v in got.values()} == {np.dtype("float32")}
    for name in want:
        if ".momentum" in name:  # of a bias before a batch normalization it is the rounding of zero
            continue
        scale = max(float(np.abs(want[name]).max()), 1e-2)
        assert np.abs(got[name] - want[name]).max() <= 12 * EPSILON[format] * scale, name


@pytest.mark.parametrize("format", EPSILON)
@pytest.mark.parametrize("policy", FEW)
@pytest.mark.parametrize("net", ["lenet", *(pytest.param(n, marks=LONG) for n in NETS if n != "lenet")])
def test_the_same_bytes_under_every_policy(net, policy, format):
    want = baseline(net, "p" if policy.endswith((":p", "dyn")) else "m", format)
    got = trained(net, CpuDevice(), policy, format=format, debug=True)
    assert [n for n in want if got[n].tobytes() != want[n].tobytes()] == []
