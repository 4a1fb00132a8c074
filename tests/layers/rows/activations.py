"""Rows of functions of single elements: those of layers/unary.py, and PReLU."""

from __future__ import annotations

import numpy as np

from tests.layers.bench import IMAGE, Row
from tests.layers.rows.spine import any_shape
from tests.support.peers import F, torch


def unary(text, torch_function, reads="x0", shape=IMAGE, **more):
    """A row of a layer whose backward reads `reads` apart from dy; None: it has none."""
    backward = [] if reads is None else [f"unary.backward: {' '.join([*reads.split(), 'dy0'])} -> dx0"]
    ops = ["unary.forward: x0 -> y0", *backward]
    return Row(f"{text}, bottom: a, top: a", [shape], [shape], ops, lambda x, p: torch_function(x), **more)


def positive(values):
    return {name: np.abs(x) + 0.1 for name, x in values.items() if name == "x0"}


def with_slope(shape):
    def theirs(x, p):
        return F.prelu(x, p["slope"])

    return Row(
        f"type: PReLU, bottom: a, top: a, prelu_param: {{channel_shared: {str(shape is None).lower()}}}",
        [IMAGE], [IMAGE],
        [
            "prelu.forward: x0 slope -> y0",
            "prelu.backward_filter: x0 dy0 -> dslope",
            "prelu.backward_data: x0 slope dy0 -> dx0",
        ],
        theirs, blobs=[shape or (1,)],
    )  # fmt: skip


def threshold(x):
    return (x > 0.25).double()


ROWS = {
    "sigmoid": unary("type: Sigmoid", lambda x: torch.sigmoid(x), "y0"),
    "tanh": unary("type: TanH", lambda x: torch.tanh(x), "y0"),
    "elu": unary("type: ELU, elu_param: {alpha: 0.7}", lambda x: F.elu(x, 0.7), "y0"),
    "elu, whose y does not tell the sign of x": unary(
        "type: ELU, elu_param: {alpha: -0.7}", lambda x: torch.where(x > 0, x, -0.7 * torch.expm1(x)), shape=(2, 9)
    ),
    "absolute value": unary("type: AbsVal", lambda x: torch.abs(x)),
    "power": unary(
        "type: Power, power_param: {power: 1.5, scale: 0.5, shift: 0.2}", lambda x: (0.5 * x + 0.2) ** 1.5,
        values=positive,
    ),
    "power, whole, of negative numbers": unary(
        "type: Power, power_param: {power: -3, shift: -5}", lambda x: (x - 5) ** -3.0, values=positive
    ),
    "power, squared": unary("type: Power, power_param: {power: 2, scale: 3}", lambda x: (3 * x) ** 2, shape=(2, 9)),
    "power, linear": unary("type: Power, power_param: {scale: -2, shift: 1}", lambda x: 1 - 2 * x, ""),
    "power, constant": unary("type: Power, power_param: {power: 0, scale: 2}", lambda x: 0 * x + 1, ""),
    "exponential": unary("type: Exp", lambda x: torch.exp(x), "y0"),
    "exponential, scaled": unary(
        "type: Exp, exp_param: {base: 2.5, scale: -0.4, shift: 0.3}", lambda x: 2.5 ** (0.3 - 0.4 * x), "y0"
    ),
    "logarithm": unary("type: Log", lambda x: torch.log(x), values=positive),
    "logarithm, scaled": unary(
        "type: Log, log_param: {base: 10, scale: 2, shift: 1}", lambda x: torch.log10(2 * x + 1), values=positive
    ),
    "bnll": unary("type: BNLL", lambda x: F.softplus(x, threshold=1000), "y0"),
    "clip": unary("type: Clip, clip_param: {min: -0.5, max: 0.8}", lambda x: torch.clamp(x, -0.5, 0.8)),
    "threshold": unary("type: Threshold, threshold_param: {threshold: 0.25}", threshold, None, still=(0,)),
    "swish": unary("type: Swish, swish_param: {beta: 1.7}", lambda x: x * torch.sigmoid(1.7 * x)),
    "mish": unary("type: Mish", lambda x: F.mish(x)),
    "gelu": unary("type: GELU", lambda x: F.gelu(x)),
    "gelu by tanh": unary("type: GELU, gelu_param: {approximate: TANH}", lambda x: F.gelu(x, approximate="tanh")),
    "erf": unary("type: Erf", lambda x: torch.erf(x)),
    "hard sigmoid": unary(
        "type: HardSigmoid, hard_sigmoid_param: {alpha: 0.3, beta: 0.4}", lambda x: torch.clamp(0.3 * x + 0.4, 0, 1)
    ),
    "hard swish": unary("type: HardSwish", lambda x: F.hardswish(x)),
    "prelu": with_slope((4,)),
    "prelu, one slope for all": with_slope(None),
}  # fmt: skip


