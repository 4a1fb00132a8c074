"""benchmarks/roof.py by hand, the loops of benchmarks/rates.py, and benchmarks/roofline.py on a small net."""

from __future__ import annotations

import json
import os
import time
from itertools import product

import numpy as np
import pytest

from benchmarks import rates, roof, roofline
from benchmarks.roof import Level, Roof, Work
from minidnn.backends import families
from minidnn.backends.cpu import CpuDevice
from minidnn.layers.convolution import ConvolutionAttrs
from minidnn.memory.execution.threads import Threads
from minidnn.program import Algorithm, Op, Pass, Tensor
from tests.support.op_examples import compiled

DIRECT = Algorithm("nhwc.jit")


def convolution(which, x, w, y, stride=(1, 1), pad=(0, 0), dilation=(1, 1), group=1):
    """An op of a convolution's pass, which reads and writes tensors of these shapes."""
    of = {name: Tensor(name, shape) for name, shape in (("x", x), ("w", w), ("y", y))}
    reads, written = {"forward": ("xw", "y"), "backward_data": ("wy", "x"), "backward_filter": ("xy", "w")}[which]
    attrs = ConvolutionAttrs(kernel=w[2:], stride=stride, pad=pad, dilation=dilation, group=group)
    flops = 2 * np.prod(y) * np.prod(w[1:])
    return Op(f"c.{which}", f"convolution.{which}", "c", Pass.FORWARD, tuple(of[n] for n in reads), (of[written],),
              attrs, flops=int(flops))  # fmt: skip


PASSES = ("forward", "backward_data", "backward_filter")


@pytest.mark.parametrize("which", PASSES)
@pytest.mark.parametrize(
    "x, w, y, constants",
    [
        ((2, 3, 5, 6), (4, 3, 3, 3), (2, 4, 5, 6), {"pad": (1, 1)}),
        ((1, 4, 7, 7), (6, 2, 3, 2), (1, 6, 4, 3), {"pad": (1, 0), "stride": (2, 3), "group": 2}),
        ((1, 2, 9, 5), (2, 2, 3, 3), (1, 2, 9, 5), {"pad": (2, 2), "dilation": (2, 2)}),
    ],
    ids=["padded", "strided", "dilated"],
)
def test_operations_are_those_on_pixels_within_the_image(which, x, w, y, constants):
    op = convolution(which, x, w, y, **constants)
    a, pairs = op.attrs, 0
    for out in product(range(y[2]), range(y[3])):
        for tap in product(*map(range, a.kernel)):
            at = [o * s - p + t * d for o, s, p, t, d in zip(out, a.stride, a.pad, tap, a.dilation, strict=True)]
            pairs += all(0 <= i < size for i, size in zip(at, x[2:], strict=True))
    assert roof.work(op, DIRECT).flops == 2 * x[0] * w[0] * w[1] * pairs <= op.flops


@pytest.mark.parametrize("which", PASSES)
def test_winograd_has_the_products_of_its_tiles_alone(which):
    op = convolution(which, (2, 16, 8, 8), (32, 16, 3, 3), (2, 32, 8, 8), pad=(1, 1))
    assert roof.work(op, Algorithm("winograd4")).flops == 2 * 36 * (2 * 2 * 2) * 16 * 32  # a quarter of the direct
    assert roof.work(op, Algorithm("winograd4")).flops == op.flops / 4


