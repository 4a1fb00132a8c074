"""LSTM and GRU: with and without breaks, states and gradients, around the ends of vectors and panels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from minidnn.backends.reference.recurrent import KINDS
from minidnn.layers.recurrent import GATES, RecurrentAttrs
from tests.support.op_examples.maker import Example, Maker

KEPT = {"LSTM": "cells", "GRU": "hidden"}
STATES = {"LSTM": "hc", "GRU": "h"}
SIZES = [  # steps, sequences, width; what there is beside x
    (1, 1, 1, ""),
    (1, 2, 5, "cont states"),
    (3, 2, 4, "cont"),
    (5, 3, 17, "states"),
    (4, 7, 33, "cont states"),
    (3, 5, 130, "cont states"),
    (9, 16, 64, ""),
]


def recurrents(m: Maker) -> Iterator[Example]:
    for cell in GATES:
        for steps, batch, width, more in SIZES:
            yield from _passes(m, cell, (steps, batch, width), more)


def _passes(m: Maker, cell: str, shape: tuple[int, int, int], more: str) -> Iterator[Example]:
    steps, batch, width = shape
    wide, state = (steps, batch, GATES[cell] * width), (1, batch, width)
    t = {"z": m.normal(*wide), "w": m.normal(wide[2], width) / width**0.5}
    t |= {"b": m.normal(wide[2])} if cell == "GRU" else {}
    t |= {"cont": np.round(m.random.uniform(0.2, 1, shape[:2])).astype(np.float32)} if "cont" in more else {}
    first = {f"{s}_0": m.normal(*state) for s in STATES[cell]} if "states" in more else {}
    last = {name.replace("0", "T"): state for name in first}
    parts = {"w": t["w"]} | {k: v for k, v in t.items() if k == "cont"}
    yield _example(m, cell, "forward", t | first, {"y": shape} | last, f"{more} alone")
    writes = {"y": shape, **last, "gates": wide, KEPT[cell]: shape}
    yield (e := _example(m, cell, "forward", t | first, writes, more, [("z", "gates")]))
    found = _done(e)
    kept = {name: found[name] for name in ("gates", KEPT[cell])}
    reads = kept | parts | {"dy": m.normal(*shape)} | {f"d{name}": m.normal(*s) for name, s in last.items()}
    reads |= {"y": found["y"], **first} if cell == "GRU" else {k: v for k, v in first.items() if k == "c_0"}
    outs = {"dz": wide} | ({"dhidden": wide} if cell == "GRU" else {})
    states = {f"d{name}": state for name in first}
    yield _example(m, cell, "backward", reads, outs | states, more, [("gates", "dz")])
    if last:  # the gradient of the last state alone, and none of the first one
        few = {k: v for k, v in reads.items() if k not in ("dy", "dc_T")}
        yield _example(m, cell, "backward", few, outs, f"{more} few", [("gates", "dz")])
    of = {"y": found["y"]} | {k: v for k, v in (t | first).items() if k in ("cont", "h_0")}
    yield _example(m, cell, "previous", of, {"before": shape}, more)


def _example(m, cell, verb, reads, writes, note, inplace=()) -> Example:
    a = RecurrentAttrs(cell, tuple(reads), tuple(writes))
    pairs = [(a.reads.index(r), a.writes.index(w)) for r, w in inplace]
    return m.example(f"recurrent.{verb}", list(reads.values()), list(writes.values()), a, pairs, note=f"{cell} {note}")


def _done(e: Example) -> dict[str, np.ndarray]:
    """The example's results by the reference, by name."""
    writes = [np.empty(t.shape, np.float32) for t in e.op.writes]
    KINDS[e.op.kind](e.op.attrs, list(e.data.values()), writes)
    return dict(zip(e.op.attrs.writes, writes, strict=True))
