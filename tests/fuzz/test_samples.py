"""What tells a misreading, and what changes files: tried on files whose faults are known."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given

from tests.fuzz import wire
from tests.fuzz.kind import Fault, Misread
from tests.fuzz.lookup3 import lookup3, summed
from tests.fuzz.mutate import Field, flipped, renumbered
from tests.fuzz.samples import Good, alone, changed_bit, check, compare, packed, sample, samples, unpacked
from tests.support.examples import examples

DATA = bytes(range(16))
WANT = samples([0, 1, 2], [np.full(2, k, np.uint8) for k in range(3)])
GOOD = Good("good", DATA, WANT, [(0, 8)])
OTHER = sample(2, np.full(2, 9, np.uint8))


def bit(at: int) -> bytes:
    return DATA[:at] + bytes([DATA[at] ^ 1]) + DATA[at + 1 :]


@pytest.mark.parametrize(
    ("data", "got"),
    [
        (DATA, WANT), (bit(3), None), (bit(3), WANT), (bit(12), [*WANT[:2], OTHER]), (DATA[:9], None), (DATA[:9], WANT),
        (b"others", WANT[:1]), (b"", None),
    ],
)  # fmt: skip
def test_what_a_file_may_be_read_as(data, got):
    compare(GOOD, data, got, "")


@pytest.mark.parametrize(
    ("data", "got", "words"),
    [
        (DATA, WANT[:2], "2 samples instead of 3"), (bit(3), [*WANT[:2], OTHER], "bit 0 of byte 3 changed: sample 2"),
        (bit(12), WANT[:2], "2 samples instead of 3"), (bit(12), WANT[::-1], "byte 12 changed: sample 0"),
        (bit(12), [WANT[0], WANT[0], WANT[2]], "sample 1"), (bit(12), [OTHER, OTHER, WANT[2]], "sample 0"),
        (DATA[:9], WANT[:2], "cut to 9 of 16 bytes"),
    ],
)  # fmt: skip
def test_a_misreading(data, got, words):
    with pytest.raises(Misread, match=words):
        compare(GOOD, data, got, "")


def test_a_good_file_is_read_and_a_bad_one_refused():
    with pytest.raises(Fault, match="a good file is refused: why"):
        compare(GOOD, DATA, None, "why")
    with pytest.raises(Misread, match="has to be refused"):
        compare(Good("bad", DATA, None), DATA, WANT, "")
    compare(Good("bad", DATA, None), DATA, None, "")
    compare(Good("either", DATA, ()), DATA, WANT, "")


def test_a_file_that_does_not_tell_its_end_may_be_cut():
    compare(Good("rows", DATA, WANT, ends=False), DATA[:9], WANT[:2], "")


def test_a_source_is_read_as_the_command_tells_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images = np.arange(12, dtype=np.uint8).reshape(3, 1, 2, 2)
    np.savez("a.npz", x=images, y=np.arange(3))
    data = (tmp_path / "a.npz").read_bytes()
    good = Good("npz", data, samples(range(3), images))
    assert check([good], 0, data, "npz:a.npz")
    assert not check([good], 7, data, "npz:nothing.npz")
    with pytest.raises(Misread, match="sample 0"):
        check([Good("npz", data, good.samples[::-1])], 0, data, "npz:a.npz")


def test_who_starts_a_program_is_told_although_the_error_is_swallowed():
    with pytest.raises(Fault, match=r"subprocess\.Popen"), alone():
        try:
            subprocess.run([sys.executable, "--version"], check=False)
        except Exception:
            return
    subprocess.run([sys.executable, "--version"], check=True, capture_output=True)


def test_a_case_is_packed():
    assert unpacked(packed(7, DATA)) == (7, DATA)
    assert unpacked(b"") == (255, b"") and unpacked(b"\1torn") == (255, b"\1torn")


def test_the_hash_of_hdf5():
    assert lookup3(b"") == 0xDEADBEEF and lookup3(b"Four score and seven years ago") == 0x17770551
    body = b"OHDR" + bytes(21)
    assert summed(b"x" + body + lookup3(body).to_bytes(4, "little"), [b"OHDR"]) == [(1, 26)]


@examples(60)
@given(flipped(DATA))
def test_one_bit_is_changed(data):
    at = changed_bit(DATA, data)
    assert at is not None and bytes(data[at // 8 : at // 8 + 1]) == bytes([DATA[at // 8] ^ 1 << at % 8])


def test_more_than_a_bit_is_not_one():
    assert changed_bit(b"ab", b"ab") is changed_bit(b"ab", b"abc") is changed_bit(b"ab", b"ba") is None


@examples(60)
@given(renumbered(DATA, [Field(4, 2), Field(8, 4, "big")], lambda raw, at: raw.__setitem__(0, at)))
def test_numbers_change_where_they_lie(data):
    assert len(data) == 16 and data[1:4] == DATA[1:4] and data[6:8] == DATA[6:8] and data[12:] == DATA[12:]
    assert data[0] in (0, 4, 8)


def test_a_message_of_protobuf_is_a_tree():
    inner = wire.written([[1, wire.VARINT, 300], [2, wire.FOUR, b"abcd"]])
    data = wire.written([[7, wire.LENGTH, inner], [3, wire.EIGHT, b"12345678"], [1, wire.LENGTH, b"\xff"]])
    tree = wire.parsed(data)
    assert tree == [[7, 2, [[1, 0, 300], [2, 5, b"abcd"]]], [3, 1, b"12345678"], [1, 2, b"\xff"]]
    assert wire.written(tree) == data and wire.parsed(data[:-1]) is None


def test_fields_change_with_lengths_that_are_right():
    message = wire.written([[7, wire.LENGTH, b"\x08\1"], [3, wire.VARINT, 5]])
    seen = []

    @examples(60)
    @given(wire.fields_changed(message))
    def run(data):
        seen.append(data)

    run()
    whole = [data for data in seen if wire.parsed(data) is not None]
    assert len(set(seen)) > 30 and len(whole) > len(seen) / 2 and any(data != message for data in whole)
