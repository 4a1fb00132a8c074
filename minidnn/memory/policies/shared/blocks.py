"""The blocks of a model: parts of its forward pass that are alike, found by the names of its layers.

A block's layers share the beginning of their names, up to a number that tells it from its siblings: the path of a
module, as in "transformer.h.3.attn.c_proj" of block "transformer.h.3", or a name of Caffe's, as in "block3/mlp1".
Caffe's ResNets have the number in the middle of words ("res2a_branch1", "bn2a_branch1"), so names are also read by
their numbers alone: "2a", "1". That reading counts if it finds more: a sixteenth more ops in blocks.

A block has two products of matrices at least. Its ops are neighbours: what other modules run between them belongs to
it, too. Blocks are siblings if two of them at least are alike, in a third of their products. Of several such numbers in
a name the outermost counts.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator
from itertools import combinations
from string import ascii_letters

from minidnn.program import PRODUCTS, Program

ALIKE = 1 / 3
MORE = 1 + 1 / 16
NUMBERED = re.compile(r"(.*?)(\d+[a-z]?)")
Key = tuple[Hashable, Hashable]  # siblings have the first in common; the second is the block's own
Reading = Callable[[str], Iterator[Key]]  # of a layer's name, the outermost block first


def blocks(program: Program) -> list[range]:
    """The points of forward that each block takes, in order."""
    paths, numbers = (_read(program, reading) for reading in (_by_path, _by_numbers))
    return numbers if sum(map(len, numbers)) > MORE * sum(map(len, paths)) else paths


def _by_path(layer: str) -> Iterator[Key]:
    parts = re.split(r"[./]", layer)
    for k, part in enumerate(parts):
        if numbered := NUMBERED.fullmatch(part):
            yield (*parts[:k], numbered[1]), tuple(parts[: k + 1])


def _by_numbers(layer: str) -> Iterator[Key]:
    numbers = [number for part in re.split(r"[./_]", layer) if (number := part.lstrip(ascii_letters))]
    for k in range(len(numbers)):
        yield tuple(numbers[:k]), tuple(numbers[: k + 1])


def _read(program: Program, reading: Reading) -> list[range]:
    ops = program.ops[: program.forward]
    spans: dict[Key, range] = {}
    for p, op in enumerate(ops):
        for key in reading(op.layer):
            spans[key] = range(spans[key].start if key in spans else p, p + 1)
    siblings: dict[Hashable, dict[Key, range]] = defaultdict(dict)
    for key, span in spans.items():
        if sum(op.family in PRODUCTS for op in ops[span.start : span.stop]) > 1:
            siblings[key[0]][key] = span
    result: list[range] = []
    for several in sorted(siblings.values(), key=lambda several: -max(map(len, several.values()))):
        free = [span for span in several.values() if all(_apart(span, other) for other in result)]
        if _are_siblings(program, free):
            result += free
    return sorted(result, key=lambda span: span.start)


def _apart(a: range, b: range) -> bool:
    return a.stop <= b.start or b.stop <= a.start


def _are_siblings(program: Program, spans: list[range]) -> bool:
    """Whether these are blocks of one kind: they lie apart, and two of them are alike."""
    if not all(_apart(a, b) for a, b in combinations(spans, 2)):
        return False
    products = [
        Counter((op.kind, op.writes[0].nbytes) for op in program.ops[s.start : s.stop] if op.family in PRODUCTS)
        for s in spans
    ]
    return any((a & b).total() >= ALIKE * (a | b).total() for a, b in combinations(products, 2))
