"""Caffe's text format: its forms, the places of its errors, and that what is written is read as the same."""

from __future__ import annotations

import pytest

from minidnn import zoo
from minidnn.layers import LAYERS
from minidnn.nets.net import Net
from minidnn.optimizers import OPTIMIZERS
from minidnn.schema import InvalidFile, check_net, check_solver, parse, plain, prototext, read
from minidnn.schema.document import DEPTH

DATA = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }\n'


def values(text: str):
    document = parse(text, "f.prototxt")
    document.check()
    return document.data


def layer(text: str):
    return check_net(parse(DATA + text, "f.prototxt"), LAYERS).parameter.layer[1]


def errors(text: str, check=check_net, **more) -> list[str]:
    with pytest.raises(InvalidFile) as caught:
        check(parse(text, "f.prototxt"), LAYERS, **more)
    return caught.value.errors


class TestForms:
    @pytest.mark.parametrize(
        "text",
        [
            'state { stage: "a" stage: "b" level: 1 }',
            "state: { stage: 'a', stage: 'b'; level: 1; }",
            'state < stage: ["a", "b"] level: 0x1 >',
            'state: <stage:["a"] stage:["b"]level:01>',
            "# a comment\nstate {  # and another { \"\n stage: 'a' # 'b'\n stage: 'b'\n level: +1 }".replace("+", ""),
            '\ufeffstate { stage: "" "a" \'\' stage: "\\x62" level: 1 stage: [] }',
            'state { stage: "\\141" stage: "\\u0062" level: 1 }',
        ],
    )
    def test_one_message_in_many(self, text):
        assert values(text) == {"state": {"stage": ["a", "b"], "level": 1}}

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("1e-4", 1e-4), ("1e-4f", 1e-4), (".5", 0.5), ("5.", 5.0), ("-2.5E+1F", -25.0), ("3", 3), ("- 3", -3),
            ("0x1F", 31), ("017", 15), ("-0x10", -16), ("0", 0), ("-0", 0), ("inf", float("inf")),
            ("-Infinity", float("-inf")), ("1" * 100, int("1" * 100)),
        ],
    )  # fmt: skip
    def test_numbers(self, text, expected):
        found = values(f"base_lr: {text}")["base_lr"]
        assert found == expected and type(found) is type(expected)

    @pytest.mark.parametrize(("text", "expected"), [("true", True), ("t", True), ("1", True), ("False", False)])
    def test_booleans(self, text, expected):
        assert values(f"force_backward: {text} name: 'x'")["force_backward"] is expected

    def test_texts(self):
        text = r'"a\n\t\"\\\'' + r'\303\251\U0001F600é"' + " 'b\"' "
        assert values(f"layer {{ }} name: {text}")["name"] == "a\n\t\"\\'éé".replace("éé", "é\U0001f600é") + 'b"'

    def test_words_and_numbers_of_enums(self):
        for pool in ("AVE", "1"):
            text = f'type: "Pooling" bottom: "data" top: "p" pooling_param {{ pool: {pool} kernel_size: 2 }}'
            assert layer(f'layer {{ name: "p" {text} }}').pooling_param.pool == "AVE"

    def test_a_whole_net_is_the_one_in_yaml(self):
        text = """name: "small"
            layer { name: "data" type: "Input" top: "data" input_param { shape: { dim: 2 dim: 3 dim: 8 dim: 8 } } }
            layer {
              name: "conv" type: "Convolution" bottom: "data" top: "conv"
              param { lr_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
              convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" variance_norm: AVERAGE } }
            }
            layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" include { phase: TRAIN not_stage: "x" } }
            """
        other = """
name: small
layer:
- {name: data, type: Input, top: data, input_param: {shape: {dim: [2, 3, 8, 8]}}}
- {name: conv, type: Convolution, bottom: data, top: conv, param: [{lr_mult: 1}, {lr_mult: 2, decay_mult: 0}],
   convolution_param: {num_output: 4, kernel_size: 3, weight_filler: {type: xavier, variance_norm: AVERAGE}}}
- {name: relu, type: ReLU, bottom: conv, top: conv, include: {phase: TRAIN, not_stage: x}}
"""
        assert Net.from_text(text, source="n.prototxt") == Net.from_text(other)


