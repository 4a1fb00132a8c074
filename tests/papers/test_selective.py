"""Korthikanti et al. 2022, section 4 and 5: the bytes that a transformer's layer keeps for backward, in 16 bits.

sbh (34 + 5as/h)    everything
34 sbh              with selective recomputation
"""

from __future__ import annotations

import pytest

from minidnn.memory.policies import find
from minidnn.memory.policies.shared import probe
from minidnn.program import nbytes
from tests.support.aten import KB, Tape
from tests.support.programs import costs


def layers(count: int, sbh: int, assb: int):
    """Layers of a transformer as the paper counts them. In KiB, `sbh` is a byte for each number of a map, and `assb` is
    one for each score."""
    tape = Tape()

    def saving(t, *kept):
        tape.saves(*kept)
        return t

    def norm(name, x):
        return saving(tape.call(name, "aten.native_layer_norm", x, tape.owns(name, 1), size=2 * sbh), x)

    x = tape.linear("embed", tape.batch, 2 * sbh)
    for i in range(count):
        y = norm(f"{i}.ln1", x)
        q, k, v = (tape.linear(f"{i}.{name}", y, 2 * sbh) for name in "qkv")
        scores = saving(tape.call(f"{i}.core", "matmul.bmm", q, k, size=2 * assb), q, k)
        weights = tape.call(f"{i}.core", "aten._softmax", scores, size=2 * assb)
        tape.saves(weights)
        weights = tape.dropout(f"{i}.core", weights)
        y = saving(tape.call(f"{i}.core", "matmul.bmm", weights, v, size=2 * sbh), weights, v)
        y = tape.dropout(f"{i}.drop1", tape.linear(f"{i}.out", y, 2 * sbh))
        x = tape.call(f"{i}.sum1", "aten.add", x, y, size=2 * sbh)
        y = tape.linear(f"{i}.up", norm(f"{i}.ln2", x), 8 * sbh)
        y = tape.linear(f"{i}.down", saving(tape.call(f"{i}.gelu", "aten.gelu", y, size=8 * sbh), y), 2 * sbh)
        x = tape.call(f"{i}.sum2", "aten.add", x, tape.dropout(f"{i}.drop2", y), size=2 * sbh)
    return tape.program(tape.linear("head", x))


def kept(program, policy: str) -> int:
    """Bytes that live while backward's first op runs, without those of the caller and of the loss."""
    result = probe.listing(program, costs(), find(policy)(program, costs(), 1 << 40))
    return int(result.curve()[program.forward]) - nbytes(program.persistent)


@pytest.mark.parametrize(("sbh", "assb"), [(8, 64), (16, 16)])
def test_a_layer_keeps_what_the_paper_says(sbh, assb):
    for policy, bytes_ in (("liveness:m", 34 * sbh + 5 * assb), ("selective:m", 34 * sbh)):
        two, five = (kept(layers(count, sbh, assb), policy) for count in (2, 5))
        assert five - two == 3 * bytes_ * KB
