"""A snapshot is whole or not there: round trips, torn and corrupt files, a full disk, the newest valid."""

import contextlib
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from minidnn.files.replace import NEW
from minidnn.layers import rows
from minidnn.training import snapshot
from minidnn.training.snapshot import SaveError, Snapshot, SnapshotError
from tests.support.paths import ROOT
from tests.support.snapshots import sample


def same(a, b):
    assert a.weights.keys() == b.weights.keys() and a.state.keys() == b.state.keys()
    for x, y in ((a.weights, b.weights), (a.state, b.state)):
        assert all(
            x[name].whole().tobytes() == y[name].whole().tobytes() and x[name].shape == y[name].shape for name in x
        )
    assert (a.iteration, a.position, a.seed, a.facts) == (b.iteration, b.position, b.seed, b.facts)


def test_round_trip_under_the_name_it_says(tmp_path):
    path = snapshot.save(tmp_path / "new" / "net", sample())
    assert path == tmp_path / "new" / "net_iter_30.safetensors"
    same(snapshot.load(path), sample())
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_the_same_snapshot_is_the_same_file(tmp_path):
    files = {snapshot.save(tmp_path / str(k), sample()).read_bytes() for k in range(20)}
    assert len(files) == 1


def test_any_reader_can_use_it(tmp_path):
    path = snapshot.save(tmp_path / "net", sample())
    assert load_file(path)["conv1/w"].shape == (2, 1, 3, 3)
    assert set(snapshot.load_weights(path)) == {"conv1/w", "conv1/b"}


def test_a_view_that_is_not_contiguous(tmp_path):
    strided = np.arange(24, dtype=np.float32).reshape(2, 3, 2, 2).transpose(0, 3, 1, 2)
    path = snapshot.save(tmp_path / "net", Snapshot({"a/w": rows.of(strided)}, {}, 1, 0, 0))
    assert np.array_equal(snapshot.load(path).weights["a/w"].whole(), strided)


