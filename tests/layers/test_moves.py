"""Layers that move elements: what Caffe refuses is refused in words, and backward reads no more than it needs."""

from __future__ import annotations

import numpy as np
import pytest

from minidnn.backends.reference import KERNELS
from minidnn.layers import ShapeError
from minidnn.nets.net import Net
from minidnn.schema import InvalidFile
from tests.layers.bench import Bench, line
from tests.support.cuda import host as cuda_host
from tests.support.graphs import layer
from tests.support.interpret import run_ops
from tests.support.op_examples import Maker, compiled, expected, run

CROP = "type: Crop, bottom: [a, b], top: c"
RESHAPE = "type: Reshape, bottom: a, top: b, reshape_param: "


@pytest.mark.parametrize(
    "text, bottoms, message",
    [
        ("type: Slice, bottom: a, top: [b, c]", [(2, 3)],
         "axis 1 of the bottom 2x3 cannot be cut into 2 equal parts; give slice_point, or a divisor of 3"),
        ("type: Slice, bottom: a, top: [b, c], slice_param: {slice_point: [1, 2]}", [(2, 3)],
         "expected 3 tops for 2 slice_point, got 2"),
        ("type: Slice, bottom: a, top: [b, c, d], slice_param: {slice_point: [2, 2]}", [(2, 3)],
         r"slice_point must rise, from 1 up to 2, to cut axis 1 of the bottom 2x3; got \[2, 2\]"),
        ("type: Slice, bottom: a, top: [b, c], slice_param: {slice_point: 3}", [(2, 3)], r"got \[3\]"),
        ("type: Slice, bottom: a, top: b, slice_param: {axis: 2}", [(2, 3)], "axis 2 does not exist"),
        (CROP + ", crop_param: {offset: 3}", [(2, 3, 8, 8), (2, 3, 6, 6)],
         "axis 2: 6 elements from offset 3 on do not fit into the 8 of the bottom 2x3x8x8; the offset may be up to 2"),
        (CROP, [(2, 3, 8, 8), (2, 3, 8, 9)],
         r"axis 3: the second bottom \(2x3x8x9\) is longer than the first \(2x3x8x8\)"),
        (CROP + ", crop_param: {axis: 1, offset: [1, 2]}", [(2, 3, 8, 8), (2, 3, 6, 6)],
         "expected one offset, or 3, one for each axis from 1 on of the bottom 2x3x8x8; got 2"),
        (CROP, [(2, 3, 8, 8), (2, 3)], r"\(2x3\) gives the lengths of the axes from 2 on, and has fewer axes than"),
        (RESHAPE + "{shape: {dim: [-1, -1]}}", [(2, 3)], r"shape \[-1, -1\]: only one of its lengths can be -1"),
        (RESHAPE + "{shape: {dim: [0, 0, 0]}}", [(2, 3)], "a 0 copies the length of an axis, and .* 2x3 lacks it"),
        (RESHAPE + "{shape: {dim: [4, -1]}}", [(2, 3)],
         r"shape \[4, -1\] from axis 0 on makes 4 elements, and the bottom 2x3 has 6, no multiple of that"),
        (RESHAPE + "{shape: {dim: [2]}, axis: 1}", [(2, 3)],
         "makes 4 elements, and the bottom 2x3 has 6, not as many; a length of -1 takes what is left"),
        (RESHAPE + "{axis: 3}", [(2, 3)], "axis 3 is none of -3 .. 2, those of the bottom 2x3 and its end"),
        (RESHAPE + "{axis: 1, num_axes: 2}", [(2, 3)], "num_axes 2 from axis 1 on is beyond the 2 axes of"),
        (RESHAPE + f"{{axis: 1, num_axes: 0, shape: {{dim: {[1] * 31}}}}}", [(2, 3)], "33 axes, and 32 are the most"),
        ("type: Permute, bottom: a, top: b, permute_param: {order: [1, 0, 1]}", [(2, 3, 4)],
         r"order \[1, 0, 1\] has axis 1 twice; each axis goes to one place"),
        ("type: Permute, bottom: a, top: b, permute_param: {order: [3]}", [(2, 3, 4)], "axis 3 does not exist"),
        ("type: Tile, bottom: a, top: b, tile_param: {axis: -3, tiles: 2}", [(2, 3)], "axis -3 does not exist"),
        ("type: Im2col, bottom: a, top: b, convolution_param: {kernel_size: 5, dilation: 2, pad: 1}", [(2, 3, 6, 6)],
         r"window of 9 \(kernel 5, dilation 2\) does not fit into 6 \+ 2 x 1"),
        ("type: BatchReindex, bottom: [a, b], top: c", [(2, 3), (2, 3)], "numbers of rows, and has one axis; got 2x3"),
    ],
)  # fmt: skip
def test_errors_name_the_numbers(text, bottoms, message):
    with pytest.raises(ShapeError, match=message):
        layer(text).shapes(bottoms)


