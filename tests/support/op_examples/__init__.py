"""Ops of every kind in odd geometries, with data, for tests of the backends.

At least one example of each kind is large, so that a temporary array would be noticed where allocations are counted. An
Example does not depend on a device; `place` puts its tensors into an arena as a machine does.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from tests.support.op_examples.activations import activations
from tests.support.op_examples.algebra import algebra
from tests.support.op_examples.attentions import attentions, cached, hides, rotations
from tests.support.op_examples.distances import labelled, pairs, pointwise, softened
from tests.support.op_examples.elements import dropouts, elementwise, sums
from tests.support.op_examples.images import broadcasts, depthwise, resizes
from tests.support.op_examples.linear_losses import linear_losses
from tests.support.op_examples.losses import losses, objectives
from tests.support.op_examples.maker import (
    Example,
    Maker,
    attrs,
    bare,
    compiled,
    expected,
    guarded,
    once,
    place,
    run,
    together,
)
from tests.support.op_examples.mixed import channels, fused
from tests.support.op_examples.moves import gathers, joins, moves, samples, slices
from tests.support.op_examples.normalizations import normalizations, scaled, two_passes
from tests.support.op_examples.norms import norms, ratios, squared, summed
from tests.support.op_examples.products import convolutions, products
from tests.support.op_examples.recurrents import recurrents
from tests.support.op_examples.sequences import sequences
from tests.support.op_examples.stored import stored
from tests.support.op_examples.updates import kept, merges, micro_batches, ruled, rules, several, updates
from tests.support.op_examples.windows import poolings, some_index

__all__ = [
    "Example", "Maker", "attrs", "bare", "by_kind", "channels", "compiled", "convolutions", "examples", "expected",
    "guarded", "hides", "once", "place", "poolings", "products", "run", "scaled", "slices", "some_index", "squared",
    "stored", "summed", "sums", "together",
]  # fmt: skip
# each has random numbers of its own: a new one changes no other's
OWN = (
    samples, slices, moves, gathers, objectives, rules, activations, depthwise, broadcasts, resizes, pointwise,
    labelled, pairs, softened, algebra, ruled, micro_batches, merges, kept, norms, ratios, two_passes,
    attentions, linear_losses, rotations, recurrents, cached,
    sequences,
)  # fmt: skip


@cache
def examples() -> tuple[Example, ...]:
    """Examples of every kind, in several geometries each."""
    return once(_examples())


@cache
def by_kind(kind: str) -> tuple[Example, ...]:
    """The examples of a kind."""
    return tuple(e for e in examples() if e.op.kind == kind)


def _examples(seed: int = 0) -> Iterator[Example]:
    m = Maker(seed)
    yield from convolutions(m)
    yield from poolings(m)
    yield from products(m)
    yield from elementwise(m)
    yield from dropouts(m)
    yield from normalizations(m)
    yield from joins(m)
    yield from losses(m)
    yield from updates(m)
    yield from fused(m)
    yield from scaled(m)
    yield from sums(m)
    yield from channels(m)
    yield from several(m)
    for i, some in enumerate(OWN, 1):
        yield from some(Maker(seed + i))
