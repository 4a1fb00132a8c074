"""Blocks are found by the names of layers, whatever wrote them: PyTorch's modules or Caffe's files."""

from __future__ import annotations

import pytest

from minidnn.memory.policies.shared.blocks import blocks
from minidnn.nets.net import Net
from minidnn.program import Program
from minidnn.programs.build import programs
from minidnn.zoo import load
from tests.support.aten import Tape, classifier, transformer
from tests.support.paths import NET_FILES
from tests.support.programs import Builder, chain


def found(program: Program) -> list[tuple[str, str]]:
    """The layers of the first op and of the last op of each block."""
    return [(program.ops[span.start].layer, program.ops[span.stop - 1].layer) for span in blocks(program)]


def test_a_module_s_index_tells_blocks():
    """Of ops of the block itself, and of modules that all blocks call; not the head, nor the inner index of mlp.0."""
    assert found(transformer(3)) == [(f"h.{i}.ln_1", f"h.{i}") for i in range(3)]


def test_the_outermost_index_whose_siblings_are_alike_counts():
    """Two stages of two blocks: stages of other sizes are no siblings, stages of the same sizes are."""

    def staged(sizes: dict[int, int]) -> Program:
        tape = Tape()
        x = tape.batch
        for stage, size in sizes.items():
            for i in range(2):
                x = tape.linear(f"stages.{stage}.{i}.a", tape.linear(f"stages.{stage}.{i}.b", x, size), size)
        return tape.program(x)

    assert [len(span) for span in blocks(staged({0: 64, 1: 32}))] == [2, 2, 2, 2]
    assert [len(span) for span in blocks(staged({0: 64, 1: 64}))] == [4, 4]


def test_modules_that_interleave_and_single_layers_are_no_blocks():
    tape = Tape()
    x = tape.batch
    for _ in range(2):
        for i in range(2):  # the same two modules twice
            x = tape.linear(f"h.{i}.a", tape.linear(f"h.{i}.b", x))
    assert found(tape.program(x)) == []
    for program in (classifier(), chain(4)):
        assert found(program) == []


def test_encoder_and_decoder_have_blocks_of_their_own():
    tape = Tape()
    x = tape.batch
    for part in ("encoder", "decoder"):
        for i in range(2):
            x = tape.linear(f"{part}.layers.{i}.a", tape.linear(f"{part}.layers.{i}.b", x))
    first = [f"{part}.layers.{i}.b" for part in ("encoder", "decoder") for i in range(2)]
    assert [first for first, _ in found(tape.program(x))] == first


def test_names_of_caffe_s_nets():
    inception = programs(Net.from_file(NET_FILES / "inception.yaml"), None, ("TRAIN",))["TRAIN"]
    assert found(inception) == [("one1", "out1"), ("one2", "out2")]
    b, x = Builder(), "data"
    for name in ("res2a", "res2b"):
        y = b.add(f"{name}_branch2a", "convolution", x)
        y = b.add(f"bn{name[3:]}_branch2a", "batch_norm", y)
        x = b.add(name, "eltwise", b.add(f"{name}_branch2b", "convolution", y), x)
    assert found(b.program()) == [("res2a_branch2a", "res2a"), ("res2b_branch2a", "res2b")]


@pytest.mark.parametrize(
    ("net", "count", "last"),
    [
        ("resnet50", 16, ("res5c_branch2a", "res5c_relu")),
        ("densenet121", 58, ("conv5_16/x1/bn", "concat_5_16")),
        ("vit_small", 12, ("block12/norm1", "block12/sum2")),
        ("mobilenet_v2", 17, ("block17/expand", "block17/linear/scale")),
        ("squeezenet", 8, ("fire9/squeeze1x1", "fire9/concat")),
        ("vgg16", 0, None),
    ],
)
def test_blocks_of_the_zoo(net, count, last):
    pairs = found(programs(load(net, 2), None, ("TRAIN",))["TRAIN"])
    assert len(pairs) == count and (not pairs or pairs[-1] == last)
