"""What files may say, and how errors say what is wrong: place, path, expectation, suggestion."""

from __future__ import annotations

from functools import partial

import pytest
from pydantic import BaseModel

from minidnn.layers import LAYERS
from minidnn.optimizers import OPTIMIZERS
from minidnn.schema import Document, InvalidFile, LayerParameter, check_net, check_solver, load_net, parse, plain
from minidnn.schema.common import NetState, NetStateRule
from minidnn.schema.refused import NOT_DONE
from minidnn.schema.validation import messages, model_of

DATA = "- {name: data, type: Input, top: data, input_param: {shape: {dim: [2, 3, 8, 8]}}}\n"


def net(text: str):
    return check_net(parse(text, "net.yaml"), LAYERS).parameter


def layers(text: str):
    return net("layer:\n" + DATA + text).layer[1:]


def errors(text: str, check=check_net) -> list[str]:
    with pytest.raises(InvalidFile) as caught:
        check(parse(text, "f.yaml"), LAYERS)
    assert str(caught.value) == "\n".join(caught.value.errors)
    return caught.value.errors


def error_of_layer(text: str) -> str:
    (error,) = errors("layer:\n" + DATA + text)
    return error


def solver(text: str):
    return check_solver(parse("base_lr: 0.1\nlr_policy: fixed\n" + text, "s.yaml"), LAYERS, OPTIMIZERS)


class TestDefaults:
    """Against caffe.proto, written down a second time."""

    @pytest.mark.parametrize(
        ("message", "expected"),
        {
            "data_param": {"backend": "LEVELDB", "prefetch": 4},
            "transform_param": {"scale": 1, "mirror": False, "crop_size": 0, "mean_value": ()},
            "convolution_param": {
                "bias_term": True, "pad": (), "kernel_size": (), "stride": (), "dilation": (), "group": 1, "axis": 1,
                "engine": "DEFAULT", "force_nd_im2col": False, "kernel_h": None, "stride_w": None, "pad_h": None,
            },
            "pooling_param": {
                "pool": "MAX", "pad": 0, "stride": 1, "kernel_size": None, "global_pooling": False,
                "round_mode": "CEIL", "engine": "DEFAULT",
            },
            "inner_product_param": {"bias_term": True, "axis": 1},
            "relu_param": {"negative_slope": 0, "engine": "DEFAULT"},
            "lrn_param": {"local_size": 5, "alpha": 1, "beta": 0.75, "norm_region": "ACROSS_CHANNELS", "k": 1},
            "batch_norm_param": {"use_global_stats": None, "moving_average_fraction": 0.999, "eps": 1e-5},
            "scale_param": {"axis": 1, "num_axes": 1, "bias_term": False},
            "dropout_param": {"dropout_ratio": 0.5},
            "concat_param": {"axis": 1},
            "eltwise_param": {"operation": "SUM", "coeff": (), "stable_prod_grad": True},
            "flatten_param": {"axis": 1, "end_axis": -1},
            "softmax_param": {"axis": 1, "engine": "DEFAULT"},
            "loss_param": {"ignore_label": None, "normalization": "VALID", "normalize": None},
            "accuracy_param": {"top_k": 1, "axis": 1, "ignore_label": None},
            "param": {"name": "", "lr_mult": 1, "decay_mult": 1},
        }.items(),
    )  # fmt: skip
    def test_of_messages(self, message, expected):
        fields = model_of(LayerParameter, message).model_fields
        assert {name: fields[name].default for name in expected} == expected

    def test_of_fillers(self):
        filler = model_of(model_of(LayerParameter, "convolution_param"), "weight_filler")()
        assert filler.model_dump() == {
            "type": "constant", "value": 0, "min": 0, "max": 1, "mean": 0, "std": 1, "sparse": -1,
            "variance_norm": "FAN_IN",
        }  # fmt: skip

    def test_a_scale_without_filler_is_one_and_with_one_is_the_fillers(self):
        bare, filled = layers(
            "- {name: s, type: Scale, bottom: data, top: s}\n"
            "- {name: t, type: Scale, bottom: s, top: t, scale_param: {filler: {type: constant}}}\n"
        )
        assert bare.scale_param.filler.value == 1
        assert filled.scale_param.filler.value == 0

    def test_of_solvers(self):
        expected = {
            "test_interval": 0, "test_initialization": True, "display": 0, "average_loss": 1, "max_iter": 0,
            "iter_size": 1, "momentum": 0, "weight_decay": 0, "regularization_type": "L2", "clip_gradients": -1,
            "snapshot": 0, "snapshot_prefix": "", "snapshot_after_train": True, "random_seed": -1, "type": "SGD",
            "solver_mode": "GPU", "stepsize": 0, "stepvalue": (), "gamma": 0, "power": 0,
        }  # fmt: skip
        found = solver("")
        assert {name: getattr(found, name) for name in expected} == expected

    def test_every_layer_type_has_its_messages(self):
        for kind in LAYERS.values():
            for field in filter(None, (kind.field_name, *kind.also)):
                assert field in messages(), f"{kind.type} takes {field}"