class TestErrors:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("name: 'a", "1:7: not valid prototxt: a text that does not end on its line"),
            ("layer {\n name: 'a'\n", "3:1: not valid prototxt: expected a field's name or '}', got the end of the f"),
            ("layer { > ", "1:9: not valid prototxt: expected a field's name or '}', got '>'"),
            ("layer 5", "1:7: not valid prototxt: expected ':' or '{' after layer, got '5'"),
            ("layer [{}]", "1:1: not valid prototxt: expected ':' after layer and before its list"),
            ("name: }", "1:7: not valid prototxt: expected a value, got '}'"),
            ("a: [1 2]", "1:7: not valid prototxt: expected ',' or ']', got '2'"),
            ("a: 08", "1:4: not valid prototxt: '08' begins with 0, so it is octal"),
            ("a: 1.2.3", "1:4: not valid prototxt: '1.2.3' is not a number"),
            ("a: 12abc", "1:4: not valid prototxt: '12abc' is not a number"),
            ("a: " + "9" * 5000, "1:4: not valid prototxt: a number of 5000 characters"),
            ("a: --1", "1:5: not valid prototxt: expected a value, got '-1'"),
            ("a: '\\q'", "1:5: not valid prototxt: the escape '\\\\q' does not exist"),
            ("a: '\\400'", "1:5: not valid prototxt: the escape '\\\\400' is not a byte"),
            ("a: '\\ud800'", "1:5: not valid prototxt: the escape '\\\\ud800' is not a character"),
            ("a: '\\377'", "1:4: not valid prototxt: a text that is not UTF-8: invalid start byte"),
            ("a: '\\000'", "1:4: not valid prototxt: the character '\\x00' is not allowed in a text"),
            ("a: \x00", "1:4: not valid prototxt: the character '\\x00' is not allowed here"),
            ("[x.y]: 3", "1:1: not valid prototxt: expected a field's name, got '['"),
            ("a { " * 5000, f"1:{4 * DEPTH + 5}: not valid prototxt: messages are nested too deeply: more"),
        ],
    )  # fmt: skip
    def test_of_the_syntax(self, text, expected):
        (error,) = errors(text)
        assert error.startswith(f"f.prototxt:{expected}")

    def test_all_of_a_file_at_once_with_their_places(self):
        text = DATA + (
            'layer {\n  name: "c"  name: "d"\n  type: "Convolution"\n  bottom: "data"\n  top: c\n'
            "  convolution_param {\n    num_output: 2.5\n    kernel_size: 3 kernel_size: -3\n    engin: CAFFE\n"
            '    engine: "CAFFE"\n    weight_filler { type: xavier }\n  }\n}\n'
            'layer { name: "p" type: "Pooling" bottom: "c" top: "p" pooling_param { pool: 7 kernel_size: [2, 2] } }\n'
        )
        assert errors(text) == [
            "f.prototxt:3:14: layer[c].name: given twice; first on line 3",
            "f.prototxt:6:8: layer[c].top[0]: expected a text in quotes, got the word c",
            "f.prototxt:8:17: layer[c].convolution_param.num_output: expected an integer, got 2.5",
            "f.prototxt:9:33: layer[c].convolution_param.kernel_size[1]: expected at least 1, got -3",
            "f.prototxt:10:5: layer[c].convolution_param.engin: there is no field 'engin' (did you mean 'engine'?); "
            "ignore_unknown=True leaves out the additions of Caffe's forks",
            "f.prototxt:11:13: layer[c].convolution_param.engine: expected a word without quotes, got the text "
            "'CAFFE'",
            "f.prototxt:12:27: layer[c].convolution_param.weight_filler.type: expected a text in quotes, got the word "
            "xavier",
            "f.prototxt:15:78: layer[p].pooling_param.pool: expected 'MAX' or 'AVE', got 7",
            "f.prototxt:15:80: layer[p].pooling_param.kernel_size: given twice; first on line 15",
        ]  # fmt: skip

    def test_between_layers(self):
        (error,) = errors(DATA + '\nlayer { name: "r" type: "ReLU" bottom: "dat" top: "r" }')
        assert error.startswith("f.prototxt:3:40: layer[r].bottom[0]: no layer before this one makes blob 'dat' (did")

    @pytest.mark.parametrize("kind", ["Python", "PriorBox", "RNN", "WindowData", "ROIPooling", "BN"])
    def test_a_layer_that_cannot_be_is_refused_once_with_the_reason(self, kind):
        text = DATA + f'layer {{ name: "x" type: "{kind}" bottom: "data" top: "x" python_param {{ module: "m" }} }}\n'
        text += 'layer { name: "r" type: "ReLU" bottom: "x" top: "r" }'
        (error,) = errors(text)
        assert error.startswith(f"f.prototxt:2:25: layer[x].type: minidnn has no layer {kind}: ")


