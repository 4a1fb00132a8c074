"""Files of samples: what a good one holds, and what a file that differs from it a little may be read as.

A case of such a kind is the number of the good file that it comes from, and a file's bytes, packed. So the check knows
how far they differ:

- the good file is read as its samples, and one that nobody should read is refused;
- a file with one bit changed is refused, or its samples are as many and in their order. Most formats let a bit change
  one sample; none if a checksum of the format covers it;
- a file that ends too early is refused, or has all the samples.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minidnn.api.data import read
from minidnn.data import parse
from tests.fuzz.kind import Fault, Misread, command, strictly

Sample = tuple[tuple[int, ...], str]  # labels, and a digest of the values
MOST = 1000  # samples that are compared; good files have fewer
EVERYTHING = ((0, 1 << 40),)
_LEAVES = re.compile(r"os\.(system|exec|posix_spawn|fork|startfile)|subprocess\.|pty\.|socket\.connect")
_calls: list[list[str]] = []  # of each `alone`, what it must not do and did


@dataclass(frozen=True)
class Good:
    """A file that is right.

    samples: its samples; None: it is right by its format, and has to be refused; (): either will do
    summed:  the bytes that a checksum of the format covers, as (first, behind the last)
    spread:  how many samples a bit may change that no checksum covers
    ends:    whether the format tells where a file ends
    """

    name: str
    data: bytes
    samples: Sequence[Sample] | None
    summed: Sequence[tuple[int, int]] = ()
    spread: int = 1
    ends: bool = True
    more: Any = field(default=None, compare=False)  # what a kind wants to know of it besides


def sample(label: Any, values: np.ndarray) -> Sample:
    values = np.ascontiguousarray(values)
    about = f"{values.dtype.newbyteorder('=')} {values.shape} ".encode()
    return tuple(np.atleast_1d(label).ravel().tolist()), hashlib.sha1(about + values.tobytes()).hexdigest()


def samples(labels: Iterable[Any], values: Iterable[np.ndarray]) -> list[Sample]:
    return [sample(label, one) for label, one in zip(labels, values, strict=True)]


# ---- cases


def packed(number: int, data: bytes) -> bytes:
    """A case: these bytes, which come from the good file of this number."""
    return bytes([number]) + zlib.compress(data, 1)


def unpacked(case: bytes) -> tuple[int, bytes]:
    try:
        return case[0], zlib.decompress(case[1:])
    except (IndexError, zlib.error):
        return 255, case


# ---- the check


def check(goods: Sequence[Good], number: int, data: bytes, source: str, phase: str = "TRAIN") -> bool:
    """Whether `minidnn data` takes this source, of which `data` is the file that may be damaged. Raises Fault."""
    before = sorted(Path().rglob("*"))
    with alone():
        ended = command("data", source, "--phase", phase, "--json")
        if ended.code:
            got = None
        else:
            with strictly():
                got = taken(source, phase)
            if (told := json.loads(ended.out)["rows"][0]["samples"]) != len(got):
                raise Misread(f"the command tells {told} samples, and {len(got)} are there")
    if (after := sorted(Path().rglob("*"))) != before:
        raise Fault(f"reading has changed the folder: {set(after) ^ set(before)}")
    if number < len(goods):
        compare(goods[number], data, got, ended.err or ended.out)
    return got is not None


def taken(text: str, phase: str) -> list[Sample]:
    """The samples of a source, read one by one. Raises Fault if they are not as the source promises."""
    source = parse(text, phase)
    shape, kind = source.sample_shape(), source.sample_type()
    dataset = source.open()
    result = []
    for index in range(min(MOST, len(dataset))):
        image, label, _ = read(dataset, index)
        if kind == "uint8" != image.dtype or (0 not in shape and image.shape != tuple(shape)):
            raise Misread(f"sample {index} is {image.dtype} of shape {image.shape}, planned was {kind} {shape}")
        if np.asarray(label).dtype.kind not in "iu" or np.min(label) < 0 or np.max(label) >= 2**31:
            raise Misread(f"sample {index} has the label {label!r}")
        result.append(sample(label, image))
    return result


def compare(good: Good, data: bytes, got: Sequence[Sample] | None, text: str) -> None:
    """Raise Misread if these bytes must not be read as these samples, or must not be refused (None)."""
    if good.samples is None:
        if data == good.data and got is not None:
            raise Misread(f"{good.name}: it has to be refused, and {len(got)} samples are read")
        return
    if data == good.data and got is None and good.samples:
        raise Fault(f"{good.name}: a good file is refused: {text[-500:]}")
    if got is None or not good.samples:
        return
    if data == good.data:
        _same(good, "as it is", got)
    elif good.ends and good.data.startswith(data):
        _same(good, f"cut to {len(data)} of {len(good.data)} bytes", got)
    elif (at := changed_bit(good.data, data)) is not None:
        what = f"with bit {at % 8} of byte {at // 8} changed"
        if any(first <= at // 8 < end for first, end in good.summed):
            _same(good, what, got)
        else:
            _in_order(good, what, got)


def changed_bit(one: bytes, other: bytes) -> int | None:
    """The one bit in which these differ; None if they are the same, or differ in more."""
    if len(one) != len(other):
        return None
    differ = np.frombuffer(one, np.uint8) ^ np.frombuffer(other, np.uint8)
    places = differ.nonzero()[0]
    if len(places) != 1 or int(differ[places[0]]).bit_count() != 1:
        return None
    return 8 * int(places[0]) + int(differ[places[0]]).bit_length() - 1


def _same(good: Good, what: str, got: Sequence[Sample]) -> None:
    if list(got) != list(good.samples or ()):
        raise Misread(f"{good.name}, {what}: {_difference(good, got)}")


def _in_order(good: Good, what: str, got: Sequence[Sample]) -> None:
    """As many samples as there are, and none at another's place."""
    want = list(good.samples or ())
    places = {digest: index for index, (_, digest) in enumerate(want)}
    moved = any(places.get(digest, index) != index for index, (_, digest) in enumerate(got))
    if len(got) != len(want) or moved or sum(a != b for a, b in zip(got, want, strict=True)) > good.spread:
        raise Misread(f"{good.name}, {what}: {_difference(good, got)}")


def _difference(good: Good, got: Sequence[Sample]) -> str:
    want = list(good.samples or ())
    if len(got) != len(want):
        return f"{len(got)} samples instead of {len(want)}"
    index = next(i for i, (a, b) in enumerate(zip(got, want, strict=True)) if a != b)
    return f"sample {index} is {got[index]}, not {want[index]}"


# ---- nothing runs


def _watch(event: str, _: Any) -> None:
    if _LEAVES.match(event) and _calls:
        _calls[-1].append(event)
        raise Fault(f"reading data calls {event}")


sys.addaudithook(_watch)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Raises Fault if a program is started here, or a connection made, also where the library swallows it."""
    _calls.append([])
    try:
        yield
    finally:
        if calls := _calls.pop():
            raise Fault(f"reading data calls {calls[0]}")
