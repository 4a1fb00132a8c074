"""Scale: y = gamma x + beta per channel; BatchNorm's affine half."""

from __future__ import annotations

from minidnn.layers.base import Layer, Parameter, ShapeError, parametric_backward


class Scale(Layer):
    """Caffe's Scale with learned factors along axis 1."""

    type = "Scale"
    field_name = "scale_param"
    in_place = True

    def shapes(self, bottoms):
        if len(bottoms[0]) < 2:
            raise ShapeError(f"Scale takes a bottom of two axes or more, got {bottoms[0]}")
        return [bottoms[0]]

    def parameters(self, bottoms):
        c = (bottoms[0][1],)
        blobs = [Parameter("gamma", c, self.param.filler, *self.mults(0))]
        if self.param.bias_term:
            blobs.append(Parameter("beta", c, self.param.bias_filler, *self.mults(1)))
        return blobs

    def forward(self, s):
        (x,), (y,) = s.x, s.y
        yield s.op("scale.forward", [x, *s.p.values()], [y], inplace=[(x, y)], flops=2 * x.size)

    def backward(self, s):
        return parametric_backward(s, "scale", None, 2 * s.x[0].size, inplace=True)
