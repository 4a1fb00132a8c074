"""(a) Every op kind's examples, by every algorithm of the device, compared with the reference in every number format.

The examples are those of tests/support/op_examples, tests/support/cuda/op_examples.py and
tests/support/cuda/reduction_examples.py; benchmarks/gpu_check/rounding.py says which errors are allowed and why. The
order is float32 with TF32 forbidden, bfloat16, cuDNN's kinds again with TF32 allowed. Item p has float16.

Each runs three times and must give the same bytes. The first is a call. The second is a call at other addresses, in
place and over another poison. The third is a captured graph, so a plan that fails only in a capture is found here.
Tensors that an op only reads must stay as they are. The worst error of a kind is kept.

Where the host may run the op for the GPU (costs/host.py), its kernel must leave the GPU's bytes.

An algorithm that cuDNN refuses to run, also one that it refuses in a capture alone, is listed and is no failure: a
user's net would run by the next one. If cuDNN refuses every algorithm of an example, that is a failure.

Tensors of more than 2^31 elements have cases of their own (large.py).

There are also convolutions whose stride leaves some of x uncovered. There the gradient must be written as zero.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.gpu_check import large
from benchmarks.gpu_check.rounding import Precision, allowed, distance, examples_in, wanted
from benchmarks.gpu_check.run import Run, Wrong
from minidnn.backends.cuda.cudnn import NoPlan
from minidnn.backends.cuda.device import KINDS, OF_CUDNN, CudaDevice, KernelFailed
from minidnn.program import Algorithm, Tensor
from tests.support.cuda import op_examples as cuda_ops
from tests.support.cuda import reduction_examples as cuda_reduction_ops
from tests.support.op_examples import Example, Maker, attrs

ALIGNED = 256
PRECISIONS = (Precision("float32"), Precision("bfloat16"), Precision("float32", tf32=True))
UNCOVERED = (  # x's shape, outputs, kernel, stride: the stride exceeds the kernel, or no window meets the last row
    ((2, 8, 15, 14), 16, (1, 1), (2, 2)),
    ((4, 256, 56, 56), 512, (1, 1), (2, 2)),  # resnet50's
    ((2, 8, 23, 21), 16, (3, 3), (4, 5)),
    ((2, 16, 10, 12), 16, (3, 3), (2, 2)),
)


def examples(small: bool) -> dict[str, list[Example]]:
    found: dict[str, list[Example]] = defaultdict(list)
    for e in [*cuda_ops.all_examples(), *cuda_reduction_ops.every()]:
        found[e.op.kind].append(e)
    if small:
        found = {k: sorted(of, key=lambda e: sum(t.size for t in e.op.tensors))[:2] for k, of in found.items()}
    return {kind: found[kind] for kind in sorted(found, key=lambda kind: (kind in KINDS, kind))}  # cuDNN's first


def item(run: Run) -> None:
    missing = sorted({*KINDS, *OF_CUDNN} - {kind for kind, of in examples(run.place.small).items() if of})
    run.case("every kind has examples", lambda: _none(missing))
    compared(run, PRECISIONS)
    large.cases(run)


def compared(run: Run, precisions: Sequence[Precision]) -> None:
    """A case per precision and kind."""
    by_kind = examples(run.place.small)
    for precision in precisions:
        device = run.place.device(tf32=precision.tf32 or precision.format != "float32")
        for kind, of in by_kind.items():
            if precision.of(kind) and (stored := examples_in(precision, of)):
                run.case(f"{kind}, {precision}", lambda d=device, of=stored, p=precision: check(d, of, p), needs=3)
        uncovered = examples_in(precision, strided(run.place.small))
        name = f"gradient where no window reached, {precision}"
        run.case(name, lambda d=device, of=uncovered, p=precision: check(d, of, p), needs=3)


def _none(missing: list[str]) -> dict[str, Any]:
    if missing:
        raise Wrong(f"no examples of {', '.join(missing)}")
    return {}


def strided(small: bool) -> list[Example]:
    """Examples of gradients of convolutions whose windows do not reach all of x."""
    m, found = Maker(3), []
    for (n, c, h, w), o, kernel, stride in UNCOVERED[:: 3 if small else 1]:
        a = attrs(kernel=kernel, stride=stride, pad=(0, 0), dilation=(1, 1), group=1)
        out = tuple((x - k) // s + 1 for x, k, s in zip((h, w), kernel, stride, strict=True))
        weights, dy = m.normal(o, c, *kernel), m.normal(n, o, *out)
        note = f"kernel {kernel} stride {stride}"
        found.append(m.example("convolution.backward_data", [weights, dy], [(n, c, h, w)], a, note=note))
    return found


def by_the_host(device: CudaDevice, e: Example) -> list[np.ndarray]:
    """The example's results by the kernel that the host runs in the GPU's stead."""
    views = {t: device.array(np.empty(t.nbytes, np.uint8), t) for t in e.op.tensors}
    for t, value in e.data.items():
        views[t][...] = value
    device.prepare_by_host(e.op, device.algorithms(e.op)[0], views)()
    return [views[t] for t in e.op.writes]


def check(device: CudaDevice, of: list[Example], precision: Precision = PRECISIONS[0]) -> dict[str, Any]:
    worst, where, runs, wrong, what, limit = 0.0, "", 0, [], "", 0.0
    refused: list[str] = []  # algorithms that cuDNN listed and does not run
    of, no_plan = _planned(device, of)
    bench = device.runtime(max((_room(device, e) for e in of), default=0), 0, 0.0, 0)
    try:
        for e in of:
            want = wanted(e)
            try:
                recipes = device.recipes(e.op)
            except NoPlan as none:  # an example of the same geometry has lost them all
                wrong.append(str(none))
                continue
            for recipe in recipes:
                algorithm = recipe.algorithm
                what = f"{e.name} [{algorithm.name}]"
                try:
                    found = []
                    for shift, together, poison, captured in _WAYS:
                        runs += 1
                        found.append(once(device, bench, e, algorithm, shift, together, poison, captured))
                except KernelFailed as error:  # the call failed at once; an error that CUDA reports later ends the case
                    device.api.synchronize(device.compute)
                    said = f"{what}{', in a capture' if len(found) == 2 else ''}: {error}"
                    if e.op.kind in KINDS:
                        wrong.append(said)
                        continue
                    refused.append(said)
                    try:
                        device.drop(e.op, algorithm, error)
                    except NoPlan as none:
                        wrong.append(str(none))
                    continue
                if not all(stay for _, stay in found):
                    wrong.append(f"{what}: writes what it should only read")
                (first, _), (again, _), (replayed, _) = found
                for t, g, a, r, w in zip(e.op.writes, first, again, replayed, want, strict=True):
                    off, most = distance(g, w, e.exact), allowed(e, t, precision, len(recipe.steps))
                    limit = max(limit, most)
                    if off > worst or not where:
                        worst, where = max(worst, off), what
                    if not off <= most:
                        wrong.append(f"{what}: {t.name} is off by {off:.3g} of the largest value")
                    if g.tobytes() != a.tobytes():
                        wrong.append(f"{what}: {t.name} has other bytes the second time, elsewhere and in place")
                    if g.tobytes() != r.tobytes():
                        wrong.append(f"{what}: {t.name} has other bytes in a replayed graph")
                if device.hosts(e.op):
                    for t, g, h in zip(e.op.writes, first, by_the_host(device, e), strict=True):
                        if g.tobytes() != h.tobytes():
                            wrong.append(f"{what}: {t.name} has other bytes where the host computes it")
    except Exception as error:
        bench.broken = True  # CUDA may not work any more: do not release anything
        raise RuntimeError(f"{what}: {error}") from error
    finally:
        bench.close()
    values = {"examples": len(of), "runs": runs, "worst": worst, "where": where, "tolerance": limit}
    values |= {"no_plan": no_plan, "refused": refused}
    if of and of[0].op.kind.endswith("_relu"):  # whether cuDNN's ReLU hides NaN (backends/cuda/nan.py)
        values |= {"hide_nan": device.nan.hiding(), "not_run": dict(list(device.nan.refused.items())[:5])}
    if wrong:
        raise Wrong(f"{len(wrong)} of {runs} runs: {'; '.join(wrong[:4])}", {**values, "wrong": wrong[:40]})
    return values


_WAYS = ((0, False, 0xFF, False), (3, True, 0x7F, False), (0, False, 0x7F, True))  # shift, together, poison, captured


def _planned(device: CudaDevice, of: list[Example]) -> tuple[list[Example], list[str]]:
    """The examples that the device can run, and cuDNN's messages on the others.

    cuDNN lacks plans for some odd geometries; a user gets such a message when loading a net. Raises Wrong if cuDNN has
    a plan for none of the examples."""
    can, refused = [], []
    for e in of:
        try:
            device.algorithms(e.op)
            can.append(e)
        except NoPlan as error:
            refused.append(f"{e.name}: {error}")
    if not can:
        raise Wrong(f"cuDNN has no plan for any of {len(of)} examples: {refused[0]}", {"no_plan": refused})
    return can, refused


def _room(device: CudaDevice, e: Example) -> int:
    workspace = max(a.workspace for a in device.algorithms(e.op))
    return sum(-(-t.nbytes // ALIGNED) * ALIGNED + 3 * ALIGNED for t in e.op.tensors) + workspace + 4 * ALIGNED


def once(
    device: CudaDevice,
    bench: Any,
    e: Example,
    algorithm: Algorithm,
    shift: int,
    together: bool,
    poison: int,
    captured: bool,
) -> tuple[list[np.ndarray], bool]:
    """Run an example once: (the arrays that it wrote, whether tensors that it only reads stayed as they were).

    poison: the byte that fills the arena before. shift: moves every offset by so many times 256 bytes. together: writes
    share bytes with reads as far as the op permits. captured: run it as a graph."""
    op = e.op
    taken: dict[Tensor, Tensor] = {}
    if together:
        for read, write in op.inplace:
            if write not in taken and read not in taken.values():
                taken[write] = read
    at, places = shift * ALIGNED, {}
    for t in op.tensors:
        if t not in taken:
            places[t] = at
            at += -(-t.nbytes // ALIGNED) * ALIGNED + shift * ALIGNED
    places |= {write: places[read] for write, read in taken.items()}
    raw = np.full(at, poison, np.uint8)
    for t, value in e.data.items():
        device.array(raw[places[t] : places[t] + t.nbytes], t)[...] = value
    arena = bench.arena
    whole = at + algorithm.workspace
    bench.fill(arena[0:whole], poison)()
    bench.write(arena[0:at], raw)
    views = {t: arena[places[t] : places[t] + t.nbytes] for t in op.tensors}
    call = device.prepare(op, algorithm, views, arena[at:whole])
    if captured:
        _replayed(device, call)
    else:
        call()
    after = bench.read(arena[0:at])  # on the same stream, so after the op
    results = [np.array(device.array(after[places[t] : places[t] + t.nbytes], t)) for t in op.writes]
    only_read = [t for t in op.reads if t not in op.writes and t not in taken.values()]
    stay = all(
        np.array_equal(after[places[t] : places[t] + t.nbytes], raw[places[t] : places[t] + t.nbytes])
        for t in only_read
    )
    return results, stay


def _replayed(device: CudaDevice, call: Callable[[], object]) -> None:
    """Capture the call as a graph, and run that once. Raises KernelFailed if the capture fails."""
    api, stream = device.api, device.compute
    api.begin_capture(stream)
    try:
        call()
    except BaseException:
        with contextlib.suppress(Exception):  # the capture is spoiled, but the stream cannot be used until it ends
            api.release_graph(api.end_capture(stream))
        raise
    try:
        graph = api.end_capture(stream)
    except Exception as error:  # the call did something, without an error, that ended the capture
        raise KernelFailed(f"its capture does not end well: {error}") from error
    try:
        api.replay(graph, stream)
        api.synchronize(stream)
    finally:
        api.release_graph(graph)
