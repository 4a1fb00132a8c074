"""TensorBoard's event files: their bytes by a parser of our own, and as TensorBoard reads them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from minidnn.errors import InvalidInput
from minidnn.training.events import Step
from minidnn.training.events import Tested as Measured
from minidnn.training.logs.tensorboard import EventFile, crc32c
from minidnn.training.solver import Solver
from tests.support.tiny import samples, tiny

TAGS = ["loss", "smoothed_loss", "rate", "step_seconds", "images_per_second", "train/loss"]


def solver(folder: Path, **fields) -> Solver:
    given = {"device": "reference", "seed": 3, "epochs": 2, "test_epochs": 1, "tensorboard": str(folder / "tb")}
    arrays = {"data": samples(), "test_data": samples()}
    return Solver(tiny(), **arrays, snapshot_prefix=str(folder / "run"), **{**given, **fields})


def unmasked(raw: bytes) -> int:
    turned = (struct.unpack("<I", raw)[0] - 0xA282EAD8) & 0xFFFFFFFF
    return (turned >> 17 | turned << 15) & 0xFFFFFFFF


def bitwise(raw: bytes) -> int:
    """CRC-32C, a bit at a time."""
    crc = 0xFFFFFFFF
    for byte in raw:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def records(path: Path) -> list[bytes]:
    """The records of a file; both checksums of each are right."""
    raw, found = path.read_bytes(), []
    while raw:
        (length,) = struct.unpack("<Q", raw[:8])
        assert unmasked(raw[8:12]) == bitwise(raw[:8])
        record, rest = raw[12 : 12 + length], raw[12 + length :]
        assert len(record) == length and unmasked(rest[:4]) == bitwise(record)
        found.append(record)
        raw = rest[4:]
    return found


def fields(raw: bytes) -> list[tuple[int, object]]:
    """(number, value) of a message's fields, one level deep."""

    def number(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            value |= (raw[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if raw[at - 1] < 128:
                return value, at

    found, at = [], 0
    while at < len(raw):
        tag, at = number(at)
        value: object
        if tag & 7 == 0:
            value, at = number(at)
        elif tag & 7 == 2:
            size, at = number(at)
            value, at = raw[at : at + size], at + size
        else:
            form = {1: "<d", 5: "<f"}[tag & 7]
            (value,) = struct.unpack_from(form, raw, at)
            at += struct.calcsize(form)
        found.append((tag >> 3, value))
    return found


def curves(path: Path) -> list[tuple[int, dict[str, float]]]:
    """(step, values by tag) of each event with a summary."""
    found = []
    for record in records(path):
        event = dict(fields(record))
        if 5 in event:
            values = [dict(fields(value)) for _, value in fields(event[5])]
            found.append((event[2], {v[1].decode(): v[2] for v in values}))
    return found


def files(folder: Path) -> list[Path]:
    return sorted((folder / "tb").iterdir())


def test_each_step_and_each_test_is_an_event(tmp_path):
    with solver(tmp_path) as run:
        events = [e for e in run.run() if isinstance(e, Step | Measured)]
    (path,) = files(tmp_path)
    assert ".tfevents." in path.name
    first, begin, *_ = (dict(fields(record)) for record in records(path))
    assert first[3] == b"brain.Event:2" and dict(fields(begin[7])) == {1: 1}  # the version; the run begins
    found = curves(path)
    assert len(found) == len(events) == 11
    for event, (step, values) in zip(events, found, strict=True):
        assert step == event.iteration
        if isinstance(event, Step):
            assert list(values) == TAGS and values["loss"] == event.loss
        else:
            assert values == pytest.approx({f"test/{name}": value for name, value in event.outputs.items()})


def test_a_run_that_goes_on_says_where(tmp_path):
    with solver(tmp_path) as run:
        run.solve(epochs=1)
    with solver(tmp_path, resume="latest") as run:
        run.solve()
    begins = [dict(fields(records(path)[1])) for path in files(tmp_path)]
    assert [begin[2] for begin in begins] == [0, 4]


def test_files_of_one_second_have_names_of_their_own(tmp_path):
    for _ in range(3):
        EventFile(tmp_path / "tb", 0, now=lambda: 1.5).close()
    assert len(files(tmp_path)) == 3 and all("tfevents.0000000001." in path.name for path in files(tmp_path))


def test_crc32c():
    assert crc32c(b"123456789") == 0xE3069283 == bitwise(b"123456789")  # the check value of CRC-32C
    assert crc32c(b"") == 0


def test_a_file_in_the_folders_place(tmp_path):
    (tmp_path / "tb").write_text("mine")
    with pytest.raises(InvalidInput, match=r"tensorboard .*tb: is not a folder"):
        solver(tmp_path)
    with pytest.raises(InvalidInput, match=r"tensorboard .*deep: .*/tb is not a folder"):
        solver(tmp_path, tensorboard=str(tmp_path / "tb" / "deep"))


@pytest.mark.peer("tensorboard")
def test_tensorboard_reads_them(tmp_path):
    from tensorboard.backend.event_processing import event_accumulator as read

    with solver(tmp_path) as run:
        events = [e for e in run.run() if isinstance(e, Step)]
    with solver(tmp_path, resume=tmp_path / "run_iter_8.safetensors", epochs=3) as run:
        events += [e for e in run.run() if isinstance(e, Step)]
    found = read.EventAccumulator(str(tmp_path / "tb"))
    found.Reload()
    assert sorted(found.Tags()["scalars"]) == sorted([*TAGS, "test/accuracy", "test/loss"])
    assert [(e.step, e.value) for e in found.Scalars("loss")] == [(e.iteration, e.loss) for e in events]