class TestUnknownFields:
    TEXT = DATA + (
        'layer { name: "p" type: "Pooling" bottom: "data" top: "p" eltwise_mem_sharing: true\n'
        "  pooling_param { kernel_size: 2 pooled: false more { a: 1 a: 2 } } phase: TEST }\nforce: 1\n"
    )

    def test_are_errors(self):
        assert len(errors(self.TEXT)) == 5

    def test_are_named_where_they_are_ignored(self):
        document = parse(self.TEXT, "f.prototxt")
        document.dropped = []
        checked = check_net(document, LAYERS)
        assert checked.parameter.layer[1].pooling_param.kernel_size == 2
        assert sorted(document.dropped) == [
            "f.prototxt:2:59: layer[p].eltwise_mem_sharing",
            "f.prototxt:3:34: layer[p].pooling_param.pooled",
            "f.prototxt:3:48: layer[p].pooling_param.more",
            "f.prototxt:3:69: layer[p].phase (Caffe's, but minidnn does not do it)",
            "f.prototxt:4:1: force",
        ]

    def test_in_lists_and_in_solvers(self):
        text = "base_lr: 1 lr_policy: 'fixed' test_state { stage: 'a' } test_state { levl: 3 } wait: SOME"
        document = parse(text, "s.prototxt")
        document.dropped = []
        found = check_solver(document, LAYERS, OPTIMIZERS)
        assert [state.stage for state in found.test_state] == [("a",), ()]
        assert document.dropped == ["s.prototxt:1:70: test_state[1].levl", "s.prototxt:1:80: wait"]

    def test_other_errors_stay(self):
        document = parse(self.TEXT.replace("kernel_size: 2", "kernel_size: 0"), "f.prototxt")
        document.dropped = []
        with pytest.raises(InvalidFile, match="expected at least 1, got 0"):
            check_net(document, LAYERS)


@pytest.mark.parametrize("name", ["lenet", "digits_lenet", "resnet18", "googlenet", "alexnet"])
def test_our_nets_and_solvers_are_read_as_they_were_written(name):
    net = Net.from_file(zoo.folder() / f"{name}.yaml")
    assert Net.from_text(net.to_prototxt(), source="x.prototxt") == net
    document = parse((zoo.folder() / f"{name.removesuffix('_lenet')}_solver.yaml").read_text(), "s.yaml")
    solver = check_solver(document, LAYERS, OPTIMIZERS)
    again = check_solver(parse(prototext.dump(solver), "s.prototxt"), LAYERS, OPTIMIZERS)
    assert plain(again) == plain(solver)


def test_strange_texts_are_read_as_they_were_written():
    name = "a\"b\\c\n\t\x1b\u2028\u202e\ufeffé\U0010ffff'"
    net = Net.from_text(DATA, source="f.prototxt")
    strange = net.parameter.model_copy(update={"name": name})
    strange.model_fields_set.add("name")
    text = prototext.dump(strange)
    assert text.isprintable() or all(line.isprintable() for line in text.split("\n"))
    assert Net.from_text(text, source="f.prototxt").name == name


def test_comments_may_hold_any_bytes_and_nothing_else_may(tmp_path):
    file = tmp_path / "net.prototxt"
    file.write_bytes(b'# \xd6\xd0\xce\xc4\nname: "a"  # \xe9\nlayer { name: "s" type: "Input" top: "s" }')
    assert read(file).data["name"] == "a"
    for line in (b'name: "\xe9"', b"name: '\xe9'", b'naam: "\xe9"', b"xyzxyz\xe9", b'name: "\xed\xb2\x80"'):
        file.write_bytes(b"# \xd6\n" + line)
        with pytest.raises(InvalidFile, match=r"net.prototxt:2:[78]: expected UTF-8 text, got byte 0xe[9d]"):
            read(file)
