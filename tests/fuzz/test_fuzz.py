"""Some cases of each kind, the same in each run, and the corpus. `make fuzz` tries others (tests/README.md)."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import time
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minidnn.errors import BadInput
from tests.fuzz import corpus, limits
from tests.fuzz.attempt import attempt
from tests.fuzz.board import COUNTS, Board
from tests.fuzz.kind import Fault, Kind, command, printable, readable, refused, strictly
from tests.fuzz.kinds import KINDS, cifar, hdf5, lmdb, pictures, tar
from tests.fuzz.known import known
from tests.fuzz.samples import packed
from tests.fuzz.watch import Watch
from tests.fuzz.worker import Worker
from tests.support.examples import TIMES
from tests.support.paths import ROOT

CORPUS = [(kind, path) for kind in KINDS for path in corpus.cases(kind)]
QUICK = ("yaml", "npz", "idx", "plan")


def tried(kind: Kind, case: bytes, folder) -> bool:
    try:
        return attempt(kind, case, folder)
    except Exception as error:
        if why := known(kind.name, error):
            pytest.xfail(why)
        raise


@pytest.mark.parametrize("kind", [k if k in QUICK else pytest.param(k, marks=pytest.mark.slow) for k in KINDS])
def test_every_input_is_accepted_or_refused_in_words(kind, tmp_path):
    tells = set()
    made = KINDS[kind]

    @settings(max_examples=made.examples * TIMES, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(made.cases)
    def run(case):
        try:
            tells.add(attempt(made, case, tmp_path))
        except Exception as error:
            if not known(kind, error):
                raise

    run()
    assert tells == {True, False}, "some are accepted and some refused"


@pytest.mark.parametrize("module", [hdf5, lmdb, tar, pictures, cifar], ids=lambda module: module.KIND.name)
def test_every_good_file_is_read_as_its_samples_and_every_bad_one_refused(module, tmp_path):
    wrong = []
    for number, good in enumerate(module.goods()):
        try:
            accepted = attempt(module.KIND, packed(number, good.data), tmp_path)
            assert accepted if good.samples else not accepted or good.samples is not None
        except Exception as error:
            wrong.append(f"{good.name}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


def test_pictures_that_promise_much_take_little(tmp_path):
    for suffix, data in pictures.bombs():
        attempt(pictures.KIND, packed(253, suffix.encode() + b"\0" + data), tmp_path)


@pytest.mark.parametrize(("kind", "path"), CORPUS, ids=[f"{kind}-{path.name}" for kind, path in CORPUS])
def test_no_fault_comes_back(kind, path, tmp_path):
    tried(KINDS[kind], path.read_bytes(), tmp_path)


def test_the_corpus_is_small_and_names_no_machine():
    files = [path for path in corpus.FOLDER.rglob("*") if path.is_file()]
    assert {path.parent.name for path in files} <= KINDS.keys()
    assert sum(path.stat().st_size for path in files) < 300_000
    assert not [path for path in files if b"/home/" in (text := path.read_bytes()) or str(ROOT).encode() in text]


# ---- what finds faults, tried on faults


def bad(check) -> Kind:
    return Kind("bad", st.binary(max_size=9), check, 5)


def worker_of(check, tmp_path) -> tuple[Worker, Board]:
    board = Board(tmp_path, 1, 1)
    return Worker(0, [bad(check)], board, tmp_path / "found", time.monotonic() + 3600, 3600), board


def test_a_fault_is_counted_and_its_smallest_case_kept(tmp_path):
    def check(case, folder):
        (folder / "left").write_bytes(case)
        if len(case) > 2:
            raise ValueError("a slip")
        return bool(case)

    worker, board = worker_of(check, tmp_path)
    with worker:
        for number in range(3):
            worker.round(0, number, time.monotonic() + 3600)
    total = board.total()
    assert total["tracebacks"] >= 3 and total["accepted"] > 0 and total["refused"] > 0
    assert total["cases"] == total["tracebacks"] + total["accepted"] + total["refused"]
    assert [path.read_bytes() for path in (tmp_path / "found" / "bad").iterdir()] == [b"\0\0\0"]
    assert (tmp_path / "faults").read_text().count("a slip") >= 1


def test_a_case_that_takes_much_memory_is_counted_apart(tmp_path):
    worker, board = worker_of(lambda case, folder: bool(bytearray(3 << 30)), tmp_path)
    with worker:
        worker.round(0, 1, time.monotonic() + 3600)
    assert board.total()["over 1 GiB"] > 0 and board.total()["tracebacks"] == 0


def test_memory_counts_once_it_is_in_use():
    with limits.memory(64 << 20):
        mmap.mmap(-1, 100 << 20).close()  # pages that nobody writes to
    with pytest.raises(MemoryError, match="in use"), limits.memory(64 << 20):
        bytes(b"1" * (100 << 20))
    with pytest.raises(OSError, match="allocate"), limits.memory(64 << 20):
        mmap.mmap(-1, 200 << 20)


def test_a_case_that_hangs_or_ends_its_process_is_kept_and_others_go_on(tmp_path, monkeypatch):
    """The workers are processes that stand for such: one sleeps for ever in its case, one dies in it."""
    watch = Watch(tmp_path, ["yaml", "net"], 2, tmp_path / "found", hangs=0.5)

    def start(number, first_seed, until):
        watch.board.case(number).write_bytes(b"case of %d" % number)
        late = 0 if number == 0 else 3600  # a busy machine may take a while to start the one that dies
        watch.board.now[number] = number, time.monotonic() + late
        what = "import time; time.sleep(9999)" if number == 0 else "import os; os.abort()"
        watch.started += 1
        (tmp_path / f"log-{number}").touch()
        return subprocess.Popen([sys.executable, "-c", what], stderr=subprocess.DEVNULL)

    monkeypatch.setattr(watch, "start", start)
    watch.run(0, 1)
    total = watch.board.total()
    assert total["hangs"].tolist() == [1, 0] and total["signals"].tolist() == [0, 1]
    assert [p.read_bytes() for p in (tmp_path / "found" / "yaml").iterdir()] == [b"case of 0"]
    assert [p.read_bytes() for p in (tmp_path / "found" / "net").iterdir()] == [b"case of 1"]


def test_what_a_library_of_c_writes_is_a_fault(tmp_path):
    with pytest.raises(Fault, match="b'a word'"):
        attempt(bad(lambda case, folder: bool(os.write(2, b"a word"))), b"", tmp_path)


def test_a_warning_is_a_fault_even_if_the_input_is_refused():
    with pytest.raises(Fault, match="UserWarning: odd"), strictly():
        warnings.warn("odd", stacklevel=1)
        raise BadInput("refused")


@pytest.mark.extended
def test_the_command_prints_a_table(tmp_path):
    file = tmp_path / "table.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--minutes", "0", "--seed", "1", "--kinds", "yaml", "--json", str(file)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(file.read_text())
    assert document["seed"] == 1 and [row["kind"] for row in document["kinds"]] == ["yaml", "all"]
    assert all(f"  {what}" in done.stdout for what in COUNTS)


@pytest.mark.parametrize(
    "text", ["", "Traceback (most recent call last)", "a \x1b[2J", "internal error, please", "a\u202eb"]
)
def test_what_no_user_should_read(text):
    with pytest.raises(Fault):
        readable(text)


def test_what_a_user_may_read():
    readable("net.yaml:3:4: expected a number\nand more", "net.yaml")
    printable("one\ttwo\n")
    with pytest.raises(Fault, match="does not name"):
        readable("expected a number", "net.yaml")
    with pytest.raises(KeyError):
        refused(KeyError("a"))


def test_a_command_s_internal_error_is_a_fault(monkeypatch):
    from minidnn.cli import devices

    monkeypatch.setattr(devices, "run", lambda args: 1 // 0)
    with pytest.raises(Fault, match="internal error"):
        command("devices")
    assert command("--version").code == 0
