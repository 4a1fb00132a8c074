"""Layers without bottoms whose tops are the inputs of the program; they have no ops. A source fills those of Data,
ImageData and HDF5Data, the caller those of Input and MemoryData, and fillers those of DummyData (training/feeds.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from minidnn.layers.base import Layer, Shape, ShapeError, Shapes, Site
from minidnn.program import Op
from minidnn.schema.common import BlobShape
from minidnn.schema.sources import TOKENS, ColumnParameter, DataParameter, TransformationParameter


class _Source(Layer):
    bottoms = (0, 0)
    inputs = True

    def forward(self, s: Site) -> Iterable[Op]:
        return ()

    def backward(self, s: Site) -> Iterable[Op]:
        return ()


class Input(_Source):
    """Caffe's Input: the file gives one shape for all tops, or one for each."""

    type = "Input"
    field_name = "input_param"
    tops = (1, None)

    @classmethod
    def with_shapes(cls, spec: Any, change: Callable[[Shape], Shape]) -> Any:
        """`spec` with each shape changed."""
        param = getattr(spec, cls.field_name or "")
        shapes = tuple(s.model_copy(update={"dim": change(s.dim)}) for s in param.shape)
        return spec.model_copy(update={cls.field_name: param.model_copy(update={"shape": shapes})})

    @classmethod
    def with_batch(cls, spec, batch):
        return cls.with_shapes(spec, lambda shape: (batch, *shape[1:]))

    @classmethod
    def with_images(cls, spec, side, shapes_of):
        if all(len(s.dim) != 4 for s in getattr(spec, cls.field_name).shape):
            return spec
        return cls.with_shapes(spec, lambda shape: (*shape[:2], side, side) if len(shape) == 4 else shape)

    def listed(self) -> tuple[BlobShape, ...]:
        """The shapes in the message, one for all tops or one for each."""
        return self.param.shape

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        given, tops, what = self.listed(), len(self.spec.top), f"{self.field_name}.shape"
        if len(given) not in (1, tops):
            raise ShapeError(f"expected one {what}, or {tops} for {tops} tops; got {len(given)}")
        if not all(shape.dim for shape in given):
            raise ShapeError(f"expected an {what} whose first dim is the batch, got one without a dim")
        return [tuple(given[i if len(given) > 1 else 0].dim) for i in range(tops)]


