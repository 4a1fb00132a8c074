"""Where the items run: on the GPU of this machine, or, rehearsed, on tests/cuda_fake.py's CUDA of the host's memory.

An item asks its place for devices, sizes and nets and for nothing else, so that what is rehearsed is what is run.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from minidnn import zoo
from minidnn.backends.cuda.device import CudaDevice
from minidnn.net import Net

NETS = Path(__file__).parents[2] / "tests" / "nets"


class Place:
    """The first GPU that CUDA shows."""

    small = False
    torch = "cuda"  # the name of PyTorch's device
    formats = ("float32",)  # of the backend's storage; an item's cases carry the name, so that others can join
    link_bytes = 1 << 30
    tight = 12 << 30  # the budget of item e
    # (net, batch) of item d, beside PyTorch's on the same card; item f takes some of them, under every policy
    speed = (("resnet50", 256), ("vgg16", 64), ("alexnet", 256), ("googlenet", 128), ("vgg19", 256))
    foresight = (("vgg16", 64), ("resnet50", 256))
    tight_nets = (("vgg19", 256), ("resnet152", 64))
    planned = ("vgg19", "resnet50", "googlenet", "alexnet")  # whose plans item h compares
    policy_nets: tuple[str, ...] = ("lenet", "residual", "inception", "chain", "diamond", "nested")

    def __init__(self) -> None:
        self._devices: dict[bool, CudaDevice] = {}

    def device(self, tf32: bool = True) -> CudaDevice:
        """Opened once. `device.graphs` may be set before a Session is made."""
        if tf32 not in self._devices:
            self._devices[tf32] = self._open(tf32)
        self._devices[tf32].graphs = True
        return self._devices[tf32]

    def _open(self, tf32: bool) -> CudaDevice:
        from minidnn.backends.cuda import open_gpu

        return open_gpu(tf32=tf32)

    def answers(self) -> bool:
        """Whether CUDA still does what it is asked, after something failed."""
        try:
            for device in self._devices.values():
                device.api.synchronize(device.compute)
                device.api.free_memory()
        except Exception:
            return False
        return True

    def net(self, name: str, batch: int | None = None) -> Net:
        """Of the zoo, or of tests/nets where it is called tests/NAME."""
        if name.startswith("tests/"):
            return Net.from_yaml(NETS / f"{name.removeprefix('tests/')}.yaml", batch)
        found = zoo.find(name, batch)
        return found if isinstance(found, Net) else Net.from_yaml(found, batch)

    # ---- cuDNN

    def properties(self) -> Mapping[str, Any]:
        """The card's, as cuDNN lists them."""
        from minidnn.backends.cuda import cudnn

        return cudnn.properties(self.device().cudnn.module)

    def deviceless(self, properties: Mapping[str, Any]) -> Any:
        """A Cudnn for a card of these properties, which need not be here."""
        from minidnn.backends.cuda.cudnn import Cudnn, Target

        here = self.device().cudnn
        return Cudnn(here.module, Target.properties(here.module, properties), here.settings)

    # ---- tools

    @cached_property
    def sanitizer(self) -> list[str] | None:
        """The command that looks for bad memory accesses; None where there is none."""
        for path in (shutil.which("compute-sanitizer"), "/usr/local/cuda/bin/compute-sanitizer"):
            if path and os.access(path, os.X_OK):
                return [path, "--tool", "memcheck", "--error-exitcode", "9"]
        return None


class Rehearsal(Place):
    """No GPU: sources run through g++, convolutions are the reference's, PyTorch runs on the CPU. Nothing that is timed
    here means anything."""

    small = True
    torch = "cpu"
    link_bytes = 1 << 16
    tight = 1 << 40
    speed = (("tests/lenet", 4), ("tests/residual", 4))
    foresight = (("tests/lenet", 4),)
    tight_nets = (("tests/residual", 4),)
    planned = ("tests/lenet",)
    policy_nets = ("lenet",)

    def _open(self, tf32: bool) -> CudaDevice:
        from tests.cuda_fake import fake_device

        return fake_device(memory=8 << 30)

    def properties(self) -> Mapping[str, Any]:
        return {"deviceName": "a CUDA on the host", "deviceVer": 900}

    def deviceless(self, properties: Mapping[str, Any]) -> Any:
        return self.device().cudnn

    @cached_property
    def sanitizer(self) -> list[str] | None:
        return ["env"]  # runs the command that follows, as the sanitizer would


def card() -> str:
    """The name of the first GPU. Touches no memory of it. Raises CudaUnavailable."""
    from minidnn.backends.cuda import packages

    return packages.find_driver().cards[0].name


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "gpu"
