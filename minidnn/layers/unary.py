"""Functions of single elements without parameters: Sigmoid, TanH, ELU, AbsVal, Power, Exp, Log, BNLL, Clip, Threshold,
Swish, Mish, GELU, Erf, HardSigmoid and HardSwish."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minidnn.layers.base import Layer, Shape, Site
from minidnn.program import Op

# By function: what its backward reads apart from dy, and the slope by which it multiplies dy. It reads y where that
# suffices: then y may take the bytes of x, and the next layer mostly keeps y anyway. Backends know these names.
READS = {
    "sigmoid": "y",  # y (1 - y)
    "tanh": "y",  # 1 - y^2
    "elu": "y",  # 1 where y > 0, else y + alpha
    "elu_falling": "x",  # the same for a negative alpha, where y does not tell the sign of x
    "exp": "y",  # y times the factor in the exponent
    "bnll": "y",  # 1 / (1 + e^-x), which is 1 - e^-y
    "linear": "",  # the scale
    "abs": "x",  # the sign of x
    "square": "x",
    "power": "x",
    "log": "x",
    "clip": "x",  # 1 where x is within the bounds, as in Caffe; y is the same at a bound and beyond it
    "swish": "x",
    "mish": "x",
    "gelu": "x",
    "gelu_tanh": "x",
    "erf": "x",
    "hard_sigmoid": "x",  # alpha strictly between the bounds; y is the same at a bound and beyond it
    "hard_swish": "x",
}


@dataclass(frozen=True)
class UnaryAttrs:
    function: str  # a key of READS, or "threshold"
    numbers: tuple[float, ...] = ()  # the function's own, at most three; backends define their meaning


class Unary(Layer):
    """y = f(x), element by element."""

    in_place = True

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        return [bottoms[0]]

    def attrs(self) -> UnaryAttrs:
        """The function, as the layer's fields say."""
        raise NotImplementedError

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,) = s.x, s.y
        yield s.op("unary.forward", [x], [y], self.attrs(), inplace=[(x, y)], flops=x.size)

    def backward(self, s: Site) -> Iterable[Op]:
        (dy,), (dx,), attrs = s.arriving, s.bottom_gradients, self.attrs()
        saved = {"x": s.x, "y": s.y, "": []}[READS[attrs.function]]
        yield s.op("unary.backward", [*saved, dy], [dx], attrs, inplace=[(dy, dx)], flops=dx.size)


class Sigmoid(Unary):
    """y = 1 / (1 + e^-x)"""

    type = "Sigmoid"
    field_name = "sigmoid_param"

    def attrs(self) -> UnaryAttrs:
        return UnaryAttrs("sigmoid")


class TanH(Unary):
    """y = tanh(x)"""

    type = "TanH"
    field_name = "tanh_param"
    keeps_sign = True

    def attrs(self) -> UnaryAttrs:
        return UnaryAttrs("tanh")


class ELU(Unary):
    """y = x where x > 0, else alpha (e^x - 1)"""

    type = "ELU"
    field_name = "elu_param"

    def attrs(self) -> UnaryAttrs:
        alpha = self.param.alpha
        return UnaryAttrs("elu" if alpha >= 0 else "elu_falling", (alpha,))


class AbsVal(Unary):
    """y = |x|. The gradient at 0 is 0."""

    type = "AbsVal"

    def attrs(self) -> UnaryAttrs:
        return UnaryAttrs("abs")


class Power(Unary):
    """y = (shift + scale x)^power. If y is linear in x, or constant, backward reads only dy."""

    type = "Power"
    field_name = "power_param"

    def attrs(self) -> UnaryAttrs:
        scale, shift, power = self.param.scale, self.param.shift, self.param.power
        if power == 0:
            return UnaryAttrs("linear", (0.0, 1.0))
        if power == 1:
            return UnaryAttrs("linear", (scale, shift))
        if power == 2:
            return UnaryAttrs("square", (scale, shift))
        return UnaryAttrs("power", (scale, shift, power))


class Exp(Unary):
    """y = base^(shift + scale x); a base of -1 stands for e"""

    type = "Exp"
    field_name = "exp_param"

    def attrs(self) -> UnaryAttrs:
        log = logarithm(self.param.base)
        return UnaryAttrs("exp", (self.param.scale * log, self.param.shift * log))


class Log(Unary):
    """y = log(shift + scale x) to the base; a base of -1 stands for e"""

    type = "Log"
    field_name = "log_param"

    def attrs(self) -> UnaryAttrs:
        return UnaryAttrs("log", (self.param.scale, self.param.shift, 1 / logarithm(self.param.base)))


class BNLL(Unary):
    """y = log(1 + e^x)"""

    type = "BNLL"

    def attrs(self) -> UnaryAttrs:
        return UnaryAttrs("bnll")


class Clip(Unary):
    """y = x, clipped to the range from min to max"""

    type = "Clip"
    field_name = "clip_param"

    def attrs(self) -> UnaryAttrs:
        return UnaryAttrs("clip", (self.param.min, self.param.max))


class Threshold(Unary):
    """y = 1 where x > threshold, else 0. No gradient flows through it. (Caffe aborts a run that requests one.)"""

    type = "Threshold"
    field_name = "threshold_param"
    still = (0,)

    def attrs(self) -> UnaryAttrs:
        return UnaryAttrs("threshold", (self.param.threshold,))


class Swish(Unary):
    """y = x / (1 + e^(-beta x))"""

    type = "Swish"
    field_name = "swish_param"

    def attrs(self) -> UnaryAttrs:
        return UnaryAttrs("swish", (self.param.beta,))


class Mish(Unary):
    """y = x tanh(log(1 + e^x))"""

    type = "Mish"

    def attrs(self) -> UnaryAttrs:
        return UnaryAttrs("mish")


class GELU(Unary):
    """y = x times the cumulative normal distribution at x. Ours, not Caffe's (Hendrycks and Gimpel, "Gaussian Error
    Linear Units", arXiv 1606.08415); `approximate: TANH` is the paper's approximation by tanh."""

    type = "GELU"
    field_name = "gelu_param"

    def attrs(self) -> UnaryAttrs:
        return UnaryAttrs("gelu" if self.param.approximate == "NONE" else "gelu_tanh")


class Erf(Unary):
    """y = erf(x), which is 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x. Ours, not Caffe's."""

    type = "Erf"
    keeps_sign = True

    def attrs(self) -> UnaryAttrs:
        return UnaryAttrs("erf")


class HardSigmoid(Unary):
    """y = alpha x + beta, clipped to the range from 0 to 1. Ours, not Caffe's. In PyTorch, alpha is 1/6."""

    type = "HardSigmoid"
    field_name = "hard_sigmoid_param"

    def attrs(self) -> UnaryAttrs:
        return UnaryAttrs("hard_sigmoid", (self.param.alpha, self.param.beta))


class HardSwish(Unary):
    """y = x times HardSigmoid with an alpha of 1/6 and a beta of 1/2. Ours, not Caffe's (Howard et al., "Searching for
    MobileNetV3", arXiv 1905.02244)."""

    type = "HardSwish"

    def attrs(self) -> UnaryAttrs:
        return UnaryAttrs("hard_swish")


def logarithm(base: float) -> float:
    """The natural logarithm of a base; -1 stands for e."""
    return 1.0 if base == -1 else math.log(base)