def test_every_torn_length_is_refused(tmp_path):
    path = snapshot.save(tmp_path / "net", sample())
    whole = path.read_bytes()
    for length in (*range(0, len(whole), 37), len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(SnapshotError, match=rf"net_iter_30.*\({length} bytes\)"):
            snapshot.load(path)


def test_every_flipped_byte_is_refused(tmp_path):
    path = snapshot.save(tmp_path / "net", sample())
    whole = bytearray(path.read_bytes())
    for k in range(0, len(whole), 5):
        whole[k] ^= 4
        path.write_bytes(whole)
        with pytest.raises(SnapshotError, match="net_iter_30"):
            snapshot.load(path)
        whole[k] ^= 4


def test_weights_alone_do_not_resume(tmp_path):
    save_file({"conv1/w": np.zeros(3, np.float32)}, tmp_path / "w.safetensors")
    assert snapshot.load_weights(tmp_path / "w.safetensors")["conv1/w"].shape == (3,)
    with pytest.raises(SnapshotError, match="use weights"):
        snapshot.load(tmp_path / "w.safetensors")


def test_who_may_read_it_is_the_users_choice(tmp_path):
    before = os.umask(0o027)
    try:
        path = snapshot.save(tmp_path / "net", sample())
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_numbers_that_numpy_lacks(tmp_path):
    header = json.dumps({"conv1/w": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    path = tmp_path / "w.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    for _ in range(2):
        with pytest.raises(SnapshotError, match=r"w\.safetensors: conv1/w holds BF16 numbers"):
            snapshot.load_weights(path)
        with contextlib.suppress(ImportError):  # which tells NumPy of them
            import ml_dtypes  # noqa: F401


def test_a_folder_is_no_snapshot(tmp_path):
    with pytest.raises(SnapshotError, match="not a regular file"):
        snapshot.load(tmp_path)


def test_missing_file(tmp_path):
    with pytest.raises(SnapshotError, match=r"no\.safetensors: No such file"):
        snapshot.load(tmp_path / "no.safetensors")


def test_latest_is_the_newest_whole_one(tmp_path):
    prefix = tmp_path / "n[1]*"
    assert snapshot.latest(prefix) == (None, None, [])
    for iteration in (9, 10, 100):
        snapshot.save(prefix, sample(iteration))
    snapshot.save(tmp_path / "n[1]*other", sample(500))
    torn = snapshot.path_of(prefix, 100)
    torn.write_bytes(torn.read_bytes()[:-7])
    path, found, rejected = snapshot.latest(prefix)
    assert path == snapshot.path_of(prefix, 10) and found.iteration == 10
    assert len(rejected) == 1 and str(torn) in rejected[0]


def test_a_crash_while_writing_leaves_the_old_one(tmp_path):
    path = snapshot.save(tmp_path / "net", sample())
    left = path.with_name(f".{path.name}.0123abcd{NEW}")
    left.write_bytes(b"half of a file")
    same(snapshot.latest(tmp_path / "net")[1], sample())
    snapshot.save(tmp_path / "net", sample(fill=2.5))
    same(snapshot.load(path), sample(fill=2.5))
    assert list(tmp_path.iterdir()) == [path]


def test_a_run_removes_what_killed_runs_of_its_prefix_left(tmp_path):
    left, others = (tmp_path / f".{name}_iter_7.safetensors.0123abcd{NEW}" for name in ("net", "nets"))
    for path in (left, others):
        path.write_bytes(b"half of a file")
    snapshot.check_writable(tmp_path / "net", 100)
    assert list(tmp_path.iterdir()) == [others]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_what_is_no_file_in_a_snapshots_place_is_said_at_the_beginning(tmp_path, make):
    in_the_way = tmp_path / "net_iter_30.safetensors"
    make(in_the_way)
    with pytest.raises(SaveError, match=r"net_iter_30\.safetensors: there is (a folder|no file) where a snapshot may"):
        snapshot.check_writable(tmp_path / "net", 100)
    with pytest.raises(SaveError, match=r"there is (a folder|no file)"):
        snapshot.save(tmp_path / "net", sample())
    assert list(tmp_path.iterdir()) == [in_the_way]


def test_a_disk_without_room_is_said_at_the_beginning(tmp_path):
    with pytest.raises(SaveError, match=r"net_iter_9\.safetensors: .* it needs 1048576 TiB, .* are free"):
        snapshot.check_writable(tmp_path / "net", 9, 2**60)


FULL = """
import resource, sys
sys.path.insert(0, {root!r})
from minidnn.training import snapshot
from tests.support.snapshots import sample
resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))  # as a full disk: writing stops in the middle
try:
    snapshot.save({prefix!r}, sample(fill=9))
except snapshot.SaveError as error:
    print(error)
"""


def test_a_disk_that_fills_up(tmp_path):
    before = snapshot.save(tmp_path / "net", sample())
    script = FULL.format(root=str(ROOT), prefix=str(tmp_path / "net"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "net_iter_30.safetensors: could not be written" in done.stdout
    assert "Earlier snapshots are intact" in done.stdout
    same(snapshot.load(before), sample())
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "a").write_text("")
    with pytest.raises(SaveError, match="could not be written"):
        snapshot.save(tmp_path / "a" / "net", sample())
    with pytest.raises(SaveError, match=r"/a: File exists; name another prefix"):
        snapshot.check_writable(tmp_path / "a" / "net")
    snapshot.check_writable(tmp_path / "b" / "net")
    assert not list((tmp_path / "b").iterdir())


def test_a_name_too_long_at_the_end_is_said_at_the_beginning(tmp_path):
    prefix = tmp_path / ("x" * (255 - len(f"._iter_0.safetensors.0123abcd{NEW}")))
    snapshot.check_writable(prefix)
    with pytest.raises(SaveError, match="File name too long; name another prefix"):
        snapshot.check_writable(prefix, 10)


def test_a_prefix_that_ends_in_a_slash(tmp_path):
    path = snapshot.save(f"{tmp_path}/a/", sample())
    assert path == tmp_path / "a" / "_iter_30.safetensors"
    assert snapshot.latest(f"{tmp_path}/a/")[0] == path


SAVING = """
import sys
sys.path.insert(0, {root!r})
from minidnn.training import snapshot
from tests.support.snapshots import sample
for _ in range(60):
    snapshot.save({prefix!r}, sample(fill=9))
"""


def test_runs_of_one_prefix_take_turns(tmp_path):
    script = SAVING.format(root=str(ROOT), prefix=str(tmp_path / "net"))
    both = [subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True) for _ in range(2)]
    assert [run.communicate()[1] for run in both] == ["", ""]
    same(snapshot.load(tmp_path / "net_iter_30.safetensors"), sample(fill=9))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_of_the_users_is_never_taken_for_ours(tmp_path):
    """The folder <file>.partial was once ours."""
    mine = tmp_path / "net_iter_30.safetensors.partial"
    mine.mkdir()
    (mine / "mine.txt").write_text("mine")
    (tmp_path / f".net_iter_30.safetensors.mine{NEW}").write_text("mine")
    (tmp_path / f".net_iter_30.safetensors.0123abcd{NEW}").mkdir()
    before = set(tmp_path.rglob("*"))
    snapshot.check_writable(tmp_path / "net", 30)
    path = snapshot.save(tmp_path / "net", sample())
    assert set(tmp_path.rglob("*")) == before | {path}


SUSPENDED = """
import os, signal, sys
sys.path.insert(0, {root!r})
from minidnn.training import snapshot
from tests.support.snapshots import sample
os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGSTOP)  # in the middle of a save
snapshot.save({prefix!r}, sample(fill=9))
"""


def test_a_run_that_is_suspended_while_it_saves_holds_nobody_up(tmp_path):
    script = SUSPENDED.format(root=str(ROOT), prefix=str(tmp_path / "net"))
    stopped = subprocess.Popen([sys.executable, "-c", script])
    try:
        os.waitpid(stopped.pid, os.WUNTRACED)
        snapshot.check_writable(tmp_path / "net", 30)
        path = snapshot.save(tmp_path / "net", sample())
        same(snapshot.load(path), sample())
        assert len(list(tmp_path.iterdir())) == 2, "its file is not taken from it"
    finally:
        stopped.kill()
        stopped.wait()
    snapshot.check_writable(tmp_path / "net", 30)
    assert list(tmp_path.iterdir()) == [path]


def checksum(tensors, meta):
    digest = snapshot._begun(meta)
    for _ in snapshot._digested({name: rows.of(array) for name, array in tensors.items()}, digest):
        pass
    return snapshot._text(digest)


@pytest.mark.parametrize(
    ("key", "value"),
    [("iteration", "x"), ("iteration", None), ("position", -1), ("position", 2**63), ("seed", 2**64), ("facts", [1])],
)
def test_metadata_that_cannot_be_is_refused_by_name(tmp_path, key, value):
    meta = {"version": 1, "iteration": 3, "position": 9, "seed": 1, "facts": {}, key: value}
    tensors = {"a/w": np.ones(2, np.float32)}
    metadata = {"minidnn": json.dumps({**meta, "checksum": checksum(tensors, meta)})}
    save_file(tensors, tmp_path / "a.safetensors", metadata)
    with pytest.raises(SnapshotError, match=f"corrupt: its {key} "):
        snapshot.load(tmp_path / "a.safetensors")


def test_metadata_nested_without_end_are_corrupt_and_passed_over(tmp_path):
    prefix = tmp_path / "net"
    snapshot.save(prefix, sample(5))
    deep = snapshot.path_of(prefix, 9)
    save_file({"a/w": np.ones(2, np.float32)}, deep, {"minidnn": "[" * 100_000})
    with pytest.raises(SnapshotError, match="corrupt: its metadata cannot be read"):
        snapshot.load(deep)
    path, found, rejected = snapshot.latest(prefix)
    assert path == snapshot.path_of(prefix, 5) and found.iteration == 5 and str(deep) in rejected[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_a_file_that_may_not_be_read_is_not_called_absent(tmp_path):
    path = snapshot.save(tmp_path / "net", sample())
    path.chmod(0)
    tmp_path.chmod(0o755)
    code = "import os, sys; from minidnn.training import snapshot; os.seteuid(65534); snapshot.load(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, path.name], capture_output=True, text=True, cwd=tmp_path)
    assert f"{path.name}: Permission denied" in done.stderr
