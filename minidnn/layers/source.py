"""Input and Data: where blobs come from. They compute nothing; their tops are the program's inputs."""

from __future__ import annotations

from minidnn.layers.base import Layer, ShapeError


class Input(Layer):
    """Tops of given shapes, filled by whoever runs the net."""

    type = "Input"
    field_name = "input_param"
    bottoms = (0, 0)
    tops = (1, None)

    def shapes(self, bottoms):
        given = [tuple(s.dim) for s in self.param.shape]
        if len(given) == 1:
            given *= len(self.spec.top)
        if len(given) != len(self.spec.top):
            raise ShapeError(f"input_param gives {len(given)} shapes for {len(self.spec.top)} tops")
        return given

    def forward(self, s):
        return ()


class Data(Layer):
    """Images and, with a second top, their labels, from `data_param.source`."""

    type = "Data"
    field_name = "data_param"
    also = ("transform_param",)
    bottoms = (0, 0)
    tops = (1, 2)
    sample = ()  # one sample's shape after its transform; set by the net, which knows the data

    def shapes(self, bottoms):
        n = self.param.batch_size
        return [(n, *self.sample), (n,)][: len(self.spec.top)]

    def dtypes(self, bottoms):
        return ["float32", "int32"][: len(self.spec.top)]

    def forward(self, s):
        return ()
