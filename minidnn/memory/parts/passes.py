"""Ops that go twice over their rows: each pass is an op of its own, and may run in parts of the batch where the op may
not. All parts of the first pass come before those of the second.

- BatchNorm's forward is its moments, and then y by them. (Fused with a Scale, these are two ops anyway.)
- Its backward, alone or fused, is two sums by channel, and then dx by them: of dy xhat, and of dy. Fused, these are the
  gradients of gamma and beta.

Here dx comes of sums that were rounded to float32. The op as a whole has kernels of its own, and last bits differ.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from minidnn.memory.parts.kinds import BEHIND
from minidnn.program import Op, Role, Tensor

_BACKWARD = {f"batch_norm.backward{behind}": behind for behind in BEHIND}


@lru_cache(maxsize=1 << 14)  # it is asked again for each candidate
def passes(op: Op) -> tuple[Op, ...]:
    """The op's passes, in their order; none: it has one.

    None, too, where a BatchNorm keeps maps of Caffe's besides: that is an accounting of the papers'."""
    counts = len(op.reads), len(op.writes)
    if op.kind == "batch_norm.forward" and counts == (1, 3):
        return _forward(op)
    if op.kind in _BACKWARD and counts == ((6, 3) if _BACKWARD[op.kind] else (4, 1)):
        return _backward(op)
    return ()


def between(op: Op) -> tuple[Tensor, ...]:
    """What the first pass writes for the second alone."""
    return tuple(t for one in passes(op)[:1] for t in one.writes if t not in op.writes)


def _forward(op: Op) -> tuple[Op, Op]:
    (x,), (y, *moments) = op.reads, op.writes
    half = op.flops // 2
    first = replace(
        op, name=f"{op.name}.moments", kind="batch_norm.moments", writes=tuple(moments), inplace=(), flops=half
    )
    kind, reads = "batch_norm.normalize", (x, *moments)
    return first, replace(
        op, name=f"{op.name}.normalize", kind=kind, reads=reads, writes=(y,), inplace=((x, y),), flops=op.flops - half
    )


def _backward(op: Op) -> tuple[Op, Op]:
    (x, *channels, dy), (dx, *gradients) = op.reads, op.writes
    behind, half = _BACKWARD[op.kind], op.flops // 2
    sums = gradients or [
        replace(channels[0], name=f"{op.name}.sum_of_{of}", role=Role.GRADIENT) for of in ("dy_xhat", "dy")
    ]
    first = replace(
        op, name=f"{op.name}.sums", kind=f"batch_norm.backward_sums{behind}", reads=(x, dy, *channels),
        writes=tuple(sums), inplace=(), flops=half,
    )  # fmt: skip
    return first, replace(
        op, name=f"{op.name}.data", kind=f"batch_norm.backward_data{behind}", reads=(x, dy, *channels, *sums),
        writes=(dx,), flops=op.flops - half,
    )  # fmt: skip
