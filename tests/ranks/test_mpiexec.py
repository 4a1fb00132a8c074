"""Ranks as processes that mpiexec starts: a folder's files, and what is printed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from minidnn.backends.cpu import CpuDevice
from tests.ranks.test_solvers import NET, SOLVER, files

pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install 'minidnn[mpi]'")
MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
pytestmark = pytest.mark.skipif(MPIEXEC is None, reason="there is no mpiexec")


MORE = 1 if CpuDevice().native is None else 3  # threads; oneDNN's sums without our own kernels depend on them


def train(folder: Path, ranks: int, *options: str) -> subprocess.CompletedProcess[str]:
    """`minidnn train` on so many ranks of one thread each, or on one rank of more threads, on which no bit depends."""
    launcher = [str(MPIEXEC), "-n", str(ranks)] if ranks > 1 else []
    command = [*launcher, sys.executable, "-m", "minidnn", "train", "solver.yaml", *options]
    variables = {**os.environ, "OMP_NUM_THREADS": str(1 if ranks > 1 else MORE)}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize(
    "ranks, each", [pytest.param(2, 2), pytest.param(4, 1, marks=pytest.mark.extended)], ids=["2x2", "4x1"]
)
def test_ranks_write_the_files_of_one_and_only_the_first_one_speaks(tmp_path, ranks, each):
    (tmp_path / "net.yaml").write_text(NET)
    (tmp_path / "solver.yaml").write_text(SOLVER)
    found = {}
    for name, n, m in (("alone", 1, 4), ("together", ranks, each)):
        found[name] = train(tmp_path, n, "--iter-size", str(m), "--snapshot-prefix", name)
        assert found[name].returncode == 0, found[name].stdout + found[name].stderr
    assert files(tmp_path, "together") == files(tmp_path, "alone") and len(files(tmp_path, "alone")) == 2
    told = found["together"].stdout + found["together"].stderr
    assert told.count("Optimization Done") == 1 and told.count("Snapshotting to together_iter_6") == 1
    gone_on = train(
        tmp_path, 1, "--iter-size", "4", "--snapshot-prefix", "on", "--resume", "together_iter_3.safetensors"
    )
    assert gone_on.returncode == 0 and files(tmp_path, "on") == {
        name: value for name, value in files(tmp_path, "alone").items() if "_6" in name
    }
