"""`pytest --tell` ends with what tests counted: they say it with record_property("told", a line), or
record_property("so many of what", a number), which are added up.
"""

from __future__ import annotations

import functools
import gc
import os
import signal
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import settings

from minidnn.files import cache
from tests.support import peers
from tests.support.examples import PROFILE

settings.load_profile(PROFILE)
# Threads of libgomp that wait for work sleep after some hundred microseconds, since two tests run at once. By default
# they look for work for milliseconds, and so keep the cores from the other test's threads.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
# OpenBLAS's threads look for work for some 25 ms after each product, and so take more of the processor than products.
# It reads this when NumPy is imported. `.ci/run` runs the tests of equal bytes with two threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture
def small_copies(monkeypatch) -> None:
    """Copies between device and host are measured with few bytes, where what is measured does not matter."""
    from minidnn.measuring.link import link, ops

    monkeypatch.setattr(link, "__defaults__", (1 << 16, 1, ops(1 << 14, 32)))


@pytest.fixture
def own_cache(tmp_path, monkeypatch, small_copies) -> Path:
    """A user's cache of the test's own: empty, but for our compiled kernels, which take a while."""
    compiled, folder = cache.home() / "native", tmp_path / "cache"
    cache.make_folder(compiled / "any")
    (folder / "minidnn").mkdir(parents=True)
    (folder / "minidnn" / "native").symlink_to(compiled)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def default_handlers():
    """Python's handlers of signals, whatever the tests were started with: nohup and a shell's background ignore some,
    and a child process ignores what its parent does."""
    handlers = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def pytest_addoption(parser) -> None:
    parser.addoption("--tell", action="store_true", help="end with what tests counted")


# ---- extended: what `make test` leaves out

# Whose slow tests are extended: a backend that this machine cannot run, papers' tables, scripts and verbs that measure,
# large nets.
EXTENDED = [
    Path(__file__).parent / folder
    for folder in ("api", "backends/cuda", "benchmarks", "jobs", "measuring", "nets", "papers")
]


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marks
def pytest_collection_modifyitems(items) -> None:
    for item in items:
        if item.get_closest_marker("slow") and _extended(item.path):
            item.add_marker("extended")


@functools.cache
def _extended(file: Path) -> bool:
    return any(folder in file.parents for folder in EXTENDED)


# ---- peers: no test module imports one, and a test only if it has the mark (tests/support/peers.py)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    gc.disable()  # what is collected stays: to look through it again and again takes half of the collecting
    try:
        with peers.refused():
            return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    with nullcontext() if peers.of(item) else peers.refused():
        return (yield)


def pytest_runtest_setup(item) -> None:
    if missing := [name for name in peers.of(item) if not peers.installed(name)]:
        pytest.skip(f"not installed: {', '.join(missing)}")


PEERLESS = "Skipped: not installed: "


def _peerless(terminalreporter) -> Counter:
    """Tests skipped for want of each peer."""
    reasons = (report.longrepr[2] for report in terminalreporter.stats.get("skipped", []))
    return Counter(reason.removeprefix(PEERLESS) for reason in reasons if reason.startswith(PEERLESS))


def pytest_terminal_summary(terminalreporter, config) -> None:
    if counts := _peerless(terminalreporter):
        told = ", ".join(f"{count} of {name}" for name, count in sorted(counts.items()))
        terminalreporter.write_line(f"tests beside packages that are not installed: {told} (make test-peers runs them)")
    if not config.getoption("--tell"):
        return
    lines, counts = [], Counter()
    for report in terminalreporter.stats.get("passed", []):
        for name, value in report.user_properties:
            if name == "told":
                lines.append(value)
            else:
                counts[name] += value
    terminalreporter.section("counted")
    for line in [*lines, *(f"{name}: {count}" for name, count in counts.items())]:
        terminalreporter.line(line)