FILE = """
input: data
input_dim: [2, 4, 6, 6]
layer:
- {name: it, bottom: data, %s}
"""


@pytest.mark.parametrize(
    "text, message",
    [
        ("type: Slice, top: [b, c], slice_param: {axis: 1, slice_dim: 1}", "axis and slice_dim, its old name"),
        ("type: Concat, top: b, concat_param: {axis: 1, concat_dim: 1}", "axis and concat_dim, its old name"),
        ("type: Convolution, top: b, convolution_param: {kernel_size: 3}",
         r"5:\d+: layer\[it\].convolution_param.num_output: required, but not given"),
        ("type: Tile, top: b", r"tile_param.tiles: required, but not given"),
        ("type: Silence, top: b", "Silence takes 0, got 1"),
    ],
)  # fmt: skip
def test_files_that_are_wrong(text, message):
    with pytest.raises(InvalidFile, match=message):
        Net.from_text(FILE % text)


def test_a_part_without_a_gradient_is_zero():
    b = Bench("type: Slice, bottom: a, top: [b, c, d], slice_param: {slice_point: [1, 3]}", [(2, 4)])
    b.site.dy[1] = None
    (op,) = b.layer.backward(b.site)
    assert line(op) == "concat.forward: dy0 dy2 -> dx0" and op.attrs.starts == (0, 3)
    dx = run_ops([op], {"dy0": np.ones((2, 1)), "dy2": np.full((2, 1), 2.0)}, "float64")["dx0"]
    assert dx.tolist() == [[1, 0, 0, 2]] * 2


def test_what_moves_no_byte_may_stay_in_place():
    for text, shape, stays in [
        (RESHAPE + "{shape: {dim: [0, -1]}}", (2, 3, 4), True),
        (RESHAPE + "{shape: {dim: [0, 0, 0, 0]}}", (2, 3, 4, 5), True),
        (RESHAPE + "{shape: {dim: [0, -1]}}", (2, 3, 4, 5), False),
    ]:
        b = Bench(text, [shape])
        for op in (*b.forward, *b.backward):
            assert op.inplace == (((op.reads[0], op.writes[0]),) if stays else ())


def test_a_number_of_no_row():
    m, index = Maker(0), np.array([0, 4, 1], np.int32)
    for e in (m.example("batch_reindex.forward", [m.normal(3, 2), index], [(3, 2)]),
              m.example("batch_reindex.backward", [index, m.normal(3, 2)], [(3, 2)])):  # fmt: skip
        with pytest.raises(ValueError, match=r"number 4 \(at place 1\) names none of the 3 rows"):
            expected(KERNELS, e)
        device = compiled()
        with pytest.raises(ValueError, match=r"number 4 \(at place 1\) names none of the 3 rows"):
            run(device, e, device.algorithms(e.op)[0])


@pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++ to compile CUDA sources for the CPU with")
def test_a_number_of_no_row_is_nan_on_a_gpu():
    m, device = Maker(0), cuda_host.HostCuda()
    e = m.example("batch_reindex.forward", [m.normal(3, 2), np.array([0, -1, 3, 2], np.int32)], [(4, 2)])
    (y,) = run(device, e, device.algorithms(e.op)[0])
    assert np.isnan(y).all(1).tolist() == [False, True, True, False]
