"""What Caffe's files may say: names twice or not at all, messages of other types, forks' words."""

from __future__ import annotations

import pytest

import minidnn
from minidnn.jobs.solver_file import understand
from minidnn.layers import LAYERS
from minidnn.optimizers import OPTIMIZERS
from minidnn.schema import InvalidFile, check_net, check_solver, parse

DATA = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 6 dim: 8 dim: 8 } } }\n'


def net(text: str, source: str = "net.prototxt") -> minidnn.Net:
    return minidnn.Net.from_text(DATA + text, source=source)


def errors(text: str) -> list[str]:
    with pytest.raises(InvalidFile) as caught:
        net(text)
    return caught.value.errors


def rows(of: minidnn.Net, phase: str = "TRAIN") -> list[tuple[str, str, tuple[int, ...]]]:
    return [(n.name, n.layer.type, n.tops[0].tensor.shape if n.tops else ()) for n in of.graph(phase).layers[1:]]


class TestNames:
    RELU = 'layer { name: "%s" type: "ReLU" bottom: "%s" top: "%s" %s }\n'

    def test_the_second_layer_of_a_name_gets_another(self):
        n = net(self.RELU % ("a", "x", "y", "") + self.RELU % ("a", "y", "z", "") + self.RELU % ("a", "z", "w", ""))
        assert [name for name, _, _ in rows(n)] == ["a", "a_2", "a_3"]
        assert n.notes[0] == "net.prototxt:3:1: layer[a]: another layer is called 'a': this one is 'a_2' here"

    def test_a_number_that_is_taken_is_passed_over(self):
        n = net(self.RELU % ("a", "x", "y", "") + self.RELU % ("a", "y", "z", "") + self.RELU % ("a_2", "z", "w", ""))
        assert [name for name, _, _ in rows(n)] == ["a", "a_3", "a_2"]

    def test_layers_of_two_phases_share_a_name(self):
        train, test = "include { phase: TRAIN }", "include { phase: TEST }"
        text = "".join(self.RELU % ("a", "x", top, rule) for top in "yz" for rule in (train, test))
        assert [[name for name, _, _ in rows(net(text), phase)] for phase in ("TRAIN", "TEST")] == [["a", "a_2"]] * 2

    def test_a_layer_without_a_name_is_called_after_its_top(self):
        text = 'layer { type: "ReLU" bottom: "x" top: "y" } layer { type: "Silence" bottom: "y" }'
        assert [name for name, *_ in rows(net(text))] == ["y", "Silence"]

    def test_weights_of_layers_of_one_name_are_apart(self):
        ip = 'layer { name: "ip" type: "InnerProduct" bottom: "%s" top: "%s" inner_product_param { num_output: 3 } }\n'
        assert sorted(net(ip % ("x", "y") + ip % ("y", "z")).initial()) == ["ip.b", "ip.w", "ip_2.b", "ip_2.w"]

    def test_in_yaml_a_name_stands_for_one_layer(self):
        relu = "- {name: a, type: ReLU, bottom: %s, top: %s}\n"
        data = "layer:\n- {name: x, type: Input, top: x, input_param: {shape: {dim: [1, 2]}}}\n"
        with pytest.raises(InvalidFile, match="another layer is called 'a'"):
            minidnn.Net.from_text(data + relu % ("x", "y") + relu % ("y", "z"))


def test_a_message_of_another_type_is_ignored_and_named():
    text = 'layer { name: "r%d" type: "ReLU" bottom: "x" top: "y%d" convolution_param { num_output: 3 } }\n'
    n = net("".join(text % (i, i) for i in range(3)))
    what = "is not for layer type ReLU: ignored, as Caffe does (and 2 more)"
    assert n.notes == (f"net.prototxt:2:55: layer[r0].convolution_param: {what}",)
    assert n == net("".join(text % (i, i) for i in range(3)).replace("convolution_param { num_output: 3 }", ""))


def test_include_and_exclude_are_not_both_given():
    rules = "include { phase: TRAIN } exclude { phase: TEST }"
    (error,) = errors(f'layer {{ name: "r" type: "ReLU" bottom: "x" top: "y" {rules} }}')
    assert error == "net.prototxt:2:78: layer[r].exclude: expected include or exclude, got both"