class TestForms:
    @pytest.mark.parametrize("value", ["3", "[3]", "[3, 3]"])
    def test_repeated_fields_take_a_scalar_or_a_list(self, value):
        (conv,) = layers(
            f"- {{name: c, type: Convolution, bottom: [data], top: [c], param: {{lr_mult: 2}},"
            f" convolution_param: {{num_output: 4, kernel_size: {value}}}}}"
        )
        assert conv.convolution_param.pair("kernel") == (3, 3)
        assert conv.bottom == ("data",)
        assert [p.lr_mult for p in conv.param] == [2]

    def test_heights_and_widths(self):
        conv, pool = layers(
            "- {name: c, type: Convolution, bottom: data, top: c, convolution_param: {num_output: 4, kernel_h: 3,"
            " kernel_w: 1, pad_h: 1, pad_w: 0, stride: [2, 1], dilation: 2}}\n"
            "- {name: p, type: Pooling, bottom: c, top: p,"
            " pooling_param: {kernel_h: 2, kernel_w: 3, stride: 2, pad: 1}}"
        )
        p = conv.convolution_param
        assert [p.pair(w) for w in ("kernel", "pad", "stride", "dilation")] == [(3, 1), (1, 0), (2, 1), (2, 2)]
        q = pool.pooling_param
        assert [q.pair(w) for w in ("kernel", "pad", "stride")] == [(2, 3), (1, 1), (2, 2)]

    def test_numbers_are_yaml_1_2(self):
        found = solver("gamma: 1e-4\nweight_decay: 5e-4\nmax_iter: 0o17\ndisplay: 010\nsnapshot_prefix: on\n")
        assert (found.gamma, found.weight_decay, found.max_iter, found.display) == (1e-4, 5e-4, 15, 10)
        assert found.snapshot_prefix == "on"

    def test_anchors_and_merges(self):
        (a, b) = layers(
            "- &conv {name: c, type: Convolution, bottom: data, top: c, convolution_param: &p {num_output: 4,"
            " kernel_size: 3}}\n"
            "- {<<: *conv, name: d, top: d, convolution_param: {<<: *p, num_output: 8}}\n"
        )
        assert (b.name, b.bottom, b.convolution_param.num_output, b.convolution_param.kernel_size) == (
            "d", ("data",), 8, (3,),
        )  # fmt: skip
        assert a.convolution_param.num_output == 4

    def test_the_old_inputs_become_an_input_layer(self):
        for form in ("input_dim: [2, 3, 8, 8, 2, 1, 1, 1]", "input_shape: [{dim: [2, 3, 8, 8]}, {dim: [2, 1, 1, 1]}]"):
            found = net(f"input: [data, label]\n{form}\nlayer:\n- {{name: r, type: ReLU, bottom: data, top: r}}\n")
            assert [layer.type for layer in found.layer] == ["Input", "ReLU"]
            assert found.layer[0].top == ("data", "label")
            assert [s.dim for s in found.layer[0].input_param.shape] == [(2, 3, 8, 8), (2, 1, 1, 1)]
            assert "input" not in plain(found)

    def test_old_inputs_need_their_shapes(self):
        (error,) = errors("input: data\ninput_dim: [1, 2, 3]\nlayer: [{name: r, type: ReLU, bottom: data, top: r}]")
        assert error == "f.yaml:1:1: input: expected 4 input_dim per input, got 1 inputs and 3"

    @pytest.mark.parametrize(
        ("given", "mode"),
        [("{}", "VALID"), ("{normalize: false}", "BATCH_SIZE"), ("{normalize: true}", "VALID"),
         ("{normalization: FULL}", "FULL"), ("{normalization: NONE}", "NONE")],
    )  # fmt: skip
    def test_normalization_of_losses(self, given, mode):
        text = f"- {{name: l, type: SoftmaxWithLoss, bottom: [data, data], top: l, loss_param: {given}}}"
        assert layers(text)[0].loss_param.mode() == mode

    def test_rules_are_caffes(self):
        state = NetState(level=2, stage=("deploy", "fast"))

        def met(**rule) -> bool:
            return NetStateRule.model_validate(rule).met("TEST", state)

        assert met() and met(phase="TEST") and not met(phase="TRAIN")
        assert met(min_level=2, max_level=2) and not met(min_level=3) and not met(max_level=1)
        assert met(stage=["deploy", "fast"]) and not met(stage=["deploy", "slow"])
        assert met(not_stage="slow") and not met(not_stage=["slow", "fast"])
        layer = LayerParameter.model_validate(
            {"name": "a", "type": "ReLU", "include": [{"phase": "TRAIN"}, {"stage": "fast"}]}
        )
        assert layer.included("TEST", state) and layer.included("TRAIN", NetState())
        assert not layer.included("TEST", NetState())
        layer = LayerParameter.model_validate({"name": "a", "type": "ReLU", "exclude": {"stage": "fast"}})
        assert not layer.included("TEST", state) and layer.included("TEST", NetState())