def test_every_algorithm_of_fewer_multiplications_is_known():
    """If a kernel is named as Winograd's, its products are counted as Winograd's."""
    device = CpuDevice(threads=1)
    if device.native is None:
        pytest.skip("our own kernels are not compiled")
    for side, channels in ((3, 32), (5, 32)):
        op = convolution("forward", (2, channels, 16, 16), (channels, channels, side, side), (2, channels, 16, 16),
                         pad=(side // 2, side // 2))  # fmt: skip
        named = [a for a in device.algorithms(op) if "wino" in a.name]
        assert named and all(roof.work(op, a).flops < op.flops / 2 for a in named)


def test_bytes_are_those_that_are_touched():
    every_second = convolution("forward", (1, 8, 6, 6), (4, 8, 1, 1), (1, 4, 3, 3), stride=(2, 2))
    assert roof.work(every_second, DIRECT) == Work(2 * 9 * 8 * 4, 4 * (8 * 9 + 8 * 4), 4 * 4 * 9)
    table, index, rows = Tensor("table", (1000, 8)), Tensor("index", (3,), "int32"), Tensor("rows", (3, 8))
    chosen = Op("e.forward", "batch_reindex.forward", "e", Pass.FORWARD, (table, index), (rows,), flops=24)
    assert roof.work(chosen, DIRECT) == Work(0, 4 * (24 + 3), 4 * 24)
    joined, part = Tensor("joined", (2, 9, 4, 4)), Tensor("part", (2, 3, 4, 4))
    cut = Op("c.backward", "concat.backward", "c", Pass.BACKWARD, (joined,), (part,), flops=96)
    assert roof.work(cut, DIRECT) == Work(0, 4 * 96, 4 * 96)
    x, y = Tensor("x", (2, 3)), Tensor("y", (6,))
    still = Op("f.forward", "flatten.forward", "f", Pass.FORWARD, (x,), (y,), inplace=((x, y),), flops=6)
    assert roof.work(still, DIRECT) == Work(0, 0, 0)
    doubled = Op("s.forward", "eltwise.forward", "s", Pass.FORWARD, (x, x), (y,), flops=12)
    assert roof.work(doubled, DIRECT) == Work(0, 24, 24)


def test_families_of_products_are_families():
    assert set(families.FAMILIES["convolution"]) | {"linear_loss.forward", "attention.backward"} <= roof.KINDS
    assert "convolution.backward_bias" not in roof.KINDS


def test_seconds_are_of_arithmetic_or_of_bytes_by_hand():
    caches, memory = Level(1000, 200.0, 100.0, 200.0), Level(None, 20.0, 10.0, 25.0)
    top = Roof.of({"multiply-add": 50.0, "a product": 40.0}, [caches, memory])
    assert top.flops == 50
    assert top.seconds(Work(5000, 1, 1)) == top.arithmetic(Work(5000, 1, 1)) == 100
    assert top.seconds(Work(0, 1200, 0)) == 1000 / 200 + 200 / 20
    assert top.seconds(Work(0, 0, 1200)) == 1000 / 100 + 200 / 10
    assert top.seconds(Work(0, 1200, 1200)) == 1000 / 200 + 1400 / 25, "both at once, as in a copy"
    assert top.seconds(Work(0, 0, 0)) == 0


def test_a_cache_is_no_slower_than_what_lies_behind_it():
    """Another program may have had the core while a cache was measured."""
    top = Roof.of({"multiply-add": 1.0}, [Level(10, 5.0, 30.0, 30.0), Level(None, 20.0, 10.0, 25.0)])
    assert top.levels[0] == Level(10, 20.0, 30.0, 30.0)


def test_caches_are_read_as_the_system_says(tmp_path):
    said = {"index0": ("Data", 1, "32K", "0"), "index1": ("Instruction", 1, "32K", "0"),
            "index2": ("Unified", 2, "1024K", "0"), "index3": ("Unified", 3, "32768K", "0-1")}  # fmt: skip
    for name, lines in said.items():
        (tmp_path / name).mkdir()
        for file, line in zip(("type", "level", "size", "shared_cpu_list"), lines, strict=True):
            (tmp_path / name / file).write_text(f"{line}\n")
    assert rates.caches(2, tmp_path) == [64 << 10, 2 << 20, 32 << 20]
    assert rates.caches(1, tmp_path) == [32 << 10, 1 << 20, 32 << 20]
    assert rates.caches(2, tmp_path / "nowhere") == []


@pytest.fixture
def brief(monkeypatch):
    compiled()
    for name, value in (("RUN", 0.0), ("SPENT", 0.0), ("FEWEST", 1), ("SIDES", (64,)), ("MEMORY", 1 << 16)):
        monkeypatch.setattr(rates, name, value)
    monkeypatch.setattr(rates, "caches", lambda threads: [1 << 14])


def test_the_loops_do_what_they_are_timed_for(brief):
    before, loops, n = os.sched_getaffinity(0), rates.Loops(2), 2 * 4 * 8 * 16 * 3
    raw = np.zeros(2 * n + 16, np.float32)
    skip = -raw.ctypes.data % 64 // 4
    first, second = raw[skip : skip + n], raw[skip + n : skip + 2 * n]
    for past in (False, True):
        raw[:] = 0
        loops.write(first.ctypes.data, n, 1, 2, past)
        assert (first == 1).all() and not second.any()
        first[:] = np.arange(n)
        loops.copy(first.ctypes.data, second.ctypes.data, n, 1, 2, past)
        assert (second == first).all() and not raw[skip + 2 * n :].any()
    for streams in rates.STREAMS:
        second[:] = first
        loops.add(first.ctypes.data, second.ctypes.data, n, 2, 2, streams)
        assert (second == 3 * first).all()
    assert os.sched_getaffinity(0) == before, "a thread keeps to its core while it is timed alone"
    found = rates.measured(CpuDevice(threads=1), {"PyTorch's product": 1e30})
    assert found.flops == 1e30 and set(found.rates) == {"multiply-add in registers", "our product", "PyTorch's product"}
    assert [level.nbytes for level in found.levels] == [1 << 14, None] and json.dumps(found.document())


def test_a_row_says_what_binds_it_and_what_is_lost():
    top = Roof.of({"multiply-add": 100.0}, [Level(None, 10.0, 10.0, 10.0)])
    rows = [
        roofline.Row("a", "forward", "jit", 4.0, 1.0, 1.0, 100),
        roofline.Row("b", "forward", "jit", 3.0, 2.5, 0.5, 50),
        roofline.Row("a", "backward_data", "jit", 9.0, 1.0, 1.0, 100),
        roofline.Row("r", roofline.OTHERS, "native", 99.0, 1.0, 0.0, 0),
    ]
    assert [r.bound for r in rows] == ["arithmetic", "bytes", "arithmetic", "bytes"]
    assert [(r.layer, r.of, r.lost) for r in roofline.worst(rows)] == [
        ("a", "backward_data", 8.0), ("a", "forward", 3.0), ("b", "forward", 0.5)
    ]  # fmt: skip
    assert [(r.of, r.seconds, r.flops) for r in roofline.by_pass(rows)] == [
        ("forward", 7.0, 150), ("backward_data", 9.0, 100), (roofline.OTHERS, 99.0, 0)
    ]  # fmt: skip
    found = {"net": "n", "rows": rows, "seconds": 120.0, "roof": top, "others": None}
    (first, *_) = json.loads(json.dumps(roofline.document(found)))["rows"]
    assert (first["share"], first["of_roof"], first["bound"]) == (4 / 120, 0.25, "arithmetic")


def test_processor_time_is_taken_within_alone():
    with roofline.processor_time(True):
        assert Threads.clock is time.thread_time
    with pytest.raises(KeyError), roofline.processor_time(True):
        raise KeyError
    with roofline.processor_time(False):
        assert Threads.clock is time.perf_counter
    assert Threads.clock is time.perf_counter


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--estimated"]], ids=["measured", "estimated"])
def test_a_small_net_below_the_roof(options, brief, own_cache, capsys):
    """No test may time, so the roof is one that nothing reaches: all ops are there, and none is above it."""
    assert roofline.main(["lenet:2", "--threads", "1", "--steps", "2", "--json", *options]) == 0
    (found,) = json.loads(capsys.readouterr().out)["nets"]
    products = [r for r in found["rows"] if r["of"] != roofline.OTHERS]
    assert {(r["layer"], r["of"]) for r in products} == {
        ("conv1", "forward"), ("conv1", "backward_filter"), *(
            (layer, of) for layer in ("conv2", "ip1", "ip2") for of in PASSES
        ),
    }  # fmt: skip
    assert all(r["seconds"] > 0 and r["flops"] > 0 for r in products) and len(found["worst"]) == 5
    assert sum(r["roof_seconds"] for r in found["rows"]) > 0


@pytest.mark.parametrize(
    "argv, says",
    [
        (["lenett:4"], "did you mean 'lenet'"),
        (["lenet:0"], "expected NET"),
        (["lenet", "--policy", "livenes"], "did you"),
    ],
)
def test_bad_arguments_say_what_there_is(argv, says, capsys):
    assert roofline.main(argv) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1
