"""Nets from YAML and from Python: one object, either way convertible; graphs with versions, forks and shapes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import minidnn
from minidnn import L, Net
from minidnn.layers import LAYERS, rows
from minidnn.layers.base import Layer, ShapeError
from minidnn.layers.fillers import fill
from minidnn.program import Role
from minidnn.schema import FillerParameter, InvalidFile, Message, NetState
from tests.support.paths import ROOT

LENET = """\
name: LeNet
layer:
- name: data
  type: Data
  top: [data, label]
  data_param: {source: digits, batch_size: 64}
  transform_param: {scale: 0.0625}
- name: conv1
  type: Convolution
  bottom: data
  top: conv1
  param: [{lr_mult: 1.0}, {lr_mult: 2.0, decay_mult: 0.0}]
  convolution_param: {num_output: 20, kernel_size: 3, weight_filler: {type: xavier}}
- name: pool1
  type: Pooling
  bottom: conv1
  top: pool1
  pooling_param: {kernel_size: 2, stride: 2}
- name: ip1
  type: InnerProduct
  bottom: pool1
  top: ip1
  inner_product_param: {num_output: 50, weight_filler: {type: xavier}}
- name: relu1
  type: ReLU
  bottom: ip1
  top: ip1
- name: ip2
  type: InnerProduct
  bottom: ip1
  top: ip2
  inner_product_param: {num_output: 10, weight_filler: {type: xavier}}
- name: accuracy
  type: Accuracy
  bottom: [ip2, label]
  top: accuracy
  include: {phase: TEST}
- name: loss
  type: SoftmaxWithLoss
  bottom: [ip2, label]
  top: loss
