"""LSTM and GRU, step by step. RecurrentAttrs (layers/recurrent.py) says what the tensors are."""

from __future__ import annotations

import numpy as np

from minidnn.backends.reference.activation import logistic
from minidnn.backends.reference.products import laid_out, products


def cont_of(t, step):
    """The factors of the state before the step, (N, 1)."""
    return t["cont"][step][:, None] if "cont" in t else 1


def before(t, values, first, step):
    """The state before the step: values of the step before, or the first one; None: it is zero."""
    return values[step - 1] if step else t[first][0] if first in t else None


def by_hidden(w, h, turned=False):
    """h w', or h w if `turned`: (N, gates * D), or (N, D)."""
    return products(h[None], w, transpose_right=not turned)[0]


def hidden_part(t, w, h, step):
    """w (cont h), (N, gates * D)."""
    return cont_of(t, step) * by_hidden(w, h) if h is not None else 0


def apart(gates, count):
    """Views of the numbers of each gate."""
    return np.split(gates, count, axis=-1)


def lstm(t):
    """z w (cont h_0 c_0) -> y (gates cells h_T c_T)."""
    w, c = laid_out(t["w"][None]), before(t, None, "c_0", 0)
    for step, z in enumerate(t["z"]):
        h = before(t, t["y"], "h_0", step)
        i, f, o, g = apart(z + hidden_part(t, w, h, step), 4)
        i, f, o, g = logistic(i), logistic(f), logistic(o), np.tanh(g)
        c = i * g + (cont_of(t, step) * f * c if c is not None else 0)
        if "gates" in t:
            t["gates"][step] = np.concatenate([i, f, o, g], axis=-1)
            t["cells"][step] = c
        t["y"][step] = o * np.tanh(c)
    if "h_T" in t:
        t["h_T"][0], t["c_T"][0] = t["y"][-1], c


def lstm_backward(t):
    """gates cells w (cont c_0 dy dh_T dc_T) -> dz (dh_0 dc_0)."""
    w = laid_out(t["w"][None])
    dh, dc = (t[name][0] if name in t else 0 for name in ("dh_T", "dc_T"))
    for step in reversed(range(len(t["gates"]))):
        i, f, o, g = apart(t["gates"][step].copy(), 4)
        c, tanh, cont = before(t, t["cells"], "c_0", step), np.tanh(t["cells"][step]), cont_of(t, step)
        dh = dh + (t["dy"][step] if "dy" in t else 0)
        dc = dc + dh * o * (1 - tanh * tanh)
        df = dc * cont * c * f * (1 - f) if c is not None else np.zeros_like(f)
        dz = [dc * g * i * (1 - i), df, dh * tanh * o * (1 - o), dc * i * (1 - g * g)]
        t["dz"][step] = np.concatenate(dz, axis=-1)
        dh, dc = cont * by_hidden(w, t["dz"][step], turned=True), cont * dc * f
    for name, value in (("dh_0", dh), ("dc_0", dc)):
        if name in t:
            t[name][0] = value


def gru(t):
    """z w b (cont h_0) -> y (gates hidden h_T)."""
    w = laid_out(t["w"][None])
    for step, z in enumerate(t["z"]):
        h = before(t, t["y"], "h_0", step)
        of_x, of_h = apart(z, 3), apart(hidden_part(t, w, h, step) + t["b"] + np.zeros_like(z), 3)
        u, r = logistic(of_x[0] + of_h[0]), logistic(of_x[1] + of_h[1])
        n = np.tanh(of_x[2] + r * of_h[2])
        t["y"][step] = (1 - u) * n + (u * cont_of(t, step) * h if h is not None else 0)
        if "gates" in t:
            t["gates"][step] = np.concatenate([u, r, n], axis=-1)
            t["hidden"][step] = of_h[2]
    if "h_T" in t:
        t["h_T"][0] = t["y"][-1]


def gru_backward(t):
    """gates hidden w y (cont h_0 dy dh_T) -> dz dhidden (dh_0)."""
    w, dh = laid_out(t["w"][None]), t["dh_T"][0] if "dh_T" in t else 0
    for step in reversed(range(len(t["gates"]))):
        u, r, n = apart(t["gates"][step].copy(), 3)
        h, cont = before(t, t["y"], "h_0", step), cont_of(t, step)
        dh = dh + (t["dy"][step] if "dy" in t else 0)
        dn = dh * (1 - u) * (1 - n * n)
        du = dh * ((cont * h if h is not None else 0) - n) * u * (1 - u)
        dr = dn * t["hidden"][step] * r * (1 - r)
        t["dz"][step] = np.concatenate([du, dr, dn], axis=-1)
        t["dhidden"][step] = np.concatenate([du, dr, dn * r], axis=-1)
        dh = cont * (dh * u + by_hidden(w, t["dhidden"][step], turned=True))
    if "dh_0" in t:
        t["dh_0"][0] = dh


def forward(a, reads, writes):
    {"LSTM": lstm, "GRU": gru}[a.cell](a.named(reads, writes))


def backward(a, reads, writes):
    {"LSTM": lstm_backward, "GRU": gru_backward}[a.cell](a.named(reads, writes))


def previous(a, reads, writes):
    """y (cont h_0) -> before: cont h of the step before, (T, N, D)."""
    t = a.named(reads, writes)
    for step, to in enumerate(t["before"]):
        h = before(t, t["y"], "h_0", step)
        to[...] = cont_of(t, step) * h if h is not None else 0


KINDS = {"recurrent.forward": forward, "recurrent.backward": backward, "recurrent.previous": previous}
