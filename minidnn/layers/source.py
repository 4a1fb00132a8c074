"""Layers without bottoms, Input and Data: they have no ops, and their tops are the inputs of the program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from minidnn.layers.base import Layer, SampleShape, Shape, ShapeError, Site
from minidnn.program import Op


class Input(Layer):
    """Caffe's Input: the file gives the shapes of the tops, one for all of them or one for each."""

    type = "Input"
    field_name = "input_param"
    bottoms = (0, 0)
    tops = (1, None)
    may_hold_labels = True

    @classmethod
    def with_batch(cls, spec, batch):
        shapes = tuple(s.model_copy(update={"dim": (batch, *s.dim[1:])}) for s in spec.input_param.shape)
        return spec.model_copy(update={"input_param": spec.input_param.model_copy(update={"shape": shapes})})

    @classmethod
    def with_images(cls, spec, side, sample_shape):
        given = spec.input_param.shape
        if all(len(s.dim) != 4 for s in given):
            return spec
        shapes = tuple(s.model_copy(update={"dim": (*s.dim[:2], side, side)}) if len(s.dim) == 4 else s for s in given)
        return spec.model_copy(update={"input_param": spec.input_param.model_copy(update={"shape": shapes})})

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        given, tops = self.param.shape, len(self.spec.top)
        if len(given) not in (1, tops):
            raise ShapeError(f"expected one input_param.shape, or {tops} for {tops} tops; got {len(given)}")
        if not all(shape.dim for shape in given):
            raise ShapeError("expected an input_param.shape whose first dim is the batch, got one without a dim")
        return [tuple(given[i if len(given) > 1 else 0].dim) for i in range(tops)]

    def forward(self, s: Site) -> Iterable[Op]:
        return ()

    def backward(self, s: Site) -> Iterable[Op]:
        return ()


class Data(Layer):
    """Caffe's Data: the first top is a batch of samples, the optional second top (N,) int32 their labels."""

    type = "Data"
    field_name = "data_param"
    also = ("transform_param",)
    bottoms = (0, 0)
    tops = (1, 2)
    batch_field = "batch_size"

    sample: Shape  # of one transformed sample; `ask` sets it

    @classmethod
    def with_batch(cls, spec, batch):
        return spec.model_copy(update={"data_param": spec.data_param.model_copy(update={"batch_size": batch})})

    @classmethod
    def with_images(cls, spec, side, sample_shape):
        """Another size needs another source, so the images are made up."""
        shape = sample_shape(spec.data_param, spec.transform_param, "TRAIN")
        if len(shape) != 3:
            return spec
        data = spec.data_param.model_copy(update={"source": f"synthetic:{shape[0]}x{side}x{side}"})
        whole = spec.transform_param.model_copy(update={"crop_size": 0})
        return spec.model_copy(update={"data_param": data, "transform_param": whole})

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
