"""The proof refuses programs in parts that compute something else: a thousand wrong ones, changed in one place."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from minidnn.memory.parts import parted
from minidnn.memory.parts.regions import largest, regions
from minidnn.memory.proof.parts import wrong_parts
from minidnn.program import Algorithm, Op, Program, Rows
from minidnn.programs.build import programs
from minidnn.programs.fusion import as_cuda
from minidnn.zoo import load
from minidnn.zoo.gpt import GPT2
from minidnn.zoo.llama import Llama
from tests.support.examples import TIMES
from tests.support.paths import NET_FILES

WRONG = 1000 * TIMES


SEQUENCES = {  # of 64 tokens, which are the rows
    "gpt2": lambda: GPT2(1, 64, 32, 1, 2, vocabulary=50),
    "llama": lambda: Llama(1, 64, 32, 1, 4, 2, 64, vocabulary=50),
}


def whole_and_parted(net: str, count: int) -> tuple[Program, Program]:
    source = SEQUENCES[net]() if net in SEQUENCES else load(NET_FILES / f"{net}.yaml")
    whole = programs(source, None, ("TRAIN",), fuses=as_cuda)["TRAIN"]
    return whole, parted(whole, regions(whole, largest(whole) // 4, count))


def changed(ops: list[Op], whole: frozenset[Op], r: random.Random) -> str | None:
    """Change an op at random; the kind of the change. None: this op has nothing such. `whole`: the ops of the whole
    program."""
    i = r.randrange(len(ops))
    op, kind = ops[i], r.choice(("gone", "twice", "read", "rows", "starts", "swapped", "attrs", "name"))
    alike = [t for o in ops for t in o.tensors if any(t.shape == x.shape and t != x for x in op.reads)]
    if kind == "gone":
        del ops[i]
    elif kind == "twice" and (op.part is not None or op in whole):
        ops.insert(r.randrange(len(ops)), replace(op, name=f"{op.name} again"))
    elif kind == "read" and alike and op.reads:
        other = r.choice(alike)
        place = r.choice([k for k, x in enumerate(op.reads) if x.shape == other.shape])
        ops[i] = replace(op, reads=(*op.reads[:place], other, *op.reads[place + 1 :]))
        if ops[i].reads == op.reads:
            return None
    elif kind == "rows" and op.part is not None:
        size = op.part.last - op.part.first
        moved = r.choice((-size, size, 1, -1))
        ops[i] = replace(op, part=replace(op.part, first=op.part.first + moved, last=op.part.last + moved))
    elif kind == "starts" and isinstance(op.attrs, Rows):
        k = r.randrange(len(op.attrs.starts))
        starts = (*op.attrs.starts[:k], op.attrs.starts[k] + r.choice((-1, 1)), *op.attrs.starts[k + 1 :])
        ops[i] = replace(op, attrs=replace(op.attrs, starts=starts))
    elif kind == "swapped" and len(set(op.reads)) > 1:
        ops[i] = replace(op, reads=op.reads[::-1])
    elif kind == "attrs" and op.part is not None:
        ops[i] = replace(op, attrs=("other", op.attrs))
    elif kind == "name" and op in whole:
        ops[i] = replace(op, name=f"{op.name} of another net")
    else:
        return None
    return kind


@pytest.mark.parametrize(("net", "count"), [("inception", 3), ("diamond", 2), ("residual", 3), ("gpt2", 4)])
def test_a_thousand_wrong_programs_in_parts_are_refused(net, count):
    whole, made = whole_and_parted(net, count)
    assert made.parts and wrong_parts(whole, made, {}) is None
    r, refused = random.Random(18), Counter()
    while refused.total() < WRONG // 3:
        ops = list(made.ops)
        kind = changed(ops, frozenset(whole.ops), r)
        if kind is not None:
            assert wrong_parts(whole, replace(made, ops=tuple(ops)), {}) is not None, kind
            refused[kind] += 1
    assert len(refused) == 8


@pytest.mark.parametrize(("net", "kind", "field"), [
    ("gpt2", "dropout.forward", "block"), ("llama", "rotary.forward", "first"), ("gpt2", "concat.backward", "axis"),
])  # fmt: skip
def test_a_part_begins_with_its_own_token_and_its_own_random_numbers(net, kind, field):
    whole, made = whole_and_parted(net, 4)
    places = [i for i, op in enumerate(made.ops) if op.kind == kind and hasattr(op.attrs, field)]
    assert places
    for i in places:
        op, other = made.ops[i], 1 - getattr(made.ops[i].attrs, field)
        ops = (*made.ops[:i], replace(op, attrs=replace(op.attrs, **{field: other})), *made.ops[i + 1 :])
        assert wrong_parts(whole, replace(made, ops=ops), {}) is not None


def test_all_parts_of_an_op_have_one_algorithm():
    whole, made = whole_and_parted("inception", 3)
    chosen = {op: Algorithm("one") for op in made.ops}
    assert wrong_parts(whole, made, chosen) is None
    odd = next(op for op in made.ops if op.part is not None)
    assert "takes one" in wrong_parts(whole, made, {**chosen, odd: Algorithm("another")})


def test_both_passes_of_an_op_have_one_algorithm():
    whole, made = whole_and_parted("residual", 3)
    odd = next(op for op in made.ops if op.part is not None and op.part.within)
    chosen = {op: Algorithm("another" if op.whole is odd.whole else "one") for op in made.ops}
    assert "another pass" in wrong_parts(whole, made, chosen)
