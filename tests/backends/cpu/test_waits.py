"""How long idle threads look for work, as GNU's OpenMP itself says it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from minidnn.backends.cpu import CpuDevice, waits

OPEN = """
import os
from minidnn.backends.cpu import CpuDevice
before = dict(os.environ)
CpuDevice()
assert os.environ == before
"""


@pytest.mark.skipif(CpuDevice().threads is None, reason="the cpu device has no threads of OpenMP")
@pytest.mark.parametrize(
    "given, spins",
    [
        ({}, waits.BRIEF),
        ({"GOMP_SPINCOUNT": "77"}, "77"),
        ({"OMP_WAIT_POLICY": "passive"}, "0"),
    ],
    ids=["brief", "counted", "passive"],
)
def test_threads_wait_briefly_unless_the_user_decides(given, spins):
    environment = {k: v for k, v in os.environ.items() if k not in waits.DECIDES}
    done = subprocess.run(
        [sys.executable, "-c", OPEN], env={**environment, **given, "OMP_DISPLAY_ENV": "verbose"}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = re.findall(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr)
    if not found:
        pytest.skip("this OpenMP is not GNU's")
    assert set(found) == {spins}
