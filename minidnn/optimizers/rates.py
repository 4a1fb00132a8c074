"""Learning rates: a function of (solver parameters, iteration) for each of Caffe's `lr_policy` names, and for "cosine".
That begins where the warm-up ends, and falls to 0 at max_iter."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping

import numpy as np

from minidnn.errors import InvalidInput
from minidnn.schema import SolverParameter

RATES: Mapping[str, Callable[[SolverParameter, int], float]] = {
    "fixed": lambda p, i: p.base_lr,
    "step": lambda p, i: p.base_lr * p.gamma ** (i // p.stepsize),
    "multistep": lambda p, i: p.base_lr * p.gamma ** bisect_right(p.stepvalue, i),
    "exp": lambda p, i: p.base_lr * p.gamma**i,
    "inv": lambda p, i: p.base_lr * (1 + p.gamma * i) ** -p.power,
    "poly": lambda p, i: p.base_lr * (1 - i / p.max_iter) ** p.power,
    "cosine": lambda p, i: p.base_lr * _half_cosine(i - p.rampup_interval, p.max_iter - p.rampup_interval),
    "sigmoid": lambda p, i: _sigmoid(p.base_lr, p.gamma * (i - p.stepsize)),
}
_LARGEST = float(np.finfo(np.float32).max)


def _half_cosine(i: int, n: int) -> float:
    """From 1 to 0 in n steps (Loshchilov and Hutter, "SGDR", ICLR 2017, without restarts); after them 0."""
    return (1 + math.cos(math.pi * min(i / n, 1.0))) / 2


def _sigmoid(rate: float, x: float) -> float:
    return rate / (1 + math.exp(-x)) if x > -700 else 0.0  # below, e^-x overflows; Caffe's infinity gives 0, too


def learning_rate(p: SolverParameter, iteration: int) -> float:
    """The learning rate of one iteration, before any lr_mult. In the first `rampup_interval` iterations it rises
    linearly, as in NVIDIA's Caffe; after them the policy gives it.

    Raises InvalidInput if the policy gives no rate that is a finite float32 number.
    """
    try:
        if iteration < p.rampup_interval:
            rate = p.rampup_lr + (p.base_lr - p.rampup_lr) * iteration / p.rampup_interval
        else:
            rate = RATES[p.lr_policy](p, iteration)
    except ArithmeticError:  # an overflow, or a division by zero
        rate = math.nan
    if isinstance(rate, complex) or not abs(rate) <= _LARGEST:
        given = ", ".join(f"{name} {getattr(p, name)}" for name in ("base_lr", "gamma", "power") if p.has(name))
        what = f"at iteration {iteration} {p.lr_policy} with {given} gives a rate that is not a float32 number"
        raise InvalidInput(f"{what}; smaller ones are needed, or fewer iterations")
    return rate
