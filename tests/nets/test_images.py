"""Nets with depthwise and transposed convolutions, factors of any axes, pyramids and images in another size."""

from __future__ import annotations

import numpy as np
import pytest

import minidnn
from minidnn import L, Net
from minidnn.layers import FACTS, ShapeError
from minidnn.programs.autodiff import differentiate
from minidnn.schema.document import InvalidFile
from tests.support.graphs import graph, net
from tests.support.paths import NET_FILES
from tests.support.trains import baseline, train


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("policy", ["vdnn_all:m", "layrub:m", "recompute_all:m"])
def test_training_gives_the_bytes_of_baseline(device, policy):
    want, losses, algorithms = baseline("images", device, "m")
    assert train("images", device, policy, debug=True) == (want, losses, algorithms)


def test_cpu_and_reference_train_alike():
    (_, ours, _), (_, theirs, _) = (baseline("images", device, "m") for device in ("cpu", "reference"))
    assert ours == pytest.approx(theirs, rel=1e-4)


def test_written_in_python_it_is_the_same_net():
    made = minidnn.load(NET_FILES / "images.yaml")
    namespace = {}
    exec(made.to_python(), namespace)
    (written,) = (v for v in namespace.values() if isinstance(v, type) and issubclass(v, Net))
    assert written() == made and written().to_yaml() == made.to_yaml()


@pytest.mark.parametrize("facts", FACTS)
def test_all_facts_have_a_program(facts):
    kinds = {op.kind for op in differentiate(net("images"), FACTS[facts]).ops}
    assert {"broadcast.add", "broadcast.sum_products", "resize.backward", "convolution.backward_data"} <= kinds


def test_a_deconvolution_reads_in_backward_what_a_convolution_does():
    """Its bottom, its weight and dy: not its top."""
    ops = {op.name: op for op in differentiate(net("images")).ops}
    reads = [[t.name for t in ops[f"up.backward_{what}"].reads] for what in ("filter", "bias", "data")]
    assert reads == [["up.y.grad", "down.y"], ["up.y.grad"], ["up.y.grad", "up.w"]]
    assert [(a.name, b.name) for a, b in ops["up.bias"].inplace] == [("up.spread", "up.y")]
    same = {ops[f"up.{which}"].flops for which in ("forward", "backward_filter", "backward_data")}
    assert same == {2 * 6 * 8 * 3 * 3 * 8 * 4 * 4}


def test_the_bilinear_filler_makes_a_deconvolution_keep_a_plane():
    """FCN's: inside, an image enlarged so is as bright as before."""

    class Enlarged(Net):
        def define(self):
            x = L.Input(shape={"dim": [1, 3, 8, 8]}, name="x")
            more = {"kernel_size": 8, "pad": 2, "stride": 4, "weight_filler": {"type": "bilinear"}}
            L.Deconvolution(x, num_output=3, group=3, bias_term=False, **more)

    with minidnn.Session(Enlarged(), device="cpu") as session:
        (y,) = session.forward(np.full((1, 3, 8, 8), 5, np.float32)).values()
    assert y.shape == (1, 3, 32, 32) and np.allclose(y[:, :, 4:-4, 4:-4], 5)


@pytest.mark.parametrize(
    ("text", "bottoms", "message"),
    [
        ("type: Scale, bottom: [a, b], top: y", [(2, 3, 4), (4,)],
         "the second bottom is 4, but the first, 2x3x4, has 3 from axis 1 on"),
        ("type: Bias, bottom: [a, b], top: y, bias_param: {axis: 2}", [(2, 3, 4), (4, 5)],
         "2 axes from axis 2 on are more than the 3 axes of its bottom 2x3x4"),
        ("type: Bias, bottom: a, top: y, bias_param: {num_axes: 3}", [(2, 3)], "3 axes from axis 1 on are more"),
        ("type: Scale, bottom: a, top: y", [(7,)], "axis 1 does not exist in a bottom of shape 7"),
        ("type: Deconvolution, bottom: a, top: y, convolution_param: {num_output: 4, kernel_size: 2, pad: 3}",
         [(1, 2, 3, 3)], "pad 3 leaves nothing of the 4 pixels over which 3 .* are spread; pad 1 would leave some"),
        ("type: Deconvolution, bottom: a, top: y, convolution_param: {num_output: 4, kernel_size: 2, group: 2}",
         [(1, 3, 3, 3)], "group 2 does not divide the 3 channels"),
        ("type: SPP, bottom: a, top: y, spp_param: {pyramid_height: 3}", [(1, 2, 5, 8)],
         "level 2 of the pyramid has 4 windows a side, too many for images of 5x8; a pyramid_height of 2 would fit"),
        ("type: Interp, bottom: a, top: y, interp_param: {zoom_factor: 2, pad_beg: -2, pad_end: -3}", [(1, 2, 5, 8)],
         "pad_beg -2 and pad_end -3 leave nothing of its bottom 1x2x5x8"),
        ("type: Pooling, bottom: a, top: [y, mask], pooling_param: {kernel_size: 2}", [(1, 2, 4, 4)],
         "a second top, the places of the maxima"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_the_numbers(text, bottoms, message):
    inputs = "".join(
        f"- {{name: i{k}, type: Input, top: {top}, input_param: {{shape: {{dim: {list(shape)}}}}}}}\n"
        for k, (top, shape) in enumerate(zip("ab", bottoms, strict=False))
    )
    with pytest.raises(ShapeError, match=message):
        graph(f"{inputs}- {{name: it, {text}}}\n", "TEST")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("type: Interp, interp_param: {height: 3}", "expected height and width together"),
        ("type: Interp", "expected height and width, or zoom_factor or shrink_factor; got none"),
        ("type: Pooling, pooling_param: {pool: STOCHASTIC, kernel_size: 2}", "chooses places at random"),
    ],
)
def test_what_a_file_cannot_ask_for(text, message):
    with pytest.raises(InvalidFile, match=message):
        graph(
            "- {name: d, type: Input, top: a, input_param: {shape: {dim: [1, 2, 4, 4]}}}\n"
            f"- {{name: it, bottom: a, top: y, {text}}}\n"
        )