class TestForks:
    BN = 'layer { name: "b" type: "BatchNorm" bottom: "x" top: "%s" batch_norm_param { %s } %s }\n'

    @pytest.mark.parametrize("top", ["x", "y"])
    @pytest.mark.parametrize("affine", ["scale_bias: true", 'bias_filler { type: "constant" value: 2 }'])
    def test_a_batch_norm_with_scale_and_bias(self, top, affine):
        three = "param { lr_mult: 0 } " * 3
        n = net(self.BN % (top, f"eps: 0.001 engine: CUDNN {affine}", three + "include { phase: TRAIN }"))
        assert [row[:2] for row in rows(n)] == [("b", "BatchNorm"), ("b_scale", "Scale")]
        assert rows(n, "TEST") == []
        norm, scale = n.layers[1:]
        assert (norm.batch_norm_param.eps, scale.scale_param.bias_term) == (0.001, True)
        assert scale.scale_param.bias_filler.value == (2 if "filler" in affine else 0)
        assert scale.scale_param.filler.value == 1 and scale.bottom == scale.top == norm.top

    def test_without_them_it_is_caffe_s(self):
        assert [row[:2] for row in rows(net(self.BN % ("y", "scale_bias: false", "")))] == [("b", "BatchNorm")]

    def test_places_behind_it_stay(self):
        text = self.BN % ("y", "scale_bias: true", "") + 'layer { name: "r" type: "ReLU" bottom: "q" top: "z" }'
        assert errors(text)[0].startswith("net.prototxt:3:40: layer[r].bottom")

    def test_axpy(self):
        text = """
        layer { name: "p" type: "Pooling" bottom: "x" top: "a" pooling_param { pool: AVE global_pooling: true } }
        layer { name: "r" type: "ReLU" bottom: "x" top: "b" }
        layer { name: "s" type: "Axpy" bottom: "a" bottom: "x" bottom: "b" top: "y" }
        """
        import numpy as np

        with minidnn.Session(net(text), device="cpu") as session:
            x = np.random.default_rng(0).standard_normal((2, 6, 8, 8), np.float32)
            y = session.forward(x)["y"]
        np.testing.assert_allclose(y, x.mean((2, 3), keepdims=True) * x + np.maximum(x, 0), rtol=1e-5, atol=1e-6)

    def test_channels_are_shuffled(self):
        import numpy as np

        text = 'layer { name: "s" type: "ShuffleChannel" bottom: "x" top: "y" shuffle_channel_param { group: 3 } }'
        with minidnn.Session(net(text), device="cpu") as session:
            x = np.random.default_rng(0).standard_normal((2, 6, 8, 8), np.float32)
            y = session.forward(x)["y"]
        assert (y == x[:, [0, 2, 4, 1, 3, 5]]).all()

    @pytest.mark.parametrize("kind", ["DepthwiseConvolution", "ConvolutionDepthwise"])
    def test_a_depthwise_convolution_has_a_group_for_each_channel(self, kind):
        param = "convolution_param { num_output: 6 kernel_size: 3 }"
        assert net(f'layer {{ name: "c" type: "{kind}" bottom: "x" top: "y" {param} }}').initial()["c.w"].shape == (
            6,
            1,
            3,
            3,
        )

    def test_relu6(self):
        (layer,) = net('layer { name: "c" type: "ReLU6" bottom: "x" top: "x" }').layers[1:]
        assert (layer.type, layer.clip_param.min, layer.clip_param.max) == ("Clip", 0, 6)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ('type: "Axpy" bottom: "x" top: "y"', "minidnn has no layer Axpy"),
            ('type: "ReLU6" bottom: "x" top: "y" relu_param { negative_slope: 1 }', "minidnn has no layer ReLU6"),
            ('type: "BN" bottom: "x" top: "y"', "minidnn has no layer BN: SegNet's; write BatchNorm"),
            ('type: "Dropout" bottom: "x" top: "y" dropout_param { scale_train: false }', "scale_train: Fast R-CNN's"),
        ],
    )
    def test_what_is_no_layer_here_is_refused_with_what_to_do(self, text, expected):
        assert expected in errors(f'layer {{ name: "l" {text} }}')[0]