# ---- any geometry, any numbers


def number(random, least, most):
    return round(float(random.uniform(least, most)), 3)


def any_row(random, text, torch_function, **more):
    return Row(f"{text}, bottom: a, top: b", [any_shape(random)], torch=lambda x, p: torch_function(x), **more)


def plain(kind, name):
    return lambda random: any_row(random, f"type: {kind}", lambda x: getattr(torch, name)(x))


def elu(random):
    alpha = number(random, -1, 2)
    return any_row(random, f"type: ELU, elu_param: {{alpha: {alpha}}}",
                   lambda x: torch.where(x > 0, x, alpha * torch.expm1(x)))  # fmt: skip


def power(random):
    power, scale, shift = random.choice([0, 1, 2, 3, -1, 0.5, -1.5]), number(random, 0.1, 2), number(random, 0, 1)
    return any_row(random, f"type: Power, power_param: {{power: {power}, scale: {scale}, shift: {shift}}}",
                   lambda x: (scale * x + shift) ** float(power), values=positive)  # fmt: skip


def exp(random):
    base, scale, shift = random.choice([-1, 0.3, 2, 10]), number(random, -1, 1), number(random, -1, 1)
    return any_row(random, f"type: Exp, exp_param: {{base: {base}, scale: {scale}, shift: {shift}}}",
                   lambda x: (np.e if base == -1 else float(base)) ** (scale * x + shift))  # fmt: skip


def log(random):
    base, scale, shift = random.choice([-1, 0.3, 2, 10]), number(random, 0.1, 2), number(random, 0, 1)
    return any_row(random, f"type: Log, log_param: {{base: {base}, scale: {scale}, shift: {shift}}}",
                   lambda x: torch.log(scale * x + shift) / (1 if base == -1 else np.log(base)),
                   values=positive)  # fmt: skip


def clip(random):
    least, most = sorted((number(random, -1, 1), number(random, -1, 1)))
    return any_row(random, f"type: Clip, clip_param: {{min: {least}, max: {most}}}",
                   lambda x: torch.clamp(x, least, most))  # fmt: skip


def thresholded(random):
    bound = number(random, -1, 1)
    return any_row(random, f"type: Threshold, threshold_param: {{threshold: {bound}}}",
                   lambda x: (x > bound).double(), still=(0,))  # fmt: skip


def swish(random):
    beta = number(random, -1, 2)
    return any_row(random, f"type: Swish, swish_param: {{beta: {beta}}}", lambda x: x * torch.sigmoid(beta * x))


def gelu(random):
    way = random.choice(["none", "tanh"])
    return any_row(random, f"type: GELU, gelu_param: {{approximate: {way.upper()}}}",
                   lambda x: F.gelu(x, approximate=way))  # fmt: skip


def hard_sigmoid(random):
    alpha, beta = number(random, -1, 2), number(random, -1, 1)
    return any_row(random, f"type: HardSigmoid, hard_sigmoid_param: {{alpha: {alpha}, beta: {beta}}}",
                   lambda x: torch.clamp(alpha * x + beta, 0, 1))  # fmt: skip


def prelu(random):
    shared = bool(random.integers(2))
    text = f"type: PReLU, bottom: a, top: b, prelu_param: {{channel_shared: {str(shared).lower()}}}"
    return Row(text, [any_shape(random)], torch=lambda x, p: F.prelu(x, p["slope"]))


RANDOM = {
    "Sigmoid": plain("Sigmoid", "sigmoid"),
    "TanH": plain("TanH", "tanh"),
    "ELU": elu,
    "PReLU": prelu,
    "AbsVal": plain("AbsVal", "abs"),
    "Power": power,
    "Exp": exp,
    "Log": log,
    "BNLL": lambda random: any_row(random, "type: BNLL", lambda x: F.softplus(x, threshold=1000)),
    "Clip": clip,
    "Threshold": thresholded,
    "Swish": swish,
    "Mish": lambda random: any_row(random, "type: Mish", F.mish),
    "GELU": gelu,
    "Erf": plain("Erf", "erf"),
    "HardSigmoid": hard_sigmoid,
    "HardSwish": lambda random: any_row(random, "type: HardSwish", F.hardswish),
}
