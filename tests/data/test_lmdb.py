"""LMDB's files are read as LMDB reads them. One that is cut or altered is refused, or gives its samples in order."""

from __future__ import annotations

import os
import random
import struct
import sys
from pathlib import Path

import lmdb
import numpy as np
import pytest

from minidnn.cli.main import main
from minidnn.data import DataError, parse
from minidnn.data.database import write
from minidnn.data.lmdb_file import File
from minidnn.schema.blobs import Picture

PAGE = 4096
META = 16 + 24 + 2 * 48 + 16  # bytes of a meta page that mean something


def records(path: Path) -> list[tuple[bytes, bytes]]:
    file = File(str(path), "it")
    there = file.records()
    result = [(there.key(i), there.value(i)) for i in range(len(there))]
    assert file.first() == (result[0] if result else None)
    return result


def of_lmdb(path: Path) -> list[tuple[bytes, bytes]]:
    with lmdb.open(str(path), readonly=True, lock=False, subdir=path.is_dir()) as there, there.begin() as transaction:
        return list(transaction.cursor())


def changed(path: Path, seed: int, transactions: int, **options) -> None:
    """Write, replace and delete records of many sizes."""
    chance, known = random.Random(seed), []
    with lmdb.open(str(path), map_size=1 << 28, **options) as there:
        for _ in range(transactions):
            with there.begin(write=True) as transaction:
                for _ in range(chance.randrange(40)):
                    if known and chance.random() < 0.3:
                        transaction.delete(known.pop(chance.randrange(len(known))))
                        continue
                    if not known or chance.random() < 0.6:
                        known.append(chance.randbytes(chance.choice([2, 30, 511])))
                    size = chance.choice([0, 30, 1500, 2100, 20000])
                    transaction.put(chance.choice(known[-3:]), chance.randbytes(chance.randrange(size + 1)))
                known = list(set(known) & {key for key, _ in transaction.cursor()})


@pytest.mark.parametrize("seed", range(6))
def test_records_are_those_that_lmdb_reads(tmp_path, seed):
    path = tmp_path / "it"
    changed(path, seed, 4 * seed + 1, writemap=seed % 2 == 1)
    assert records(path / "data.mdb") == of_lmdb(path)
    for compact in (False, True):
        (copy := tmp_path / f"copy{compact}").mkdir()
        with lmdb.open(str(path)) as there:
            there.copy(str(copy), compact=compact)
        assert records(copy / "data.mdb") == of_lmdb(path)