class TestSizes:
    CONVOLUTION = 'layer { name: "c" type: "Convolution" bottom: "x" top: "y" convolution_param { num_output: 4 %s } }'
    POOLING = 'layer { name: "p" type: "Pooling" bottom: "x" top: "y" pooling_param { %s } }'

    @pytest.mark.parametrize(
        ("said", "size"),
        [
            ("kernel_h: 1 kernel_w: 3 pad_w: 1", (8, 8)),
            ("kernel_h: 3 kernel_w: 1 pad_h: 1", (8, 8)),
            ("kernel_size: 3 pad_h: 2", (10, 6)),
            ("kernel_size: 3 stride_h: 2 stride_w: 1", (3, 6)),
        ],
    )
    def test_a_pad_alone_leaves_the_other_0(self, said, size):
        assert rows(net(self.CONVOLUTION % said))[0][2] == (2, 4, *size)

    @pytest.mark.parametrize(
        ("said", "expected"),
        [
            ("kernel_w: 3", "expected kernel_h and kernel_w together, got only kernel_w"),
            ("kernel_size: 3 stride_h: 2", "expected stride_h and stride_w together, got only stride_h"),
            ("kernel_size: 3 pad: 1 pad_h: 1", "expected pad, or pad_h and pad_w; got both"),
            ("kernel_size: 3 kernel_h: 1", "got only kernel_h"),
        ],
    )
    def test_caffe_refuses_these_convolutions_too(self, said, expected):
        assert expected in errors(self.CONVOLUTION % said)[0]

    @pytest.mark.parametrize(
        ("said", "size"),
        [
            ("kernel_size: 2 kernel_h: 3 stride: 2", (4, 4)),  # Caffe reads kernel_h only with kernel_w
            ("kernel_size: 3 stride: 2", (4, 4)),
            ("kernel_size: 3 stride: 2 round_mode: FLOOR", (3, 3)),
            ("kernel_size: 3 stride: 2 pad_h: 1 pad_w: 0", (5, 4)),
            ("kernel_size: 9 stride: 2", (1, 1)),  # rounded up, a window may reach over both edges
            ("global_pooling: true pad: 0 stride: 1", (1, 1)),
        ],
    )
    def test_poolings_that_caffe_takes(self, said, size):
        assert rows(net(self.POOLING % said))[0][2] == (2, 6, *size)

    @pytest.mark.parametrize(
        "said",
        [
            "kernel_h: 2",
            "kernel_size: 2 kernel_h: 2 kernel_w: 2",
            "kernel_size: 2 pad_h: 1",
            "kernel_size: 2 pad: 0 pad_h: 1 pad_w: 1",
            "kernel_size: 2 stride_w: 1",
            "global_pooling: true kernel_w: 8",
            "global_pooling: true stride: 2",
            "global_pooling: true pad: 1",
        ],
    )
    def test_poolings_that_caffe_refuses(self, said):
        assert "layer[p].pooling_param" in errors(self.POOLING % said)[0]


class TestSolver:
    BASE = 'base_lr: 1 lr_policy: "fixed" '

    def solver(self, text: str, source: str = "s.prototxt"):
        return check_solver(parse(self.BASE + text, source), LAYERS, OPTIMIZERS)

    @pytest.mark.parametrize(
        ("source", "text", "expected"),
        [
            ("s.prototxt", "", "BINARYPROTO"),
            ("s.prototxt", "snapshot_format: HDF5", "HDF5"),
            ("s.yaml", "", "SAFETENSORS"),
        ],
    )
    def test_snapshots_are_caffe_s_by_default(self, source, text, expected, tmp_path):
        (tmp_path / "net.prototxt").write_text(DATA)
        colons = self.BASE.replace(" lr_policy", "\nlr_policy") + "\n" + text + '\nnet: "net.prototxt"\n'
        (tmp_path / source).write_text(colons)
        assert understand(tmp_path / source).solver.snapshot_format == expected

    def test_no_batches_are_no_tests(self):
        p = self.solver("test_iter: 0 test_interval: 100")
        assert (p.test_iter, p.test_interval) == ((), 0)

    def test_larc_is_refused_unless_it_is_off(self):
        assert self.solver("larc: false larc_eta: 0.1").type == "SGD"
        with pytest.raises(InvalidFile, match=r'larc_eta: NVCaffe\'s LARC.*the nearest is type: "LARS"'):
            self.solver('larc: true larc_policy: "clip" larc_eta: 0.001')


def test_a_v1_layer_has_the_same_corners():
    old = """layers { type: RELU bottom: "x" top: "y" dropout_param { dropout_ratio: 0.5 } }
    layers { name: "y" type: RELU bottom: "y" top: "z" }"""
    text = 'input: "x" input_shape { dim: 1 dim: 2 } ' + old
    checked = check_net(parse(text, "old.prototxt"), LAYERS)
    assert [layer.name for layer in checked.parameter.layer] == ["input", "y", "y_2"] and checked.document.notes