class DummyData(Input):
    """Caffe's DummyData: each top has a shape and a filler. The values of a constant filler never change. Other fillers
    draw new values for each batch from the seed and the batch's number, so runs are reproducible."""

    type = "DummyData"
    field_name = "dummy_data_param"

    @classmethod
    def with_batch(cls, spec, batch):
        old = len(spec.dummy_data_param.num)
        return _changed(spec, num=(batch,) * old) if old else super().with_batch(spec, batch)

    @classmethod
    def with_images(cls, spec, side, shapes_of):
        old = len(spec.dummy_data_param.num)
        sides = (side,) * old
        return _changed(spec, height=sides, width=sides) if old else super().with_images(spec, side, shapes_of)

    def listed(self):
        """The shapes; num, channels, height and width are their old form."""
        p = self.param
        old = p.num, p.channels, p.height, p.width
        if not any(old):
            return p.shape
        counts = {len(dims) for dims in old}
        if p.shape or 0 in counts or len(counts - {1}) > 1:
            raise ShapeError("expected either shape, or num, channels, height and width, one of each for each top")
        whole = [dims * (max(counts) // len(dims)) for dims in old]
        return tuple(BlobShape(dim=dims) for dims in zip(*whole, strict=True))

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        fillers, tops = len(self.param.data_filler), len(self.spec.top)
        if fillers not in (0, 1, tops):
            raise ShapeError(f"expected no data_filler, one, or {tops} for {tops} tops; got {fillers}")
        return super().shapes(bottoms)

    @property
    def fillers(self) -> tuple[Any, ...]:
        given, tops = self.param.data_filler or (None,), len(self.spec.top)
        return given if len(given) == tops else given * tops


def _changed(spec: Any, **fields: Any) -> Any:
    """The spec of a DummyData layer with other values in these fields of its message."""
    return spec.model_copy(update={"dummy_data_param": spec.dummy_data_param.model_copy(update=fields)})


class _Batches(_Source):
    """A layer whose message has the batch size."""

    batch_field = "batch_size"

    @classmethod
    def with_batch(cls, spec, batch):
        param = getattr(spec, str(cls.field_name)).model_copy(update={"batch_size": batch})
        return spec.model_copy(update={cls.field_name: param})


class MemoryData(_Batches):
    """Caffe's MemoryData: samples (N, C, H, W) and labels (N,), from arrays that the caller gives."""

    type = "MemoryData"
    field_name = "memory_data_param"
    tops = (2, 2)

    @classmethod
    def with_images(cls, spec, side, shapes_of):
        param = spec.memory_data_param.model_copy(update={"height": side, "width": side})
        return spec.model_copy(update={"memory_data_param": param})

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        p = self.param
        return [(p.batch_size, p.channels, p.height, p.width), (p.batch_size,)]

    def dtypes(self, bottoms: Sequence[str]) -> list[str]:
        return ["float32", "int32"]


class Data(_Batches):
    """Caffe's Data: the first top is a batch of samples. The optional second top holds their int32 labels, (N,) with
    one label per sample."""

    type = "Data"
    field_name = "data_param"
    also = ("transform_param",)
    tops = (1, 2)

    sample: Shape  # of one transformed sample; `ask` sets it
    label: Shape = ()  # of the labels of one sample

    @classmethod
    def with_images(cls, spec, side, shapes_of):
        """Another size needs another source, so the images are made up."""
        shape, _ = shapes_of(*cls(spec, getattr(spec, cls.field_name), "TRAIN").source, "TRAIN")
        return cls.made_up(spec, f"{shape[0]}x{side}x{side}") if len(shape) == 3 else spec

    @classmethod
    def with_tokens(cls, spec, length):
        param = getattr(spec, cls.field_name)
        source = TOKENS.sub(rf"\g<1>{length}", param.source) if TOKENS.match(param.source) else param.source
        return spec.model_copy(update={cls.field_name: param.model_copy(update={"source": source})})

    @classmethod
    def made_up(cls, spec: Any, source: str) -> Any:
        """`spec` as a Data layer of made-up images, as `synthetic:` says them (data/synthetic.py)."""
        param = getattr(spec, str(cls.field_name))
        data = DataParameter(source=f"synthetic:{source}", batch_size=param.batch_size, workers=param.workers)
        whole = {"crop_size": 0, "resize": (), "crop_area": (), "force_color": False, "force_gray": False}
        transform = spec.transform_param.model_copy(update=whole)
        return spec.model_copy(update={"type": "Data", "data_param": data, "transform_param": transform})

    @property
    def source(self) -> tuple[Any, Any]:
        return self.param, self.spec.transform_param

    def ask(self, shapes_of: Shapes) -> None:
        self.sample, self.label = shapes_of(*self.source, self.phase)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        n = self.param.batch_size
        return [(n, *self.sample), (n, *self.label)][: len(self.spec.top)]

    def dtypes(self, bottoms: Sequence[str]) -> list[str]:
        return ["float32", "int32"][: len(self.spec.top)]


class ImageData(Data):
    """Caffe's ImageData: the images of a list file, and their labels."""

    type = "ImageData"
    field_name = "image_data_param"

    @property
    def source(self) -> tuple[Any, Any]:
        p, transform = self.param, self.spec.transform_param
        if not p.new_height:
            return p, transform
        if transform.resize:
            raise ShapeError("expected new_height and new_width, or resize in transform_param; got both")
        return p, transform.model_copy(update={"resize": (p.new_height, p.new_width)})


class HDF5Data(_Batches):
    """Caffe's HDF5Data: each top is the dataset of the same name, with one row per sample."""

    type = "HDF5Data"
    field_name = "hdf5_data_param"
    refuses = ("transform_param",)
    tops = (1, None)

    rows: Sequence[Shape]  # of each top, of one sample; `ask` sets it

    @property
    def columns(self) -> tuple[tuple[Any, Any], ...]:
        given = {"source": self.param.source, "batch_size": self.param.batch_size, "shuffle": self.param.shuffle,
                 "workers": self.param.workers, "tops": self.spec.top}  # fmt: skip
        return tuple((ColumnParameter(**given, dataset=top), TransformationParameter()) for top in self.spec.top)

    def ask(self, shapes_of: Shapes) -> None:
        self.rows = [shapes_of(*column, self.phase)[0] for column in self.columns]

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        return [(self.param.batch_size, *row) for row in self.rows]