"""


class LeNet(Net):
    def define(self, batch=64):
        xavier = dict(type="xavier")
        data, label = L.Data(source="digits", batch_size=batch, scale=0.0625)
        param = [dict(lr_mult=1), dict(lr_mult=2, decay_mult=0)]
        x = L.Convolution(data, num_output=20, kernel_size=3, weight_filler=xavier, param=param)
        x = L.Pooling(x, kernel_size=2, stride=2)
        x = L.InnerProduct(x, num_output=50, weight_filler=xavier)
        x = L.ReLU(x, in_place=True)
        x = L.InnerProduct(x, num_output=10, weight_filler=xavier)
        L.Accuracy(x, label, include=dict(phase="TEST"))
        L.SoftmaxWithLoss(x, label)


def residual(x, channels):
    y = L.Convolution(x, num_output=channels, kernel_size=3, pad=1, bias_term=False)
    y = L.Scale(L.BatchNorm(y), bias_term=True)
    return L.ReLU(L.Eltwise(x, y), in_place=True)


class Odd(Net):
    """What is awkward to write: names that are no identifiers, forks, phases, words that YAML could take for others."""

    name = "an odd net: 1e3"
    force_backward = True
    state = {"stage": ["on", "1e-5"]}  # noqa: RUF012

    def define(self):
        for phase, size in (("TRAIN", 4), ("TEST", 2)):
            data, label = L.Data(
                name="1e3", top=["data/in", "class"], include=dict(phase=phase), source="synthetic:4x8x8",
                batch_size=size, mirror=True, mean_value=[1, 2.5, 1e-5, 3],
            )  # fmt: skip
        x = residual(residual(data, 4), 4)
        L.Convolution(x, num_output=2, kernel_size=1, name="off", include=dict(stage="debug"))
        a = L.Pooling(x, pool="AVE", global_pooling=True, name="inception/5x5")
        b = L.Pooling(x, kernel_h=8, kernel_w=8, name="null")
        y = L.Concat(L.Flatten(a), L.Flatten(b), axis=1, name="yes")
        y = L.InnerProduct(y, num_output=np.int64(3), param=dict(lr_mult=0.0001), name="L")
        L.SoftmaxWithLoss(y, label, ignore_label=-1, normalization="NONE", loss_weight=1e-7, top=["self", 'it\'s "é"'])


class TestTwoWays:
    def test_yaml_and_python_give_the_same_net(self):
        assert LeNet() == Net.from_text(LENET)
        assert LeNet().layers == Net.from_text(LENET).layers
        assert LeNet(batch=32) != Net.from_text(LENET)
        assert LeNet(batch=32) == LeNet(32) == Net.from_text(LENET, batch=32) == LeNet().with_batch(32)

    def test_the_text_comes_back_as_it_was(self):
        assert Net.from_text(LENET).to_yaml() == LENET
        assert LeNet().to_yaml() == LENET

    @pytest.mark.parametrize("make", [LeNet, Odd])
    def test_round_trips(self, make):
        net = make()
        assert Net.from_text(net.to_yaml()) == net
        namespace: dict = {}
        exec(net.to_python(), namespace)
        (made,) = (v for v in namespace.values() if isinstance(v, type) and issubclass(v, Net))
        assert made() == net
        assert made().to_yaml() == net.to_yaml()
        assert max(map(len, net.to_python().splitlines())) <= 120
        for phase in ("TRAIN", "TEST"):
            assert str(Net.from_text(net.to_yaml()).graph(phase)) == str(net.graph(phase))

    @pytest.mark.parametrize("name", ["", "L", "l", "minidnn", "Net", "class", "1 é"])
    def test_round_trips_whatever_the_name(self, name):
        net = Net.from_text(LENET.replace("name: LeNet", f"name: '{name}'"))
        namespace: dict = {}
        exec(net.to_python(), namespace)
        (made,) = (v for v in namespace.values() if isinstance(v, type) and issubclass(v, Net))
        assert made() == net and made().name == name

    def test_round_trips_with_a_layer_whose_name_is_empty(self):
        net = Net.from_text(LENET.replace("name: conv1", "name: ''"))
        namespace: dict = {}
        exec(net.to_python(), namespace)
        assert namespace["LeNet"]() == net and net.layers[1].name == ""

    def test_python_text_takes_the_batch_and_is_readable(self):
        namespace: dict = {}
        text = LeNet().to_python()
        exec(text, namespace)
        assert namespace["LeNet"](batch=7) == LeNet(batch=7)
        assert "    def define(self, batch=64):\n" in text
        assert 'ip1 = L.ReLU(ip1, name="relu1", in_place=True)\n' in text
        assert 'data, label = L.Data(name="data", source="digits", batch_size=batch, scale=0.0625)\n' in text

    def test_a_class_without_batch_takes_one_too(self):
        assert {layer.data_param.batch_size for layer in Odd(batch=3).layers[:2]} == {3}

    def test_from_a_file_and_from_a_message(self, tmp_path):
        path = tmp_path / "lenet.yaml"
        path.write_text(LENET)
        assert minidnn.load(path) == Net.from_file(str(path)) == LeNet() == Net.from_parameter(LeNet().parameter)
        assert minidnn.load(path, batch=2).graph("TRAIN")["conv1"].tops[0].tensor.shape == (2, 20, 6, 6)

    @pytest.mark.parametrize("batch", [0, -1, True, 1.5])
    def test_batches_that_are_none(self, batch):
        with pytest.raises(InvalidFile, match="batch: expected at least 1"):
            LeNet().with_batch(batch)

    def test_images_of_another_size(self):
        net = LeNet().with_images(40)
        assert {t.tensor.shape[2:] for t in net.graph("TRAIN").blobs[:1]} == {(40, 40)} and net.with_images(40) == net
        net = Net.from_text("input: [data, label]\ninput_shape: [{dim: [2, 3, 4, 4]}, {dim: [2]}]").with_images(9)
        data, label = net.graph("TRAIN").blobs
        assert (data.tensor.shape, label.tensor.shape) == ((2, 3, 9, 9), (2,))
        with pytest.raises(InvalidFile, match="no Data or Input layer gives images"):
            Net.from_text("input: data\ninput_shape: {dim: [2, 3]}").with_images(9)

    def test_batch_reaches_input_layers(self):
        net = Net.from_text("input: [data, label]\ninput_shape: [{dim: [2, 3, 4, 4]}, {dim: [2]}]", batch=5)
        data, label = net.graph("TRAIN").blobs
        assert (data.tensor.shape, label.tensor.shape) == ((5, 3, 4, 4), (5,))

    def test_importing_minidnn_is_light(self):
        heavy = ["pydantic", "ruamel", "numpy", "cupy", "minidnn.nets", "minidnn.backends"]
        code = f"import sys, minidnn; assert not [m for m in {heavy} if m in sys.modules]; minidnn.Net, minidnn.L"
        subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


class TestDefine:
    def test_names_are_made_up(self):
        class Chain(Net):
            def define(self):
                x, label = L.Data(source="digits", batch_size=2)
                for _ in range(2):
                    x = L.ReLU(L.Convolution(x, num_output=2, kernel_size=1))
                x = L.Convolution(x, num_output=2, kernel_size=1, name="conv4")
                x = L.Convolution(L.Convolution(x, num_output=1, kernel_size=1), num_output=3, kernel_size=1)
                L.SoftmaxWithLoss(L.Flatten(x), label, name="main")
                L.SoftmaxWithLoss(L.Flatten(x), label)
                L.SoftmaxWithLoss(L.Flatten(x), label)

        assert [layer.name for layer in Chain().layers] == [
            "data", "conv1", "relu1", "conv2", "relu2", "conv4", "conv3", "conv5", "flatten1", "main",
            "flatten2", "loss", "flatten3", "loss2",
        ]  # fmt: skip

    def test_a_blob_overwritten_in_place_is_gone(self):
        class Wrong(Net):
            def define(self):
                data, _ = L.Data(source="digits", batch_size=2)
                x = L.ReLU(data)
                L.ReLU(x, in_place=True)
                L.Dropout(x)

        with pytest.raises(ValueError, match=r"L.Dropout 'drop1': <blob 'relu1' of layer 'relu1'> is gone.*'relu2'"):
            Wrong()

    @pytest.mark.parametrize(
        ("call", "error"),
        [
            (lambda data: L.ReLU("data"), "L.ReLU 'relu1' takes blobs, as layers return them; got 'data'"),
            (lambda data: L.Concat([data, data]), r"it takes several blobs one by one, or \*them"),
            (lambda data: L.Concat(data, data, in_place=True), "in_place=True needs one blob and no top"),
            (lambda data: L.Convoluton(data), "no layer type 'Convoluton' .did you mean 'Convolution'"),
        ],
    )
    def test_wrong_calls(self, call, error):
        class Wrong(Net):
            def define(self):
                call(L.Data(source="digits", batch_size=2)[0])

        with pytest.raises((TypeError, AttributeError), match=error):
            Wrong()

    def test_blobs_of_another_net(self):
        kept = []

        class One(Net):
            def define(self):
                kept.append(L.Data(source="digits", batch_size=2)[0])

        class Two(Net):
            def define(self):
                L.ReLU(kept[0])

        One()
        with pytest.raises(TypeError, match="belongs to another net"):
            Two()

    def test_outside_define(self):
        with pytest.raises(RuntimeError, match=r"L.ReLU was called outside `define`"):
            L.ReLU(None)
        with pytest.raises(TypeError, match="a method `define`"):
            Net()

    def test_errors_are_those_of_files_with_the_net_for_the_place(self):
        class Bad(Net):
            def define(self):
                data, label = L.Data(source=5, batch_sze=3)
                x = L.Convolution(data, kernal_size=5, weight_filler=dict(type="xavir"))
                L.InnerProduct(x, label, num_output="3", name="ip")

        with pytest.raises(InvalidFile) as caught:
            Bad()
        assert [e.split("; ")[0] for e in caught.value.errors] == [
            "net Bad: layer[data].data_param.source: expected a text, got 5",
            "net Bad: layer[data].data_param.batch_size: required, but not given",
            "net Bad: layer[data].data_param.batch_sze: there is no field 'batch_sze' (did you mean 'batch_size'?)",
            "net Bad: layer[conv1].convolution_param.num_output: required, but not given",
            "net Bad: layer[conv1].convolution_param.weight_filler.type: expected 'constant', 'uniform', 'gaussian', "
            "'xavier', 'msra', 'positive_unitball', 'bilinear', 'sinusoid' or 'diffusion', got 'xavir' "
            "(did you mean 'xavier'?)",
            "net Bad: layer[conv1].convolution_param.kernal_size: there is no field 'kernal_size' "
            "(did you mean 'kernel_size'?)",
            "net Bad: layer[ip].inner_product_param.num_output: expected an integer, got '3'",
            "net Bad: layer[ip].bottom: InnerProduct takes 1, got 2",
        ]


def chain(*layers: str, shape=(2, 3, 8, 8)) -> Net:
    data = f"{{name: data, type: Input, top: data, input_param: {{shape: {{dim: {list(shape)}}}}}}}"
    return Net.from_text("name: t\nlayer:\n" + "".join(f"- {layer}\n" for layer in (data, *layers)))


class TestGraph:
    def test_lenet(self):
        assert str(LeNet().graph("TEST")) == "\n".join([
            "LeNet (TEST)",
            "data      Data                        data[64, 1, 8, 8] label[64]",
            "conv1     Convolution      data       conv1[64, 20, 6, 6]",
            "pool1     Pooling          conv1      pool1[64, 20, 3, 3]",
            "ip1       InnerProduct     pool1      ip1[64, 50]",
            "relu1     ReLU             ip1        ip1[64, 50]",
            "ip2       InnerProduct     ip1        ip2[64, 10]",
            "accuracy  Accuracy         ip2 label  accuracy[1]",
            "loss      SoftmaxWithLoss  ip2 label  loss[1]",
        ])  # fmt: skip

    def test_tensors_roles_and_parameters(self):
        graph = LeNet().graph("TRAIN")
        assert [n.name for n in graph.layers] == ["data", "conv1", "pool1", "ip1", "relu1", "ip2", "loss"]
        tensors = {b.tensor.name: (b.tensor.role, b.tensor.dtype) for b in graph.blobs}
        assert tensors == {
            "data": (Role.INPUT, "float32"),
            "label": (Role.LABEL, "int32"),
            **{f"{n}.y": (Role.ACTIVATION, "float32") for n in ("conv1", "pool1", "ip1", "relu1", "ip2", "loss")},
        }
        w, b = graph["conv1"].parameters
        assert (w.name, w.shape, w.lr_mult, w.decay_mult) == ("w", (20, 1, 3, 3), 1, 1)
        assert (b.name, b.shape, b.lr_mult, b.decay_mult) == ("b", (20,), 2, 0)
        assert [b.name for b in graph.outputs] == ["loss"]
        with pytest.raises(KeyError, match="no layer 'accuracy' in phase TRAIN"):
            graph["accuracy"]

    def test_blobs_have_versions_in_place(self):
        graph = LeNet().graph("TRAIN")
        ip1, relu1, ip2 = graph["ip1"], graph["relu1"], graph["ip2"]
        assert ip1.tops[0].name == relu1.tops[0].name == "ip1"
        assert ip1.tops[0].consumers == [relu1]
        assert relu1.tops[0].consumers == [ip2]
        assert ip2.bottoms == relu1.tops
        assert relu1.tops[0].maker is relu1

    def test_forks_list_their_consumers_and_dangling_tops_are_outputs(self):
        net = chain(
            "{name: a, type: ReLU, bottom: data, top: a}",
            "{name: b, type: ReLU, bottom: a, top: b}",
            "{name: c, type: Eltwise, bottom: [a, b, a], top: c}",
            "{name: d, type: ReLU, bottom: b, top: d}",
        )
        graph = net.graph("TRAIN")
        (a,) = graph["a"].tops
        assert [n.name for n in a.consumers] == ["b", "c", "c"]
        assert [b.name for b in graph.outputs] == ["c", "d"]

    def test_several_tops_are_named_by_top(self):
        class Two(Net):
            def define(self):
                data, label = L.Data(source="digits", batch_size=2)
                L.SoftmaxWithLoss(L.Flatten(data), label, name="loss", top=["loss", "prob"])

        assert [b.tensor.name for b in Two().graph("TRAIN")["loss"].tops] == ["loss.loss", "loss.prob"]

    def test_stages(self):
        net = Odd()
        assert "off" not in [n.name for n in net.graph("TRAIN").layers]
        debug = NetState(stage=("debug",))
        assert "off" in [n.name for n in net.graph("TRAIN", debug).layers]
        assert "off" in [n.name for n in net.with_state(debug).graph("TRAIN").layers]

    def test_a_phase_without_data_is_an_error_when_it_is_asked_for(self):
        net = Net.from_text(LENET.replace("  type: Data\n", "  type: Data\n  include: {phase: TRAIN}\n"))
        assert net.graph("TRAIN").layers
        with pytest.raises(InvalidFile) as caught:
            net.graph("TEST")
        assert caught.value.errors[0] == (
            "net.yaml:11:11: layer[conv1].bottom: in phase TEST, no layer before this one makes blob 'data'; "
            "nothing is before it"
        )
        with pytest.raises(ValueError, match="no phase 'train'"):
            net.graph("train")

    def test_labels_of_input_layers(self):
        text = """
