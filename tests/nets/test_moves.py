"""Nets with layers that move elements: Slice with a part that no gradient reaches, Split, Silence, Crop and others."""

from __future__ import annotations

import pytest

import minidnn
from minidnn import Net
from minidnn.layers import ShapeError
from minidnn.program import Role
from minidnn.programs.autodiff import differentiate
from tests.support.graphs import graph, net, tensor
from tests.support.paths import NET_FILES
from tests.support.trains import baseline, train


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("policy", ["vdnn_all:m", "layrub:m", "recompute_all:m"])
def test_training_gives_the_bytes_of_baseline(device, policy):
    want, losses, algorithms = baseline("moves", device, "m")
    assert train("moves", device, policy, debug=True) == (want, losses, algorithms)


def test_written_in_python_it_is_the_same_net():
    made = minidnn.load(NET_FILES / "moves.yaml")
    text, namespace = made.to_python(), {}
    exec(text, namespace)
    (written,) = (v for v in namespace.values() if isinstance(v, type) and issubclass(v, Net))
    assert written() == made and written().to_yaml() == made.to_yaml()
    assert 'a, b, unused = L.Slice(stem, name="apart", top=["a", "b", "unused"], slice_point=[4, 6])' in text
    assert 'L.Silence(unused, label_1, name="silence")\n' in text


def test_the_tops_of_a_split_are_its_bottom():
    """No op, no tensor. The gradients of all who read them add up; a part that nothing reads has none."""
    g = net("moves")
    assert tensor(g, "a_1") is tensor(g, "a") and tensor(g, "a_0").name == "relu.y"
    assert [tensor(g, name).role for name in ("label", "label_0", "label_1")] == [Role.LABEL] * 3
    ops = {op.name: op for op in differentiate(g).ops}
    assert not {"fork", "labels", "silence"} & {op.layer for op in ops.values()}
    assert [t.name for t in ops["relu.forward"].reads] == ["apart.a"]
    (add,) = (op for op in ops.values() if op.kind == "gradient.add" and op.writes[0].name == "apart.a.grad")
    assert len(add.reads) == 2
    apart = ops["apart.backward"]
    assert [t.name for t in apart.reads] == ["apart.a.grad", "apart.b.grad"] and apart.attrs.starts == (0, 4)


def test_what_is_silenced_is_no_output():
    program = differentiate(net("moves", "TEST"))
    assert [t.name for t in program.outputs] == ["loss.y"]


SPLIT = """
- {name: data, type: Input, top: x, input_param: {shape: {dim: [2, 3]}}}
- {name: relu, type: ReLU, bottom: x, top: y}
- {name: s, type: Split, bottom: BOTTOM, top: [a, b]}
- {name: t, type: Tile, bottom: b, top: t, tile_param: {tiles: 2}}
"""


@pytest.mark.parametrize("field", ["loss_weight: 1", "propagate_down: false"])
def test_a_split_has_no_weight_of_its_own(field):
    with pytest.raises(ShapeError, match=rf"'s' \(Split\).*{field.split(':')[0]} has no meaning here"):
        graph(SPLIT.replace("BOTTOM", f"y, {field}"))


@pytest.mark.parametrize(("bottom", "outputs"), [("y", ["relu.y", "t.y"]), ("x", ["relu.y", "t.y"])])
def test_tops_of_a_split_that_nobody_reads_are_outputs(bottom, outputs):
    """Unless they are an input of the net."""
    program = differentiate(graph(SPLIT.replace("BOTTOM", bottom), "TEST"))
    assert [t.name for t in program.outputs] == outputs


ROWS = """
- {name: data, type: Input, top: x, input_param: {shape: {dim: [3, 4]}}}
- {name: which, type: Input, top: i, input_param: {shape: {dim: 5}}}
- {name: chosen, type: BatchReindex, bottom: [%s, %s], top: y}
"""


def test_rows_are_chosen_by_whole_numbers():
    g = graph(ROWS % ("x", "i"), "TEST")
    assert tensor(g, "i").dtype == "int32" and tensor(g, "y").shape == (5, 4)
    with pytest.raises(ShapeError, match=r"the second bottom \(v\) holds float32, and numbers of rows are int32"):
        more = "- {name: v, type: ReLU, bottom: i, top: v}\n"
        graph(ROWS.replace("- {name: chosen", f"{more}- {{name: chosen") % ("x", "v"))


def test_labels_are_sliced():
    """A Siamese net's pairs: half of the labels belong to each branch."""
    g = graph("""
- {name: label, type: Input, top: label, input_param: {shape: {dim: 6}}}
- {name: s, type: Slice, bottom: label, top: [first, second], slice_param: {axis: 0}}
""", "TEST")  # fmt: skip
    assert [(tensor(g, name).dtype, tensor(g, name).shape) for name in ("first", "second")] == [("int32", (3,))] * 2
