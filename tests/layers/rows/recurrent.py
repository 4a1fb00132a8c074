"""LSTM and GRU, beside torch.nn's, and beside steps in PyTorch where there is more than it has."""

from __future__ import annotations

import numpy as np

from tests.layers.bench import Row
from tests.layers.rows.algebra import text_of, yes
from tests.layers.rows.spine import sizes
from tests.support.peers import F, torch

OPS = [
    "inner_product.forward: x0 w b -> z",
    "recurrent.forward: z w_hidden -> y0 gates cells",
    "recurrent.backward: gates cells w_hidden dy0 -> dz",
    "recurrent.previous: y0 -> h_before",
    "inner_product.backward_filter: h_before dz -> dw_hidden",
    "inner_product.backward_filter: x0 dz -> dw",
    "inner_product.backward_bias: dz -> db",
    "inner_product.backward_data: w dz -> dx0",
]
ALL_OF_LSTM = [
    "flatten.forward: x0 -> x.rows",
    "inner_product.forward: x.rows w b -> z",
    "inner_product.forward: x2 w_static -> z_static",
    "broadcast.add: z z_static -> z_all",
    "recurrent.forward: z_all w_hidden x3 x4 x1 -> y0 y1 y2 gates cells",
    "recurrent.backward: gates cells w_hidden x1 dy0 dy1 dy2 x4 -> dz dx3 dx4",
    "recurrent.previous: y0 x1 x3 -> h_before",
    "inner_product.backward_filter: h_before dz -> dw_hidden",
    "inner_product.backward_filter: x.rows dz -> dw",
    "inner_product.backward_bias: dz -> db",
    "broadcast.sum: dz -> dz_static",
    "inner_product.backward_filter: x2 dz_static -> dw_static",
    "inner_product.backward_data: w_static dz_static -> dx2",
    "inner_product.backward_data: w dz -> dx.rows",
    "flatten.backward: dx.rows -> dx0",
]
GRU = [
    "inner_product.forward: x0 w b -> z",
    "recurrent.forward: z w_hidden b_hidden x2 x1 -> y0 y1 gates hidden",
    "recurrent.backward: gates hidden w_hidden x1 dy0 dy1 y0 x2 -> dz dhidden dx2",
    "recurrent.previous: y0 x1 x2 -> h_before",
    "inner_product.backward_filter: h_before dhidden -> dw_hidden",
    "inner_product.backward_bias: dhidden -> db_hidden",
    "inner_product.backward_filter: x0 dz -> dw",
    "inner_product.backward_bias: dz -> db",
    "inner_product.backward_data: w dz -> dx0",
]


def begins(values):
    """cont is 0 where a sequence begins, and 1 where it goes on."""
    return {"x1": np.round(np.random.default_rng(values["x1"].size).uniform(0.2, 1, values["x1"].shape))}


def lstm(x, p, cont=None, static=None, h=None, c=None, exposed=False):
    """Step by step, with the gates in PyTorch's order i, f, g, o."""
    of = {n: torch.cat([v.chunk(4)[k] for k in (0, 1, 3, 2)]) for n, v in p.items()}
    d = p["w_hidden"].shape[1]
    h, c = (x.new_zeros(x.shape[1], d) if s is None else s[0] for s in (h, c))
    more = 0 if static is None else F.linear(static.flatten(1), of["w_static"])
    tops = []
    for t, step in enumerate(x.reshape(*x.shape[:2], -1)):
        factor = 1 if cont is None else cont[t][:, None]
        gates = F.linear(step, of["w"], of["b"]) + more + F.linear(factor * h, of["w_hidden"])
        i, f, g, o = gates.chunk(4, 1)
        c = factor * c * f.sigmoid() + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        tops.append(h)
    return (torch.stack(tops), h[None], c[None]) if exposed else torch.stack(tops)


def gru(x, p, cont=None, static=None, h=None, exposed=False):
    h = x.new_zeros(x.shape[1], p["w_hidden"].shape[1]) if h is None else h[0]
    more = 0 if static is None else F.linear(static.flatten(1), p["w_static"])
    tops = []
    for t, step in enumerate(x.reshape(*x.shape[:2], -1)):
        h = h if cont is None else cont[t][:, None] * h
        a, b = F.linear(step, p["w"], p["b"]) + more, F.linear(h, p["w_hidden"], p["b_hidden"])
        (az, ar, an), (bz, br, bn) = a.chunk(3, 1), b.chunk(3, 1)
        r, z = (ar + br).sigmoid(), (az + bz).sigmoid()
        h = (1 - z) * (an + r * bn).tanh() + z * h
        tops.append(h)
    return (torch.stack(tops), h[None]) if exposed else torch.stack(tops)


