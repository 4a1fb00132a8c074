"""The file of the user's cache that keeps scratch, one for each device with all that scratch depends on: PyTorch's
build, the processor's instructions or the GPU, the number of threads, PyTorch's switches, and how bytes are counted.

Several processes may keep values at once: each locks the file, adds its own to those that are there, and replaces it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from minidnn import cpuinfo
from minidnn.files import cache
from minidnn.torch.memory import without_hook
from minidnn.visible import say_once

FORMAT = 1
Values = Mapping[str, tuple[int, tuple[int, ...]]]  # a call's key -> its scratch, and the bytes of each result


def identity(device: str) -> str:
    """A text of all that scratch on this device depends on, the calls apart."""
    import torch

    switches: dict[str, Any] = {
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "oneDNN": torch.backends.mkldnn.enabled,
        "environment": [os.environ.get(name, "") for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")],
    }
    if device == "cpu":
        switches["profiler"] = bool(without_hook())  # which sees one thread
        where = f"{torch.backends.cpu.get_cpu_capability()}\n{cpuinfo.native()}"
    else:
        where = f"{torch.cuda.get_device_name(device)} {torch.version.cuda} {torch.backends.cudnn.version()}"
        switches["cuDNN"] = [torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark]
        switches["environment"] += [os.environ.get(f"CUBLAS{lt}_WORKSPACE_SIZE", "") for lt in ("_", "LT_")]
    return f"{torch.__version__} {torch.version.git_version}\n{switches}\n{where}"


def path(device: str, directory: Path | None = None) -> Path:
    """The file for this device. directory: default: a folder of the user's cache"""
    digest = hashlib.sha256(identity(device).encode()).hexdigest()[:12]
    return (directory or cache.home() / "torch") / f"scratch-{device.partition(':')[0]}-{digest}.json"


def load(file: Path) -> dict[str, tuple[int, tuple[int, ...]]]:
    """What the file keeps; nothing where it cannot be used: then it is measured again, and written anew."""
    content = cache.kept(file)
    if content is None:
        return {}
    result = json.loads(content)
    if result["format"] != FORMAT:
        return {}
    return {key: (nbytes, tuple(results)) for key, (nbytes, results) in result["calls"].items()}


def add(file: Path, values: Values) -> None:
    """Keep these values beside those that are there. Where the cache cannot be used, say so once on stderr."""
    try:
        cache.make_folder(file)
        with _locked(file.with_suffix(".lock")):
            whole = {**load(file), **values}
            content = json.dumps({"format": FORMAT, "calls": whole}, indent=0)
            cache.keep(file, content.encode(), "scratch of PyTorch's operators is measured at each start")
    except OSError as error:
        why = cache.reason(error, file)
        say_once(f"minidnn: scratch of PyTorch's operators is measured at each start, since it cannot be kept: {why}")


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Where the file system has no locks, the last of several processes wins: then some is measured again."""
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
