"""(a) Every op kind's examples (tests/cpu_ops.py and its like), by every algorithm that the device lists, against the
reference: once with TF32 forbidden, which is float32 to rounding; cuDNN's kinds again with TF32 allowed.

Each runs twice, elsewhere and in place and over other poison, and must give the same bytes; what is only read must
stay. The worst error of a kind is kept.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from benchmarks.gpu_check.run import Run, Wrong
from minidnn.backends.cuda.device import KINDS, OF_CUDNN, CudaDevice, KernelFailed
from minidnn.backends.reference import KERNELS
from minidnn.program import Algorithm, Tensor
from tests import cpu_ops, cuda_ops, cuda_reduction_ops
from tests.cpu_ops import Example, expected

# Of the largest value (or 1). Our kernels add in float32 in another order; cuDNN may also use Winograd's transform.
OURS, EXACT, TF32 = 2e-5, 2e-4, 5e-3
ALIGNED = 256


def examples(small: bool) -> dict[str, list[Example]]:
    found: dict[str, list[Example]] = defaultdict(list)
    for e in [*cpu_ops.examples(), *cuda_ops.more(), *cuda_reduction_ops.every()]:
        found[e.op.kind].append(e)
    if small:
        found = {k: sorted(of, key=lambda e: sum(t.size for t in e.op.tensors))[:2] for k, of in found.items()}
    return {kind: found[kind] for kind in sorted(found, key=lambda kind: (kind in KINDS, kind))}  # cuDNN's first


def item(run: Run) -> None:
    by_kind = examples(run.place.small)
    missing = sorted({*KINDS, *OF_CUDNN} - {kind for kind, of in by_kind.items() if of})
    for form in run.place.formats:
        for tf32 in (False, True):
            for kind, of in by_kind.items():
                if tf32 and kind not in OF_CUDNN:
                    continue
                device = run.place.device(tf32)
                tolerance = (TF32 if tf32 else EXACT) if kind in OF_CUDNN else OURS
                name = f"{kind}, {form}{', TF32 allowed' if tf32 else ''}"
                run.case(name, lambda d=device, of=of, t=tolerance: check(d, of, t), needs=5)
    run.case("every kind has examples", lambda: _none(missing))


def _none(missing: list[str]) -> dict[str, Any]:
    if missing:
        raise Wrong(f"no examples of {', '.join(missing)}")
    return {}


def check(device: CudaDevice, of: list[Example], tolerance: float) -> dict[str, Any]:
    worst, where, runs, wrong, what = 0.0, "", 0, [], ""
    bench = device.runtime(max(_room(device, e) for e in of), 0, 0.0, 0)
    try:
        for e in of:
            with np.errstate(all="ignore"):
                want = expected(KERNELS, e)
            for algorithm in device.algorithms(e.op):
                what = f"{e.name} [{algorithm.name}]"
                runs += 2
                try:
                    first, stay = once(device, bench, e, algorithm, 0, False, 0xFF)
                    again, stay_again = once(device, bench, e, algorithm, 3, True, 0x7F)
                except KernelFailed as error:  # refused when it was called; what CUDA finds later ends the case
                    device.api.synchronize(device.compute)
                    wrong.append(f"{what}: {error}")
                    continue
                if not (stay and stay_again):
                    wrong.append(f"{what}: writes what it should only read")
                for t, g, a, w in zip(e.op.writes, first, again, want, strict=True):
                    off = distance(g, w)
                    if off > worst or not where:
                        worst, where = max(worst, off), what
                    if off > (0.0 if e.exact or w.dtype.kind != "f" else tolerance):
                        wrong.append(f"{what}: {t.name} is off by {off:.3g} of the largest value")
                    if g.tobytes() != a.tobytes():
                        wrong.append(f"{what}: {t.name} has other bytes the second time, elsewhere and in place")
    except Exception as error:
        bench.broken = True  # perhaps for good: nothing is given back
        raise RuntimeError(f"{what}: {error}") from error
    finally:
        bench.close()
    values = {"examples": len(of), "runs": runs, "worst": worst, "where": where, "tolerance": tolerance}
    if wrong:
        raise Wrong(f"{len(wrong)} of {runs} runs: {'; '.join(wrong[:4])}", {**values, "wrong": wrong[:40]})
    return values


def distance(got: np.ndarray, want: np.ndarray) -> float:
    """The largest error as a part of the largest value (or of 1); infinite where NaN and infinities differ."""
    if want.dtype.kind != "f":
        return 0.0 if np.array_equal(got, want) else float("inf")
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True) or not np.isfinite(got[finite]).all():
        return float("inf")
    if not finite.any():
        return 0.0
    off = np.abs(got[finite].astype(np.float64) - want[finite])
    return float(off.max() / max(1.0, float(np.abs(want[finite]).max())))


def _room(device: CudaDevice, e: Example) -> int:
    workspace = max(a.workspace for a in device.algorithms(e.op))
    return sum(-(-t.nbytes // ALIGNED) * ALIGNED + 3 * ALIGNED for t in e.op.tensors) + workspace + 4 * ALIGNED


def once(
    device: CudaDevice, bench: Any, e: Example, algorithm: Algorithm, shift: int, together: bool, poison: int
) -> tuple[list[np.ndarray], bool]:
    """(what it writes, whether what is only read stayed) in an arena full of `poison`; `shift` moves every offset by so
    many times 256 bytes; `together` lets a write take the bytes of the read that its op permits."""
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
    device.prepare(op, algorithm, views, arena[at:whole])()
    after = bench.read(arena[0:at])  # on the same stream, so behind the op
    results = [np.array(device.array(after[places[t] : places[t] + t.nbytes], t)) for t in op.writes]
    only_read = [t for t in op.reads if t not in op.writes and t not in taken.values()]
    stay = all(
        np.array_equal(after[places[t] : places[t] + t.nbytes], raw[places[t] : places[t] + t.nbytes])
        for t in only_read
    )
    return results, stay