def of_torch(module, order):
    """torch.nn's layer with these parameters, in whose order our gates are."""

    def theirs(x, p):
        count, d = len(order), p["w_hidden"].shape[1]
        of = {n: torch.cat([v.chunk(count)[k] for k in order]) for n, v in p.items()}
        net = getattr(torch.nn, module)(x[0][0].numel(), d, dtype=x.dtype)
        given = {
            "weight_ih_l0": of["w"], "bias_ih_l0": of["b"], "weight_hh_l0": of["w_hidden"],
            "bias_hh_l0": of.get("b_hidden", torch.zeros_like(of["b"])),
        }  # fmt: skip
        return torch.func.functional_call(net, given, (x.flatten(2),))[0]

    return theirs


ROWS = {
    "lstm": Row(
        "type: LSTM, bottom: a, top: b, recurrent_param: {num_output: 3}", [(4, 2, 5)], [(4, 2, 3)], OPS,
        of_torch("LSTM", (0, 1, 3, 2)), blobs=[(12, 5), (12,), (12, 3)], flops=2 * 4 * 2 * 5 * 12,
    ),
    "lstm with two biases": Row(
        "type: LSTM, bottom: a, top: b, recurrent_param: {num_output: 3, hidden_bias: true}", [(4, 2, 5)], [(4, 2, 3)],
        [
            OPS[0], "broadcast.add: z b_hidden -> z_biased", "recurrent.forward: z_biased w_hidden -> y0 gates cells",
            *OPS[2:5], "inner_product.backward_bias: dz -> db_hidden", *OPS[5:],
        ],
        of_torch("LSTM", (0, 1, 3, 2)), blobs=[(12, 5), (12,), (12, 3), (12,)],
    ),
    "lstm with all bottoms and tops": Row(
        "type: LSTM, bottom: [a, b, c, d, e], top: [f, g, h], recurrent_param: {num_output: 3, expose_hidden: true}",
        [(5, 4, 2, 3), (5, 4), (4, 7), (1, 4, 3), (1, 4, 3)], [(5, 4, 3), (1, 4, 3), (1, 4, 3)], ALL_OF_LSTM,
        lambda x, cont, s, h, c, p: lstm(x, p, cont, s, h, c, True), still=(1,), values=begins,
        blobs=[(12, 6), (12,), (12, 7), (12, 3)],
    ),
    "gru": Row(
        "type: GRU, bottom: a, top: b, recurrent_param: {num_output: 3}", [(4, 2, 5)], [(4, 2, 3)],
        [
            OPS[0],
            "recurrent.forward: z w_hidden b_hidden -> y0 gates hidden",
            "recurrent.backward: gates hidden w_hidden dy0 y0 -> dz dhidden",
            OPS[3],
            *GRU[4:],
        ],
        of_torch("GRU", (1, 0, 2)), blobs=[(9, 5), (9,), (9, 3), (9,)],
    ),
    "gru with a state": Row(
        "type: GRU, bottom: [a, b, c], top: [d, e], recurrent_param: {num_output: 3, expose_hidden: true}",
        [(5, 4, 2), (5, 4), (1, 4, 3)], [(5, 4, 3), (1, 4, 3)], GRU,
        lambda x, cont, h, p: gru(x, p, cont, None, h, True), still=(1,), values=begins,
    ),
}  # fmt: skip


def any_of(kind, theirs, states):
    def draw(random):
        t, n, d, k = sizes(random, (1, 6), (1, 4), (1, 5), (1, 4))
        exposed, count = yes(random), int(random.integers(1, 4))
        inner = tuple(int(i) for i in random.integers(1, 4, int(random.integers(3))))
        shapes = [(t, n, *inner), (t, n), (n, k)][:count] + [(1, n, d)] * (states * exposed)
        names, tops = "abcdefg"[: len(shapes)], "tuv"[: 1 + states * exposed]
        given = dict(num_output=d, expose_hidden=exposed)
        text = text_of(kind, "recurrent_param", f"[{', '.join(names)}]", **given)

        def run(x, *more):
            *more, p = more
            given = dict(zip((*("cont", "static")[: count - 1], "h", "c"), more, strict=False))
            return theirs(x, p, **given, exposed=exposed)

        cont = {"still": (1,), "values": begins} if count > 1 else {}
        return Row(text.replace("top: z", f"top: [{', '.join(tops)}]"), shapes, torch=run, **cont)

    return draw


RANDOM = {"LSTM": any_of("LSTM", lstm, 2), "GRU": any_of("GRU", gru, 1)}