def test_a_database_of_one_file_in_a_folder_that_cannot_be_written(tmp_path):
    path = tmp_path / "one_lmdb"
    with lmdb.open(str(path), subdir=False) as there, there.begin(write=True) as transaction:
        transaction.put(b"0", Picture(3, np.ones((1, 2, 2), np.uint8)).to_bytes())
    (tmp_path / "one_lmdb-lock").unlink()
    tmp_path.chmod(0o500)
    try:
        assert parse(str(path)).open().take(np.array([0]))[1].tolist() == [3]
    finally:
        tmp_path.chmod(0o700)
    assert [file.name for file in tmp_path.iterdir()] == ["one_lmdb"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    """A file with branches, leaves, values of their own pages, some larger once, and free pages."""
    path, chance = tmp_path_factory.mktemp("whole") / "it", random.Random(1)
    with lmdb.open(str(path), map_size=1 << 24) as there:
        for step in range(3):
            with there.begin(write=True) as transaction:
                for n in range(8):
                    size = chance.choice([20, 300, 700, 1900, 5000])
                    transaction.put(b"%04d" % (8 * step + n) + bytes(n), chance.randbytes(size))
                if step == 2:
                    transaction.put(b"0009\0", b"once longer" * (1 + step))
                    transaction.delete(b"0003" + bytes(3))
    return (path / "data.mdb").read_bytes()


def same(path: Path, right: list[tuple[bytes, bytes]]) -> bool:
    """Whether the file gives as many records, of which at most one differs; False if it is refused."""
    try:
        result = records(path)
    except DataError:
        return False
    assert len(result) == len(right) and sum(a != b for a, b in zip(result, right, strict=True)) <= 1
    return True


def structure(whole: bytes) -> list[int]:
    """The bytes that are no values: meta pages, headers, lists of nodes and the nodes' heads."""
    result = [page * PAGE + i for page in (0, 1) for i in range(META)]
    for begin in range(2 * PAGE, len(whole), PAGE):
        flags, end = struct.unpack_from("<HH", whole, begin + 10)
        result.extend(range(begin, begin + (end if flags in (1, 2) else 16)))
        for at in struct.unpack_from(f"<{(end - 16) // 2}H", whole, begin + 16) if flags in (1, 2) else ():
            result.extend(range(begin + at, begin + at + 8))
    return result


def test_any_bit_may_be_another(tmp_path, whole):
    path, chance, accepted = tmp_path / "it", random.Random(2), 0
    path.write_bytes(whole)
    right = records(path)
    there = structure(whole)
    bits = [8 * at + bit for at in there if at < PAGE + META for bit in range(8)]
    bits += [8 * at + chance.randrange(8) for at in chance.sample(there, len(there) // 2)]
    bits += [chance.randrange(8 * len(whole)) for _ in range(200)]
    with open(path, "r+b", buffering=0) as file:
        for bit in bits:
            at, value = bit // 8, whole[bit // 8]
            os.pwrite(file.fileno(), bytes([value ^ 1 << bit % 8]), at)
            accepted += same(path, right)
            os.pwrite(file.fileno(), bytes([value]), at)
    assert 0 < accepted < len(bits) / 2
    assert records(path) == right


def test_it_may_be_cut_anywhere(tmp_path, whole):
    path = tmp_path / "it"
    path.write_bytes(whole)
    right = records(path)
    for size in sorted({*range(0, len(whole), 499), *range(0, len(whole), PAGE), len(whole) - 1}, reverse=True):
        os.truncate(path, size)
        assert not same(path, right)


def test_a_cut_copy_is_named_with_its_numbers(tmp_path, whole):
    (tmp_path / "data.mdb").write_bytes(whole[: len(whole) // 2])
    count = len(whole) // PAGE
    said = rf"truncated: its {count} pages take {len(whole)} bytes, and it has {len(whole) // 2}; copy it again"
    with pytest.raises(DataError, match=said):
        File(str(tmp_path / "data.mdb"), "it").records()


def test_what_is_cut_or_written_while_it_is_open_is_refused(tmp_path, whole):
    path = tmp_path / "it"
    for change in (lambda: os.truncate(path, 3 * PAGE), lambda: path.write_bytes(whole[::-1])):
        path.write_bytes(whole)
        os.utime(path, ns=(0, 0))
        there = File(str(path), "it").records()
        change()
        for use in (there.value, there.key):
            with pytest.raises(DataError, match="changed while it was read"):
                use(11)


def test_what_no_tool_of_caffe_writes_is_named(tmp_path, whole):
    raw = bytearray(whole)
    for page in (0, 1):
        raw[page * PAGE + 16 + 24 + 48 + 4] = 4  # MDB_DUPSORT
    (tmp_path / "data.mdb").write_bytes(raw)
    with pytest.raises(DataError, match="another order, or several values for a key"):
        parse(f"lmdb:{tmp_path}").sample_shape()
    with lmdb.open(str(tmp_path / "within"), max_dbs=1) as there:
        there.open_db(b"images")
    with pytest.raises(DataError, match=r"a node with flags 0x2 .* is no record; databases within one are not read"):
        parse(f"lmdb:{tmp_path / 'within'}").sample_shape()


def test_leveldb_is_named(tmp_path):
    (tmp_path / "CURRENT").write_text("MANIFEST-000002\n")
    for text in (f"lmdb:{tmp_path}", str(tmp_path)):
        with pytest.raises(DataError, match="a LevelDB database, which minidnn does not read; convert it to LMDB"):
            parse(text).sample_shape()


def test_reading_needs_no_package(tmp_path, monkeypatch):
    source = database(tmp_path / "it", GOOD)
    monkeypatch.setitem(sys.modules, "lmdb", None)
    assert parse(source).open().take(np.array([0]))[1].tolist() == [1]
    with pytest.raises(DataError, match="LMDB is written by lmdb, which is not installed here"):
        write(tmp_path / "other", [])


@pytest.mark.parametrize("size", [0, 100, 4096, 9000, 12288])
def test_the_command_line_refuses_a_cut_copy(tmp_path, whole, capsys, size):
    (tmp_path / "data.mdb").write_bytes(whole[:size])
    assert main(["data", f"lmdb:{tmp_path}"]) == 2
    assert f"{tmp_path}: " in (error := capsys.readouterr().err) and ("truncated: " in error or "not an LMDB" in error)


def database(path: Path, *values: bytes) -> str:
    with lmdb.open(str(path)) as there, there.begin(write=True) as transaction:
        for n, value in enumerate(values):
            transaction.put(b"%d" % n, value)
    return f"lmdb:{path}"


GOOD = Picture(1, np.ones((1, 2, 2), np.uint8)).to_bytes()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"", r"1: an array \(0, 0, 0\), which has no values"),
        (GOOD[:-3], r"1: the record: .*truncated, or not a Datum"),
        (GOOD[:-2] + b"\x28" + b"\xff" * 9 + b"\1", "1: label -1 is not a class number"),
        (GOOD[:-2] + b"\x28\x80\x80\x80\x80\x08", "1: label 2147483648 is not a class number"),
        (GOOD.replace(b"\x18\x02", b"\x18\x03"), r"1: the record: the image has the shape \(1, 2, 3\), but 4 numbers"),
        (
            GOOD.replace(b"\x10\x02", b"\x10" + b"\xff" * 9 + b"\1"),
            r"1: the record: the image has .* \(1, -1, 2\), but 4",
        ),
        (Picture(1, np.full((1, 2, 2), np.nan, "f4")).to_bytes(), "1: it holds values that are not finite"),
        (Picture(1, b"no image").to_bytes(), "1: an encoded image; the first record is an array"),
        (Picture(1, np.ones((1, 2, 3), np.uint8)).to_bytes(), r"1: an array \(1, 2, 3\); the first record is an array"),
    ],
)
def test_a_record_that_is_no_image_is_named(tmp_path, value, said):
    dataset = parse(database(tmp_path / "it", GOOD, value)).open()
    assert dataset.take(np.array([0]))[1].tolist() == [1]
    with pytest.raises(DataError, match=f"it: {said}"):
        dataset.take(np.arange(2))
