"""The C++ file that follows PyTorch's allocator, and how it is compiled: with the headers that PyTorch brings, anew for
each build of it. No wheel brings the library, since it serves one build of PyTorch alone."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from minidnn.compiled import Sources


@cache
def sources() -> Sources:
    """For the PyTorch that is installed."""
    import torch

    home = Path(torch.__file__).parent
    build = f"{torch.__version__} {torch.version.git_version} {home}"  # in the library's key, since headers are not
    options = (
        "-O1",
        "-std=c++20",
        "-fPIC",
        f"-I{home / 'include'}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        f'-DBUILD="{build}"',
    )
    return Sources(
        Path(__file__).parent,
        "what follows PyTorch's allocator, once: some seconds",
        lambda level: options,
        lambda: (),
        ends=".cpp",
        libraries=(f"-L{home / 'lib'}", "-lc10", "-lstdc++"),
    )
