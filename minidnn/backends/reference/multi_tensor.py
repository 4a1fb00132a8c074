"""Kernels of ops that do several ops of one kind (program.MultiTensor): each of them after the other."""

from __future__ import annotations

from functools import wraps


def multi_tensor(kernel):
    """The kernel for several ops from the one for a single op."""

    @wraps(kernel)
    def run(a, reads, writes):
        for m in a.members:
            kernel(m.attrs, [reads[i] for i in m.reads], [writes[i] for i in m.writes])

    return run
