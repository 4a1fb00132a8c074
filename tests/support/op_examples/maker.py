"""How examples are made, placed in an arena and run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, make_dataclass, replace
from functools import cache

import numpy as np

from minidnn.program import Algorithm, Op, Pass, Tensor
from minidnn.programs.fusion.multi_tensor import joined


@cache
def _attrs_class(fields: tuple[str, ...]) -> type:
    return make_dataclass("Attrs", fields, frozen=True)


def attrs(**values):
    """Attributes of an op by name, hashable like a layer's."""
    return _attrs_class(tuple(values))(**values)


@dataclass(frozen=True, eq=False)
class Example:
    name: str
    op: Op
    data: dict[Tensor, np.ndarray]  # the values of the tensors that the op reads
    exact: bool = False  # results must have the same bits, as indices and copies do


def once(made: Iterable[Example]) -> tuple[Example, ...]:
    """Examples that tests share: nobody may change their data."""
    made = tuple(made)
    for e in made:
        for x in e.data.values():
            x.flags.writeable = False
    return made


class Maker:
    """Makes examples from one stream of random numbers."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def normal(self, *shape: int) -> np.ndarray:
        return self.random.standard_normal(shape).astype(np.float32)

    def example(
        self,
        kind: str,
        reads: list[np.ndarray],
        writes: list[tuple[int, ...] | int],  # a shape, or which read is updated in place
        a=None,
        inplace: list[tuple[int, int]] = (),
        dtypes: dict[int, str] | None = None,
        note: str = "",
        exact: bool = False,
    ) -> Example:
        r = [Tensor(f"r{i}", x.shape, str(x.dtype)) for i, x in enumerate(reads)]
        w = [
            r[s] if isinstance(s, int) else Tensor(f"w{i}", s, (dtypes or {}).get(i, "float32"))
            for i, s in enumerate(writes)
        ]
        name = f"{kind}({', '.join('x'.join(map(str, x.shape)) for x in reads)}) {note}".strip()
        pairs = tuple((r[i], w[j]) for i, j in inplace)
        op = Op(kind, kind, "layer", Pass.FORWARD, tuple(r), tuple(w), a, pairs)
        return Example(name, op, dict(zip(r, reads, strict=True)), exact)


def place(
    device,
    example: Example,
    algorithm: Algorithm,
    shift: int = 0,
    together: bool = False,
    poison: int = 0xFF,
    off: int = 0,
):
    """Put the example's tensors into an arena and prepare its op. Returns (call, {tensor: logical view}).

    shift: moves every offset by so many times 256 bytes. together: writes share bytes with reads as far as the op
    permits. poison: the byte that fills the arena before, by default that of NaN. off: moves every offset by so many
    bytes more, off the multiples of 256 that plans have."""
    op = example.op
    taken: dict[Tensor, Tensor] = {}
    if together:
        for read, write in op.inplace:
            if write not in taken and read not in taken.values():
                taken[write] = read
    sizes = {t: -(-t.nbytes // 256) * 256 + 256 * shift for t in op.tensors if t not in taken}
    raw = np.full(sum(sizes.values()) + algorithm.workspace + 256 * shift + 4096, poison, np.uint8)
    at = -raw.ctypes.data % 4096 + 256 * shift + off
    views: dict[Tensor, np.ndarray] = {}
    for t, size in sizes.items():
        views[t] = device.array(raw[at : at + t.nbytes], t)
        at += size
    for write, read in taken.items():
        start = views[read].__array_interface__["data"][0] - raw.ctypes.data
        views[write] = device.array(raw[start : start + write.nbytes], write)
    for t, value in example.data.items():
        views[t][...] = value
    return device.prepare(op, algorithm, views, raw[at : at + algorithm.workspace]), views


@cache
def bare():
    """The cpu device as it is without our own kernels: oneDNN and the reference."""
    from minidnn.backends.cpu import CpuDevice

    device = CpuDevice()
    device.native = None
    return device


def compiled(threads: int = 1):
    """The cpu device with our own kernels. If they cannot be compiled, the test is skipped, with the reason."""
    import pytest

    from minidnn.backends.cpu import CpuDevice

    device = CpuDevice(threads=threads)
    if device.native is None:
        pytest.skip(device.description)
    return device


def guarded(device, e: Example, algorithm: Algorithm) -> bool:
    """Run the example; whether the bytes around each tensor and the workspace stay as they were."""
    room = {t: np.full(t.nbytes + 8192, 0xA5, np.uint8) for t in e.op.tensors}
    workspace = np.full(algorithm.workspace + 8192, 0xA5, np.uint8)
    at = {t: -raw.ctypes.data % 256 + 256 for t, raw in room.items()}
    views = {t: device.array(raw[at[t] : at[t] + t.nbytes], t) for t, raw in room.items()}
    for t, x in e.data.items():
        views[t][...] = x
    start = -workspace.ctypes.data % 256 + 256
    device.prepare(e.op, algorithm, views, workspace[start : start + algorithm.workspace])()
    ends = [(raw, at[t], at[t] + t.nbytes) for t, raw in room.items()]
    ends.append((workspace, start, start + algorithm.workspace))
    return all((raw[:begin] == 0xA5).all() and (raw[end:] == 0xA5).all() for raw, begin, end in ends)


def run(device, example: Example, algorithm: Algorithm, **how) -> list[np.ndarray]:
    call, views = place(device, example, algorithm, **how)
    call()
    return [np.array(views[t]) for t in example.op.writes]


def expected(kernels, example: Example) -> list[np.ndarray]:
    """The example's results by `kernels`, the reference's."""
    arrays = {t: x.copy() for t, x in example.data.items()}
    for t in example.op.writes:
        arrays.setdefault(t, np.zeros(t.shape, t.dtype))
    kernels[example.op.kind](
        example.op.attrs, [arrays[t] for t in example.op.reads], [arrays[t] for t in example.op.writes]
    )
    return [arrays[t] for t in example.op.writes]


def together(of: list[Example], note: str = "", shared: tuple[int, ...] = ()) -> Example:
    """One example of an op that does the ops of all these, which are of one kind. `shared`: the reads that all have in
    common, those of the first."""
    ops, data = [], {}
    for k, e in enumerate(of):
        common = {e.op.reads[i]: of[0].op.reads[i] for i in shared}
        names = {t: replace(t, name=f"{t.name}.{k}") for t in e.op.tensors}
        names |= {t: replace(first, name=f"{first.name}.0") for t, first in common.items()}
        data = {names[t]: x for t, x in e.data.items()} | data
        reads, writes = (tuple(names[t] for t in side) for side in (e.op.reads, e.op.writes))
        ops.append(replace(e.op, name=f"{e.op.name}.{k}", reads=reads, writes=writes, inplace=()))
    op = joined(ops, ops[-1])
    return Example(f"{op.kind} of {len(of)} {note}".strip(), op, data, all(e.exact for e in of))
