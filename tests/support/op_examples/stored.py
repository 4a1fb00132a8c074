"""Examples whose tensors are stored in 16 bits."""

from __future__ import annotations

from dataclasses import replace

from tests.support.op_examples.maker import Example


def stored(e: Example, format: str) -> Example:
    """The example with its float32 tensors in that format, but for one or two numbers: a rate, a scale."""
    names = {t: replace(t, dtype=format) if t.dtype == "float32" and t.size > 2 else t for t in e.op.tensors}
    op = replace(
        e.op,
        reads=tuple(names[t] for t in e.op.reads),
        writes=tuple(names[t] for t in e.op.writes),
        inplace=tuple((names[a], names[b]) for a, b in e.op.inplace if names[a].dtype == names[b].dtype),
    )
    return Example(e.name, op, {names[t]: x.astype(names[t].dtype) for t, x in e.data.items()}, e.exact)