input: [data, NAME]
input_shape: [{dim: [4, 3, 1, 1]}, {dim: [4, 1, 1, 1]}]
layer:
- {name: flat, type: Flatten, bottom: data, top: flat}
- {name: loss, type: SoftmaxWithLoss, bottom: [flat, NAME], top: loss}
- {name: acc, type: Accuracy, bottom: [flat, NAME], top: acc}
"""
        for name in ("label", "truth"):
            data, label = Net.from_text(text.replace("NAME", name)).graph("TEST").layers[0].tops
            assert (label.tensor.role, label.tensor.dtype, label.tensor.shape) == (Role.LABEL, "int32", (4,))
            assert (data.tensor.role, data.tensor.dtype) == (Role.INPUT, "float32")

    def test_several_labels_of_a_sample_keep_their_shape(self):
        net = Net.from_text("input: label\ninput_dim: [4, 2, 1, 1]")
        (label,) = net.graph("TEST").layers[0].tops
        assert (label.tensor.dtype, label.tensor.shape) == ("int32", (4, 2, 1, 1))

    def test_a_top_is_of_labels_if_its_readers_read_it_so(self):
        text = """
input: [data, label]
input_shape: [{dim: [4, 3]}, {dim: [4, 3]}]
layer:
- {name: a, type: Eltwise, bottom: [data, label], top: a}
"""
        label = Net.from_text(text).graph("TEST").layers[0].tops[1]
        assert (label.tensor.role, label.tensor.dtype) == (Role.INPUT, "float32"), "whatever it is called"
        both = text + "- {name: loss, type: SoftmaxWithLoss, bottom: [a, label], top: loss}\n"
        with pytest.raises(ShapeError, match="layer 'loss' reads 'label' as labels, layer 'a' as numbers: give them a"):
            Net.from_text(both).graph("TEST")

    def test_shape_errors_name_both_layers_and_the_numbers_where_the_net_is_made(self):
        with pytest.raises(ShapeError) as caught:
            chain(
                "{name: c, type: Convolution, bottom: data, top: c, "
                "convolution_param: {num_output: 5, kernel_size: 3}}",
                "{name: s, type: Eltwise, bottom: [data, c], top: s}",
            )
        assert str(caught.value).startswith(
            "net.yaml:5:3: layer 's' (Eltwise) on 'data' (2, 3, 8, 8) from layer 'data', "
            "'c' (2, 5, 6, 6) from layer 'c': "
        )

    def test_a_class_is_refused_where_it_is_made_in_either_phase(self):
        class Wide(Net):
            def define(self, phase=()):
                x, _ = L.Data(source="synthetic:3x8x8", batch_size=2)
                include = {"include": [{"phase": phase}]} if phase else {}
                L.Convolution(x, num_output=4, kernel_size=9, name="c", **include)

        for phase in ((), "TRAIN", "TEST"):
            with pytest.raises(ShapeError, match=r"net Wide: layer 'c' \(Convolution\) on 'data' \(2, 3, 8, 8\)"):
                Wide(phase)

    def test_what_needs_data_that_are_not_there_is_told_when_it_is_used(self):
        text = LENET.replace("digits", "nosuch.npz").replace("kernel_size: 3", "kernel_size: 99")
        assert "kernel_size: 99" in text
        made = Net.from_text(text)
        for phase in ("TRAIN", "TEST"):
            with pytest.raises(ValueError, match=r"net.yaml:3:3: layer 'data': nosuch.npz: No such file"):
                made.graph(phase)

    def test_another_size_or_state_is_checked_when_it_is_used(self):
        made = chain(
            "{name: c, type: Convolution, bottom: data, top: c, convolution_param: {num_output: 5, kernel_size: 3}}"
        )
        small = made.with_images(2)
        with pytest.raises(ShapeError, match="layer 'c'"):
            small.graph("TRAIN")

    def test_too_many_param(self):
        with pytest.raises(InvalidFile, match=r"net.yaml:4:3: layer 'i' .* has 1 parameters, but its param lists 2"):
            chain(
                "{name: i, type: InnerProduct, bottom: data, top: i, param: [{}, {}],"
                " inner_product_param: {num_output: 1, bias_term: false}}"
            )

    def test_reserved_names(self):
        with pytest.raises(InvalidFile, match="'rate' is a name of minidnn's own"):
            Net.from_text("input: rate\ninput_dim: [1, 1, 1, 1]").graph("TRAIN")

    def test_data_that_does_not_exist_is_told_with_its_place(self):
        with pytest.raises(ValueError, match=r"net.yaml:3:3: layer 'data': source 'digitz' is not known"):
            Net.from_text(LENET.replace("digits", "digitz")).graph("TRAIN")

    def test_phases_share_parameters_and_must_agree_on_them(self):
        train, test = "synthetic:1x8x8", "synthetic:1x8x8"
        data = "{{name: d, type: Data, top: d, include: {{phase: {}}}, data_param: {{source: '{}', batch_size: 2}}}}"
        ip = "{name: i, type: InnerProduct, bottom: d, top: i, inner_product_param: {num_output: 3}}"

        def made(train, test):
            items = (data.format("TRAIN", train), data.format("TEST", test), ip)
            return Net.from_text("name: t\nlayer:\n" + "".join(f"- {item}\n" for item in items))

        net = made(train, test)
        assert net.graph("TRAIN")["i"].parameters[0].shape == net.graph("TEST")["i"].parameters[0].shape
        net = made(train, "synthetic:1x4x4")
        net.graph("TRAIN")
        with pytest.raises(
            ShapeError, match=r"layer 'i': its w is .*4, 4.* in phase TEST, but .*8, 8.* in phase TRAIN"
        ):
            net.graph("TEST")


PINNED = [0.6443281173706055, 0.20396000146865845, 0.5002626776695251]


class CubeParameter(Message):
    factor: float
    offset: float = 0.0


class Cube(Layer):
    type = "Cube"
    field_name = "cube_param"
    message = CubeParameter
    in_place = True

    def shapes(self, bottoms):
        return [bottoms[0]]


class TestOwnLayers:
    @pytest.fixture(autouse=True)
    def cube(self, monkeypatch):
        monkeypatch.setitem(LAYERS, "Cube", Cube)

    def test_from_both_ways(self):
        class Mine(Net):
            name = "t"

            def define(self):
                data = L.Input(shape=dict(dim=[2, 3, 8, 8]))
                L.ReLU(L.Cube(data, factor=2.5, name="cube"), name="r")

        text = "{name: cube, type: Cube, bottom: data, top: cube, cube_param: {factor: 2.5}}"
        net = chain(text, "{name: r, type: ReLU, bottom: cube, top: r}")
        assert Mine() == net == Net.from_text(net.to_yaml())
        assert "factor=2.5" in net.to_python()
        param = net.graph("TRAIN")["cube"].layer.param
        assert param == CubeParameter(factor=2.5, offset=0.0)
        assert chain(text.replace("2.5", "3.5")) != chain(text)

    @pytest.mark.parametrize(
        ("layer", "expected"),
        [
            ("type: Cube", "cube_param.factor: required, but not given"),
            ("type: Cube, cube_param: {factr: 1, factor: 1}", "cube_param.factr: there is no field 'factr'"),
            ("type: Cube, cube_param: {factor: x}", "cube_param.factor: expected a number, got 'x'"),
            ("type: ReLU, cube_param: {factor: 1}", "cube_param: is not for layer type ReLU; it takes relu_param"),
            ("type: Cube, relu_param: {}", "relu_param: is not for layer type Cube; it takes cube_param"),
            ("type: Cueb", "there is no layer type 'Cueb' (did you mean 'Cube'?)"),
        ],
    )
    def test_errors(self, layer, expected):
        with pytest.raises(InvalidFile) as caught:
            chain("{name: x, bottom: data, top: x, " + layer + "}")
        assert any(expected in error for error in caught.value.errors)

    def test_a_layer_without_a_message_needs_none(self, monkeypatch):
        class Plain(Layer):
            type = "Plain"
            shapes = Cube.shapes

        monkeypatch.setitem(LAYERS, "Plain", Plain)
        net = chain("{name: x, type: Plain, bottom: data, top: x}")
        assert net.graph("TEST")["x"].layer.param is None


class TestFillers:
    def draw(self, shape=(64, 32, 3, 3), seed=1, key="conv1.w", **filler):
        return fill(FillerParameter(**filler), shape, seed, key).whole()

    def test_seeds_have_64_bits(self):
        drawn = [self.draw(type="uniform", seed=seed) for seed in (0, 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1)]
        assert len({x.tobytes() for x in drawn}) == len(drawn)

    def test_a_function_of_seed_and_key(self):
        values = self.draw(type="xavier")
        assert values.dtype == np.float32 and values.shape == (64, 32, 3, 3)
        assert np.array_equal(values, self.draw(type="xavier"))
        assert not np.array_equal(values, self.draw(type="xavier", seed=2))
        assert not np.array_equal(values, self.draw(type="xavier", key="conv2.w"))
        # pinned: a snapshot of a seed is the same on every machine and in every version
        first = fill(FillerParameter(type="uniform"), (3,), 0, "conv1.w").whole()
        np.testing.assert_array_equal(first, np.array(PINNED, np.float32))

    @pytest.mark.parametrize(
        "filler",
        [
            *({"type": kind} for kind in ("constant", "uniform", "xavier", "msra", "positive_unitball", "bilinear")),
            *({"type": "gaussian", "sparse": sparse} for sparse in (-1, 16)),
        ],
        ids=str,
    )
    def test_drawn_a_row_at_a_time_the_values_are_the_same(self, monkeypatch, filler):
        whole = self.draw((7, 3, 5, 5), **filler)
        monkeypatch.setattr(rows, "PIECE", 1)
        drawn = fill(FillerParameter(**filler), (7, 3, 5, 5), 1, "conv1.w")
        assert [piece.shape for piece in drawn.pieces()] == [(1, 3, 5, 5)] * 7
        assert drawn.whole().tobytes() == whole.tobytes()

    def test_adding_a_layer_changes_no_other(self):
        before = LeNet().initial(3)
        param = "convolution_param: {num_output: 2, kernel_size: 1, weight_filler: {type: msra}}"
        extra = f"{{name: c0, type: Convolution, bottom: data, top: c0, {param}}}"
        after = Net.from_text(LENET.replace("- name: pool1", f"- {extra}\n- name: pool1")).initial(3)
        assert set(after) - set(before) == {"c0.w", "c0.b"}
        assert all(np.array_equal(before[name], after[name]) for name in before)

    @pytest.mark.parametrize(("norm", "n"), [("FAN_IN", 288), ("FAN_OUT", 576), ("AVERAGE", 432)])
    def test_xavier_and_msra(self, norm, n):
        bound = np.sqrt(3 / n)
        x = self.draw(type="xavier", variance_norm=norm)
        assert np.abs(x).max() == pytest.approx(bound, rel=1e-3)
        assert np.abs(x).max() <= np.float32(bound)
        assert x.std() == pytest.approx(bound / np.sqrt(3), rel=0.02)
        assert self.draw(type="msra", variance_norm=norm).std() == pytest.approx(np.sqrt(2 / n), rel=0.02)

    def test_fan_in_is_of_caffes_blob(self):
        """w of InnerProduct on images is (O, C, H, W), its blob (O, K); both have the same fan_in."""
        w = LeNet().initial(0)["ip1.w"]
        assert w.shape == (50, 20, 3, 3)
        assert np.abs(w).max() == pytest.approx(np.sqrt(3 / 180), rel=1e-2)

    def test_the_others(self):
        assert (self.draw(type="constant", value=2.5) == 2.5).all()
        assert not self.draw().any()
        assert not fill(None, (3,), 0, "x").whole().any()
        x = self.draw(type="uniform", min=-1, max=3)
        assert (x.min(), x.max(), x.mean()) == pytest.approx((-1, 3, 1), abs=0.05)
        x = self.draw(type="gaussian", mean=1, std=0.5)
        assert (x.mean(), x.std()) == pytest.approx((1, 0.5), abs=0.02)
        assert self.draw(type="gaussian").std() == pytest.approx(1, abs=0.02)
        x = self.draw(type="gaussian", sparse=16)
        assert (x != 0).mean() == pytest.approx(16 / 64, abs=0.02)
        x = self.draw(type="positive_unitball")
        assert x.min() >= 0
        np.testing.assert_allclose(x.reshape(64, -1).sum(1), 1, rtol=1e-5)

    def test_bilinear_by_hand(self):
        """k=4: f=2, c=3/4; |x/2 - 3/4| = .75 .25 .25 .75"""
        line = np.array([0.25, 0.75, 0.75, 0.25])
        x = self.draw(type="bilinear", shape=(2, 1, 4, 4))
        np.testing.assert_allclose(x, np.broadcast_to(np.outer(line, line), (2, 1, 4, 4)), rtol=1e-6)
        with pytest.raises(ShapeError, match=r"conv1.w: a bilinear filler needs square kernels .*\(2, 1, 3, 4\)"):
            self.draw(type="bilinear", shape=(2, 1, 3, 4))

    @pytest.mark.parametrize("rows_at_a_time", [False, True])
    def test_tables_of_times_by_hand(self, monkeypatch, rows_at_a_time):
        if rows_at_a_time:
            monkeypatch.setattr(rows, "PIECE", 1)
        x = self.draw(type="sinusoid", shape=(50, 6))
        angles = np.outer(np.arange(50), [1, 0.01, 0.0001])
        np.testing.assert_allclose(x, np.hstack([np.sin(angles), np.cos(angles)]), atol=1e-6)
        x, kept = (
            self.draw(type="diffusion", shape=(3, 2), min=0.1, max=0.3),
            np.array([0.9, 0.9 * 0.8, 0.9 * 0.8 * 0.7]),
        )
        np.testing.assert_allclose(x, np.sqrt([kept, 1 - kept]).T, rtol=1e-6)

    @pytest.mark.parametrize(
        ("filler", "why"),
        [
            (dict(type="sinusoid", shape=(9, 3)), r"rows of an even length, at least \(times, 4\), got \(9, 3\)"),
            (dict(type="sinusoid", shape=(9, 2)), r"at least \(times, 4\), got \(9, 2\)"),
            (dict(type="diffusion", shape=(9, 3)), r"two numbers for each time, \(times, 2\), got \(9, 3\)"),
            (dict(type="diffusion", shape=(9, 2)), "between 0 and 1, such as min: 0.0001 and max: 0.02; got 0 and 1"),
            (dict(type="diffusion", shape=(9, 2), min=0.5, max=0.1), "got 0.5 and 0.1"),
        ],
    )
    def test_tables_of_times_have_rows_for_them(self, filler, why):
        with pytest.raises(ShapeError, match=f"conv1.w: .*{why}"):
            self.draw(**filler)


def test_without_data_a_layer_gives_images_of_its_crop_size(tmp_path):
    """As `plan --gpu` needs them of a Caffe user's file, whose database is elsewhere."""
    text = """
    layer:
    - {name: data, type: Data, top: [data, label], data_param: {source: examples/train_lmdb, batch_size: 4},
       transform_param: {crop_size: 27, mean_value: [104, 117, 123], mean_file: mean.binaryproto}}
    - {name: digits, type: Data, top: d, data_param: {source: digits, batch_size: 4}, transform_param: {crop_size: 7}}
    """
    net, replaced = Net.from_text(text.replace(", mean_value: [104, 117, 123]", "")).without_data()
    assert replaced == {"examples/train_lmdb": "3x27x27"}
    assert net.graph("TRAIN").layers[0].tops[0].tensor.shape == (4, 3, 27, 27)
    assert net.layers[1].data_param.source == "digits"
    here = Net.from_text("layer: {name: d, type: Data, top: d, data_param: {source: digits, batch_size: 4}}")
    assert here.without_data() == (here, {})
