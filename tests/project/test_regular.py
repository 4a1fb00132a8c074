"""What is no regular file is refused before it is opened: by the functions that open files, and by all readers."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import pytest

from minidnn.cli.exit_codes import exit_code, message
from minidnn.data import mean_image, parse, raw_samples
from minidnn.errors import BadInput
from minidnn.files import regular
from minidnn.files.parts import Parts
from minidnn.layers.infogain import read_matrix
from minidnn.memory.packing.problem import read as read_problem
from minidnn.memory.policies.plan_file import load as load_plan
from minidnn.schema import read as read_document
from minidnn.training import snapshot
from minidnn.training.predict import read_names

pytestmark = pytest.mark.timeout(60)  # a reader that waits for a writer fails


def made(path: Path, kind: str) -> Path:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as file:
            file.bind(str(path))
    return path


@pytest.mark.parametrize("kind", ["pipe", "device", "socket", "folder"])
def test_it_is_refused(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)  # the path of a socket has a length, at most
    path = made(Path("it"), kind)
    before = len(os.listdir("/proc/self/fd"))
    for use in (regular.content, regular.opened):
        with pytest.raises(OSError, match="directory" if kind == "folder" else "not a regular file"):
            use(path)
    with pytest.raises(BadInput, match="not a regular file"):
        Parts(path, BadInput)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_exchanged_before_it_is_opened_is_refused_too(tmp_path, monkeypatch, kind):
    path, plain = made(tmp_path / "it", kind), tmp_path / "plain"
    plain.touch()
    status, before = plain.stat(), len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "stat", lambda path: status)
    with pytest.raises(OSError, match="directory" if kind == "folder" else "not a regular file"):
        regular.handle(str(path), os.O_RDONLY)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_regular_file_is_read(tmp_path):
    path = tmp_path / "it"
    path.write_text("a\nb")
    (tmp_path / "link").symlink_to(path)
    assert regular.content(path) == regular.content(tmp_path / "link") == b"a\nb"
    with open(path, encoding="utf-8", opener=regular.handle) as file:
        assert list(file) == ["a\n", "b"]


READERS = {
    "net.yaml": read_document, "net.prototxt": read_document, "w.caffemodel": read_document,
    "a.plan": load_plan, "w.safetensors": snapshot.load, "names.txt": lambda path: read_names(path, None),
    "h.binaryproto": read_matrix, "h.npy": read_matrix, "mean.binaryproto": mean_image, "mean.npy": mean_image,
    "x.datum": raw_samples, "x.npy": raw_samples, "buffers.csv": read_problem,
    "x.npz": lambda path: parse(path).open(), "list.txt": lambda path: parse(f"list:{path}").open(),
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_is_refused_by_all_readers(tmp_path, name):
    path = made(tmp_path / name, "pipe")
    with pytest.raises((BadInput, OSError), match="not a regular file"):
        READERS[name](str(path))


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte", "data_batch_1", "data_batch_1.bin"])
def test_a_pipe_among_the_files_of_a_folder(tmp_path, name):
    made(tmp_path / name, "pipe")
    source = parse(f"{'mnist' if 'idx' in name else 'cifar10'}:{tmp_path}")
    with pytest.raises(BadInput, match=r"there is no|not a regular file"):
        source.open()


def test_the_command_line_blames_the_input(tmp_path):
    with pytest.raises(OSError, match="not a regular file") as error:
        load_plan(made(tmp_path / "a.plan", "pipe"))
    assert exit_code(error.value) == 2 and message(error.value) == f"{tmp_path}/a.plan: not a regular file"
