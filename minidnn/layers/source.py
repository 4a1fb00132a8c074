"""Layers without bottoms: what a step is given. They lower to nothing; their tops are the program's inputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from minidnn.layers.base import Layer, SampleShape, Shape, ShapeError, Site
from minidnn.program import Op


class Input(Layer):
    """Caffe's Input: shapes as written in the file, one for all tops or one each."""

    type = "Input"
    field_name = "input_param"
    bottoms = (0, 0)
    tops = (1, None)
    may_hold_labels = True

    @classmethod
    def with_batch(cls, spec, batch):
        shapes = tuple(s.model_copy(update={"dim": (batch, *s.dim[1:])}) for s in spec.input_param.shape)
        return spec.model_copy(update={"input_param": spec.input_param.model_copy(update={"shape": shapes})})

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        given, tops = self.param.shape, len(self.spec.top)
        if len(given) not in (1, tops):
            raise ShapeError(f"expected one input_param.shape, or {tops} for {tops} tops; got {len(given)}")
        return [tuple(given[i if len(given) > 1 else 0].dim) for i in range(tops)]

    def forward(self, s: Site) -> Iterable[Op]:
        return ()

    def backward(self, s: Site) -> Iterable[Op]:
        return ()


class Data(Layer):
    """Caffe's Data: a batch of samples and, if there is a second top, their labels."""

    type = "Data"
    field_name = "data_param"
    also = ("transform_param",)
    bottoms = (0, 0)
    tops = (1, 2)
    batch_field = "batch_size"

    sample: Shape  # one sample after its transformation

    @classmethod
    def with_batch(cls, spec, batch):
        return spec.model_copy(update={"data_param": spec.data_param.model_copy(update={"batch_size": batch})})

    @property
    def source(self) -> tuple[Any, Any]:
        return self.param, self.spec.transform_param

    def ask(self, sample_shape: SampleShape) -> None:
        self.sample = sample_shape(*self.source, self.phase)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        n = self.param.batch_size
        return [(n, *self.sample), (n,)][: len(self.spec.top)]

    def dtypes(self, bottoms: Sequence[str]) -> list[str]:
        return ["float32", "int32"][: len(self.spec.top)]

    def forward(self, s: Site) -> Iterable[Op]:
        return ()

    def backward(self, s: Site) -> Iterable[Op]:
        return ()