class TestErrors:
    def test_all_at_once_each_with_its_place(self):
        text = """\
name: Bad
nme: x
layer:
- name: data
  type: Dta
  top: [data, label]
- name: conv1
  type: Convolution
  bottom: data
  top: conv1
  name: conv9
  convolution_param: {num_outptu: 20, kernel_size: [5, x], weight_filler: {type: xavierr}}
  pooling_param: {pool: MAX}
- {name: pool1, type: Pooling, bottom: cnv1, top: pool1, pooling_param: {pool: STOCHASTIC, kernel_size: 3}}
- {name: relu, type: ReLU, bottom: pool1, top: relu, loss_weight: on}
- 5
"""
        assert errors(text) == [
            "f.yaml:2:1: nme: there is no field 'nme' (did you mean 'name'?)",
            "f.yaml:5:9: layer[data].type: there is no layer type 'Dta' (did you mean 'Data'?)",
            "f.yaml:11:3: layer[conv1].name: given twice; first on line 7",
            "f.yaml:12:3: layer[conv1].convolution_param.num_output: required, but not given",
            "f.yaml:12:23: layer[conv1].convolution_param.num_outptu: there is no field 'num_outptu' "
            "(did you mean 'num_output'?)",
            "f.yaml:12:56: layer[conv1].convolution_param.kernel_size[1]: expected an integer, got 'x'",
            "f.yaml:12:82: layer[conv1].convolution_param.weight_filler.type: expected 'constant', 'uniform', "
            "'gaussian', 'xavier', 'msra', 'positive_unitball', 'bilinear', 'sinusoid' or 'diffusion', got 'xavierr' "
            "(did you mean 'xavier'?)",
            "f.yaml:13:3: layer[conv1].pooling_param: is not for layer type Convolution; it takes convolution_param",
            "f.yaml:14:40: layer[pool1].bottom: no layer before this one makes blob 'cnv1' (did you mean 'conv1'?)",
            "f.yaml:14:80: layer[pool1].pooling_param.pool: STOCHASTIC, Caffe's, chooses places at random; minidnn "
            "does not do it: write MAX or AVE",
            "f.yaml:15:67: layer[relu].loss_weight: expected a number, got 'on'",
            "f.yaml:16:3: layer[4]: expected a mapping of a layer's fields, such as name and type, got 5",
        ]

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("a: [1, 2\nb: 3\n", "f.yaml:2:2: not valid YAML: expected ',' or ']', but got ':'"),
            ("a: 'x\n", "f.yaml:2:1: not valid YAML: found unexpected end of stream"),
            ("a:\n\t- b\n", "f.yaml:2:1: not valid YAML: found character '\\t'"),
            ("a: \x01\n", "f.yaml:1:4: not valid YAML: the character '\\x01'"),
            ("a: 1\n---\nb: 2\n", "f.yaml:2:1: not valid YAML: but found another document (expected a single"),
            ("", "f.yaml:1:1: expected a mapping of a net's fields, such as name and layer, got nothing"),
            ("5", "f.yaml:1:1: expected a mapping of a net's fields, such as name and layer, got 5"),
            ("name: x", "f.yaml:1:1: expected a net with layers, got none"),
            ("name: &a [*a]\nlayer: []", "an alias that contains itself"),
            ("name: " + "[" * 1000, "nested too deeply"),
            ("input_dim: " + "9" * 5000, "expected a plain value, got a number of 5000 characters"),
            ("name: !x y", "expected a plain value, got the tag"),
            ("? [a]\n: 1", "f.yaml:1:3: expected a field's name, got a list or mapping"),
            ("layers: []", "f.yaml:1:1: expected a net with layers, got none"),
        ],
    )
    def test_files_that_are_no_nets(self, text, expected):
        assert any(expected in error for error in errors(text)), errors(text)

    def test_a_file_that_is_no_text(self, tmp_path):
        path = tmp_path / "net.yaml"
        path.write_bytes(b"name: a\nlayer: \xff\n")
        with pytest.raises(InvalidFile, match=r"net.yaml:2:8: expected UTF-8 text, got byte 0xff"):
            load_net(path, LAYERS)

    @pytest.mark.parametrize(
        ("layer", "expected"),
        [
            (
                "type: Pooling, kernel_size: 3, pooling_param: {kernel_size: 2}",
                "kernel_size: belongs into pooling_param",
            ),
            ("type: Pooling", "pooling_param: expected kernel_size, or kernel_h and kernel_w, or global_pooling"),
            (
                "type: Pooling, pooling_param: {kernel_h: 2}",
                "expected kernel_h and kernel_w together, got only kernel_h",
            ),
            ("type: Pooling, pooling_param: {kernel_size: 2, kernel_h: 2, kernel_w: 2}", "got both"),
            ("type: Pooling, pooling_param: {kernel_size: 2, global_pooling: true}", "with global_pooling"),
            ("type: Pooling, pooling_param: {kernel_size: 0}", "kernel_size: expected at least 1, got 0"),
            ("type: Convolution, convolution_param: {num_output: 2, kernel_size: 1, axis: 2}", "expected 1, got 2"),
            ("type: InnerProduct, inner_product_param: {num_output: '2'}", "expected an integer, got '2'"),
            ("type: InnerProduct, inner_product_param: {num_output: true}", "expected an integer, got true"),
            ("type: InnerProduct, inner_product_param: {num_output: 2.0}", "expected an integer, got 2.0"),
            ("type: InnerProduct, inner_product_param: {num_output: 2, bias_term: 1}", "true or false, got 1"),
            ("type: InnerProduct", "inner_product_param.num_output: required, but not given"),
            ("type: InnerProduct, inner_product_param: 3", "inner_product_param: expected a mapping, got 3"),
            ("type: Convolution, convolution_param: {num_output: 4, kernel_size: [1, 2, 3]}", "one or two numbers"),
            (
                "type: Convolution, convolution_param: {num_output: 4, kernel_size: 3, group: 3}",
                "a multiple of group 3",
            ),
            ("type: Dropout, dropout_param: {dropout_ratio: 1}", "expected less than 1, got 1"),
            ("type: LRN, lrn_param: {local_size: 4}", "local_size: expected an odd number, got 4"),
            ("type: BatchNorm, batch_norm_param: {scale_bias: true}", "the affine part is a Scale layer"),
            ("type: ReLU, param: {lr_mlt: 1}", "param.lr_mlt: there is no field 'lr_mlt' (did you mean 'lr_mult'?)"),
            ("type: ReLU, include: {phase: train}", "expected 'TRAIN' or 'TEST', got 'train' (did you mean 'TRAIN'?)"),
            ("type: relu", "there is no layer type 'relu' (did you mean 'ReLU'?)"),
            ("type: Conv2d", "there is no layer type 'Conv2d' (did you mean 'Convolution'?)"),
            ("type: Dense", "there is no layer type 'Dense' (did you mean 'InnerProduct'?)"),
            ("type: ReLU, relu_param: {negative_slope: .inf}", "expected a finite number, got inf"),
            ("type: ReLU, propagate_down: [true, false]", "propagate_down: expected one per bottom, 1; got 2"),
            ("type: ReLU, loss_weight: [1, 1]", "loss_weight: expected at most one per top, 1; got 2"),
            ("type: ReLU, top: [x, y]", "top: given twice"),
            ("type: Eltwise", "bottom: Eltwise takes at least 2, got 1"),
        ],
    )
    def test_of_a_layer(self, layer, expected):
        error = error_of_layer("- {name: x, bottom: data, top: x, " + layer + "}")
        assert expected in error
        assert error.startswith("f.yaml:3:")
        assert "layer[x]" in error

    @pytest.mark.parametrize(
        ("layer", "expected"),
        [
            ("bottom: dta, top: x", "bottom: no layer before this one makes blob 'dta' (did you mean 'data'?)"),
            ("bottom: zzz, top: x", "bottom: no layer before this one makes blob 'zzz'; there are data"),
            ("bottom: y, top: x", "no layer before this one makes blob 'y'"),
            ("bottom: [data, data], top: x", "bottom: Convolution takes 1, got 2"),
            ("bottom: data", "top: Convolution takes 1, got 0"),
            ("bottom: data, top: data", "top: Convolution cannot work in place on 'data'; name another top"),
        ],
    )
    def test_of_wiring(self, layer, expected):
        param = "convolution_param: {num_output: 1, kernel_size: 1}"
        error = error_of_layer(f"- {{name: c, type: Convolution, {layer}, {param}}}")
        assert expected in error

    def test_a_blob_is_made_once_and_a_name_given_once_in_a_phase(self):
        relu = "- {{name: {}, type: ReLU, bottom: data, top: {}}}\n"
        assert "blob 'r' is made already, by layer 'a'" in error_of_layer(relu.format("a", "r") + relu.format("b", "r"))
        assert "another layer is called 'a' in the same phase" in error_of_layer(
            relu.format("a", "r") + relu.format("a", "s")
        )

    def test_names_may_return_in_the_other_phase(self):
        data = DATA.replace("type: Input", "type: Input, include: {phase: PHASE}")
        found = net("layer:\n" + data.replace("PHASE", "TRAIN") + data.replace("PHASE", "TEST"))
        assert len(found.layer) == 2

    def test_nothing_is_said_of_what_an_unread_layer_would_have_made(self):
        (error,) = errors("layer:\n- {name: d, type: Dtaa, top: data}\n- {name: r, type: ReLU, bottom: data, top: r}\n")
        assert "there is no layer type 'Dtaa'" in error

    def test_fields_refused_with_a_reason_are_not_in_the_table(self):
        models = {model.__name__: model for model in _all_models()}
        assert set(NOT_DONE) <= set(models)
        for name, fields in NOT_DONE.items():
            assert not set(fields) & set(models[name].model_fields)


