"""Standard streams that are closed, full, broken, or of an encoding that lacks characters."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from minidnn.cli import streams
from minidnn.cli.exit_codes import exit_code, message
from minidnn.cli.main import main
from tests.cli.test_verbs import SOLVER, folder  # noqa: F401  (a fixture)

FULL = Path("/dev/full")


def test_a_log_to_a_closed_stream_does_not_get_into_the_document(folder):  # noqa: F811
    """Nor does a file get the number of a closed descriptor: the first ones opened would be 0 and 2."""
    command = [sys.executable, "-m", "minidnn", "train", "solver.yaml", "--max-iter", "2", "--json"]
    run = subprocess.run(["sh", "-c", 'exec "$@" <&- 2>&-', "sh", *command], stdout=subprocess.PIPE)
    assert run.returncode == 0 and json.loads(run.stdout)["iterations"] == 2


def test_python_without_streams_gets_some(monkeypatch):
    for name in streams.NAMES:
        monkeypatch.setattr(sys, name, None)
    assert main(["plan", "nosuch"]) == 2
    assert not sys.stdout.isatty() and not sys.stderr.isatty() and sys.stdin.read() == ""


@pytest.fixture
def stream(monkeypatch):
    """Puts a stream of a descriptor in place of sys.stdout or sys.stderr."""
    opened = []

    def put(name: str, descriptor: int, **how: str) -> None:
        opened.append(os.fdopen(descriptor, "w", **how))
        monkeypatch.setattr(sys, name, opened[-1])

    yield put
    for file in opened:
        file.close()


def broken() -> int:
    """The descriptor of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def full() -> int:
    if not FULL.exists():
        pytest.skip("there is no /dev/full")
    return os.open(FULL, os.O_WRONLY)


@pytest.mark.parametrize("descriptor", [broken, full])
def test_output_that_cannot_be_written_ends_training_with_a_snapshot(folder, stream, capsys, descriptor):  # noqa: F811
    stream("stdout", descriptor())
    assert main(["train", "solver.yaml", "--max-iter", "50", "--snapshot-prefix", "s"]) == 1
    assert list(folder.glob("s_iter_*.safetensors"))
    said = capsys.readouterr().err
    assert said == "" if descriptor is broken else "nothing more can be written" in said


@pytest.mark.parametrize("descriptor", [broken, full])
def test_an_error_that_cannot_be_told_has_its_exit_code(folder, stream, descriptor):  # noqa: F811
    stream("stderr", descriptor())
    assert main(["plan", "nosuch"]) == 2
    with pytest.raises(SystemExit, match="2"):
        main(["plan", "--nosuch"])


def test_a_table_that_cannot_be_written_is_a_failure(folder, stream, capsys):  # noqa: F811
    stream("stdout", full())
    assert main(["plan", "small.yaml"]) == 1
    assert "nothing more can be written" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [("plan", "small.yaml"), ("compare", "small.yaml", "--gpu", "k40")])
def test_an_encoding_without_our_characters_gets_similar_ones(folder, monkeypatch, argv):  # noqa: F811
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    assert main(list(argv)) == 0
    out.flush()
    text = out.buffer.getvalue().decode("ascii")
    assert "\\" not in text and "---" in text and text.count("\n") > 3


def test_other_characters_are_escaped(monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    streams.prepare()
    out.write("1.2 µs – 3 × é 😀")
    out.flush()
    assert out.buffer.getvalue() == b"1.2 us - 3 x \\xe9 \\U0001f600"


def test_reports_are_utf_8_in_every_locale(folder):  # noqa: F811
    Path("small.yaml").write_text(Path("small.yaml").read_text().replace("name: small", "name: größe"), "utf-8")
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    argv = ["compare", "small.yaml", "--gpu", "k40", "--policies", "baseline", "--report", "a.html"]
    run = subprocess.run([sys.executable, "-m", "minidnn", *argv], env=ascii_only, capture_output=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.isascii() and b"gr\\xf6\\xdfe" in run.stdout
    assert "größe" in Path("a.html").read_text(encoding="utf-8")


def test_a_name_that_the_locale_cannot_write_is_the_users_error(monkeypatch):
    error = UnicodeEncodeError("ascii", "é.npz", 0, 1, "ordinal not in range(128)")
    assert exit_code(error) == 1
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
    assert exit_code(error) == 2 and message(error).startswith("é.npz: this locale (ascii)")