class TestSolver:
    def test_a_whole_one(self):
        found = solver(
            "net: lenet.yaml\ntest_iter: 100\ntest_interval: 500\nmomentum: 0.9\nstepvalue: [1, 5]\nmax_iter: 10\n"
            "minidnn: {policy: 'vdnn_all:m', budget: 12GB, host_budget: 1GiB, device: cpu,\n"
            "          host_ring: 8MiB, compress: true}\n"
        )
        assert found.test_iter == (100,)
        assert (found.minidnn.budget, found.minidnn.host_budget) == (12 * 10**9, 2**30)
        assert (found.minidnn.host_ring, found.minidnn.compress) == (2**23, True)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("base_lr: 0.1", "s.yaml:1:1: lr_policy: required, but not given"),
            (
                "base_lr: 0.1\nlr_policy: stp",
                "expected 'fixed', 'step', 'exp', 'inv', 'multistep', 'poly', 'sigmoid' or 'cosine'",
            ),
            ("base_lr: 0.1\nlr_policy: step\ngamma: 0.1", "s.yaml:2:12: lr_policy: step needs stepsize"),
            ("base_lr: 0.1\nlr_policy: multistep\ngamma: 1\nstepvalue: [5, 1]", "stepvalue: expected ascending"),
            (
                "base_lr: 0.1\nlr_policy: fixed\ntype: Ada",
                "s.yaml:3:7: type: there is no optimizer 'Ada' (did you mean 'Adam'?); there are SGD, Nesterov",
            ),
            (
                "base_lr: 0.1\nlr_policy: fixed\ndelta: 1e-6",
                "s.yaml:3:1: delta: is not for type SGD; it reads momentum",
            ),
            (
                "base_lr: 0.1\nlr_policy: fixed\nnet: a\ntrain_net: b",
                "expected one of net, net_param, train_net and train_net_param",
            ),
            ("base_lr: 0.1\nlr_policy: fixed\nrampup_lr: 0.01", "s.yaml:3:12: rampup_lr: needs rampup_interval"),
            ("base_lr: 0.1\nlr_policy: fixed\ntest_interval: 5", "test_interval: needs test_iter"),
            ("base_lr: 0.1\nlr_policy: fixed\nminidnn: {budget: 12Gb b}", "minidnn.budget: '12Gb b' is not a size"),
            (
                "base_lr: 0.1\nlr_policy: fixed\nminidnn: {plicy: x}",
                "there is no field 'plicy' (did you mean 'policy'?)",
            ),
            ("base_lr: 0.1\nlr_policy: fixed\nsolver_type: SDG", "expected 'SGD', 'NESTEROV'"),
            ("base_lr: 0.1\nlr_policy: fixed\nmomentm: 0.9", "(did you mean 'momentum'?)"),
            ("base_lr: x\nlr_policy: fixed", "s.yaml:1:10: base_lr: expected a number, got 'x'"),
        ],
    )
    def test_errors(self, text, expected):
        with pytest.raises(InvalidFile) as caught:
            check_solver(parse(text, "s.yaml"), LAYERS, OPTIMIZERS)
        (error,) = caught.value.errors
        assert expected in error

    def test_an_inline_net_is_checked_with_its_places(self):
        text = "base_lr: 0.1\nlr_policy: fixed\nnet_param:\n  layer:\n  - {name: r, type: Relu, bottom: x, top: r}\n"
        found = errors(text, partial(check_solver, optimizers=OPTIMIZERS))
        assert found == ["f.yaml:5:21: net_param.layer[r].type: there is no layer type 'Relu' (did you mean 'ReLU'?)"]
        assert solver("net_param:\n  layer:\n  " + DATA).net_param.layer[0].name == "data"

    def test_one_made_in_python(self):
        with pytest.raises(InvalidFile) as caught:
            data = {"base_lr": 0.1, "lr_policy": "fixed", "momentm": 1}
            check_solver(Document(data, what="the solver"), LAYERS, OPTIMIZERS)
        assert caught.value.errors[0].startswith("the solver: momentm: there is no field 'momentm' (did you mean")


def _all_models() -> set[type[BaseModel]]:
    from minidnn.schema import caffe, common, elements, images, moves, old, solver, sources

    files = (caffe, common, elements, images, moves, old, solver, sources)
    return {m for file in files for m in vars(file).values() if isinstance(m, type) and issubclass(m, BaseModel)}
