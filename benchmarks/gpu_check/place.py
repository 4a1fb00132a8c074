"""A Place, where the items run: the GPU of this machine, or, in a rehearsal, a CUDA in the host's memory
(tests/support/cuda/fake.py).

An item takes devices, sizes and nets from its place and from nowhere else. So a rehearsal runs the same code.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, cached_property
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks import nets
from benchmarks.gpu_check.pinned import Pinned
from minidnn.backends.cuda import compile, packages, slices
from minidnn.backends.cuda.cudnn import Settings
from minidnn.backends.cuda.device import CudaDevice
from minidnn.backends.cuda.nvrtc import Nvrtc
from minidnn.measuring.link import ops
from minidnn.memory import policies
from minidnn.nets.net import Net
from minidnn.zoo.gpt import GPT2

PROCESSES = 8  # how many compile at once
# Bytes of the machine's memory that a run may take. A lent machine says that it has less: it grows as it is used.
RAM = 120 << 30
NETS = Path(__file__).parents[2] / "tests" / "support" / "nets"


class Place:
    """The first GPU that CUDA shows."""

    small = False
    torch = "cuda"  # the name of PyTorch's device
    formats = ("float32", "bfloat16")  # that are timed, float32 with TF32 allowed
    link_bytes = 1 << 30
    inner_bytes = 1 << 30  # that are copied within the card
    filled_bytes = 4 << 30  # that item s fills again and again while the host waits
    beside = ops()  # that run while copies are timed
    large = 64 << 30  # bytes of the card that item s allocates at once
    pinned = (1 << 30, 4 << 30)  # bytes of page-locked memory whose allocation item s times
    staged = ("resnet50", 32)  # the net that item s loads, stage by stage
    tight = 12 << 30  # the budget of item e
    # (batch, channels, side) of convolutions, and (rows, inputs, outputs) of products, of more than 2^31 elements: of
    # vgg's second convolution, and of the words of GPT-2
    large_maps, large_products = (705, 64, 224), (65540, 768, 50257)
    # (net, batch) that item d compares with PyTorch; item f runs some of them under every policy
    speed = (("resnet50", 256), ("gpt2", 8), ("vgg19", 256), ("vgg16", 64), ("alexnet", 256), ("googlenet", 128))
    foresight = (("vgg16", 64), ("resnet50", 256))
    brief = (("resnet50", 1), ("resnet50", 16), ("gpt2", 1))  # small batches of item l
    hosted = (("gpt2", 8),)  # whose weights the host updates in item u
    named = "cuda"  # the device, for a command
    compiled = (("resnet50", 256, "bfloat16"), ("resnet50", 256, "float32"), ("vgg16", 64, "bfloat16"))
    tight_nets = (("vgg19", 256), ("resnet152", 64))
    planned = ("vgg19", "resnet50", "googlenet", "alexnet")  # nets whose cuDNN plans item h compares
    policy_nets: tuple[str, ...] = ("lenet", "residual", "inception", "chain", "diamond", "nested")
    # (net of tests/torch/nets, batch) and shares of item t; the ring of its steps
    torch_nets: tuple[tuple[str, int], ...] = (("gpt2", 64), ("vit", 64), ("convnext", 64))
    torch_shares: tuple[int, ...] = (60, 30)
    torch_ring = "256MiB"

    def __init__(self) -> None:
        self._devices: dict[bool, CudaDevice] = {}
        self._pinned: list[Pinned] = []
        self._nets: dict[tuple[str, int | None], Net] = {}

    def device(self, tf32: bool = True) -> CudaDevice:
        """The device, opened once. A caller may set `device.graphs` before it makes a Session."""
        if tf32 not in self._devices:
            self._devices[tf32] = self._open(tf32)
            self._pinned.append(Pinned(self._devices[tf32].api))
        self._devices[tf32].graphs = True
        return self._devices[tf32]

    def _open(self, tf32: bool) -> CudaDevice:
        from minidnn.backends.cuda import open_gpu

        return open_gpu(tf32=tf32)

    def forget_pinned(self) -> None:
        """Give back the page-locked memory that is kept for the next net."""
        for pinned in self._pinned:
            pinned.forget()

    def undetermined(self) -> CudaDevice:
        """The device, which also takes cuDNN's plans whose results differ from run to run.

        PyTorch takes such plans if nobody forbids it. So this is for a second column of times beside PyTorch's, and
        never for a comparison of results.
        """
        from minidnn.backends.cuda import open_gpu

        return open_gpu(deterministic=False)

    def counting(self) -> AbstractContextManager[object]:
        """A context in which cuDNN gets as many elements at once as it counts."""
        return nullcontext()

    def answers(self) -> bool:
        """Whether CUDA still works after a failure."""
        try:
            for device in self._devices.values():
                device.api.synchronize(device.compute)
                device.api.free_memory()
        except Exception:
            return False
        return True

    def refused(self) -> dict[str, str]:
        """The plans that cuDNN listed and refused to run in this process, each with its message."""
        found: dict[str, str] = {}
        for device in self._devices.values():
            found |= {name: f"{name}: {why}" for name, why in device.nan.refused.items()} | device.refused
        return found

    def clocks(self) -> str:
        """The card's clocks, power and temperature, as nvidia-smi prints them; why not, if it does not."""
        command = ["nvidia-smi", "--query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu", "--format=csv,noheader"]
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
        except (OSError, subprocess.SubprocessError) as error:
            return f"not known: {error}"

    def net(self, name: str, batch: int | None = None) -> Net:
        """The net of that name in the zoo; "tests/NAME" is tests/support/nets/NAME.yaml.

        Each net is made once and remembers its first weights: vgg16's 138 million random numbers take five seconds, and
        it is loaded a dozen times."""
        if (name, batch) not in self._nets:
            self._nets[name, batch] = nets.remembering(self._found(name, batch))
        return self._nets[name, batch]

    def _found(self, name: str, batch: int | None) -> Net:
        if name.startswith("tests/"):
            return Net.from_file(NETS / f"{name.removeprefix('tests/')}.yaml", batch)
        return nets.found(name, batch)

    def policies(self, first: Sequence[str]) -> list[str]:
        """All policies that plan any net: first those of `first` that exist, in that order (with their ':p', if any),
        then the others."""
        known = [name for name in policies.names() if name not in policies.SOME_NETS]
        here = [name for name in first if name.partition(":")[0] in known]
        return [*here, *(name for name in known if name not in here)]

    def settle(self, tf32: bool) -> None:
        """Set PyTorch's switches; TF32 as `tf32` says."""
        from benchmarks.peer import settle

        settle(tf32)

    # ---- steps of PyTorch modules

    def torch_steps(self, step: Any, library: Any = None) -> AbstractContextManager[object]:
        """A context for calls of a step."""
        return nullcontext()

    def torch_addresses(self) -> Any:
        """The allocator of planned addresses, in PyTorch's place."""
        from minidnn.torch.addresses.api import installed, planned_addresses

        planned_addresses()
        return installed()

    # ---- memory and code

    def total_memory(self) -> int:
        """Bytes of the card's memory, free or not. Makes CUDA's context if there is none."""
        return packages.load().cupy.cuda.runtime.memGetInfo()[1]  # type: ignore[union-attr]

    def sources(self) -> tuple[str, ...]:
        """The names of all sources of kernels."""
        return compile.source_names()

    def compile(self, what: Sequence[tuple[str, str]]) -> list[float]:
        """Seconds that each (source, storage) takes to compile into the cache.

        They are compiled in several processes, because NVRTC compiles one at a time for all threads of a process."""
        major, minor = packages.find_driver().cards[0].capability
        with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as pool:
            return list(pool.map(compiled, *zip(*what, strict=True), repeat(10 * major + minor)))

    # ---- cuDNN

    def properties(self) -> Mapping[str, Any]:
        """The card's properties, as cuDNN lists them."""
        from minidnn.backends.cuda import cudnn

        return cudnn.properties(self.device().cudnn.module)

    def deviceless(self, properties: Mapping[str, Any]) -> Any:
        """A Cudnn for a card with these properties, which need not be in this machine."""
        from minidnn.backends.cuda.cudnn import Cudnn, Target

        here = self.device().cudnn
        return Cudnn(here.module, Target.properties(here.module, properties), here.settings)

    # ---- tools

    @cached_property
    def sanitizer(self) -> list[str] | None:
        """The command that checks memory accesses (compute-sanitizer), before the command to check; None if missing."""
        for path in (shutil.which("compute-sanitizer"), "/usr/local/cuda/bin/compute-sanitizer"):
            if path and os.access(path, os.X_OK):
                return [path, "--tool", "memcheck", "--error-exitcode", "9"]
        return None


class Rehearsal(Place):
    """A place without a GPU: sources are compiled by g++, convolutions are the reference's, PyTorch runs on the CPU.

    Times that are measured here mean nothing."""

    small = True
    torch = "cpu"
    link_bytes = 1 << 16
    beside = ops(1 << 10, 16)
    inner_bytes = filled_bytes = 1 << 16
    tight = 1 << 40
    speed = (("tests/residual", 4), ("gpt2", 2))
    large_maps, large_products = (15, 3, 8), (25, 24, 40)
    large = 1 << 22
    pinned = (1 << 20,)
    staged = ("tests/residual", 4)
    foresight = (("tests/lenet", 4),)
    brief = (("tests/residual", 1),)
    hosted = (("tests/residual", 4), ("gpt2", 2))
    named = "cpu"
    compiled = (("tests/lenet", 4, "bfloat16"),)
    tight_nets = (("tests/residual", 4),)
    planned = ("tests/lenet",)
    policy_nets = ("lenet",)
    torch_nets = (("vgg", 4),)
    torch_shares = (90,)
    torch_ring = "4MiB"

    def _open(self, tf32: bool) -> CudaDevice:
        from tests.support.cuda.fake import fake_device

        device = fake_device(memory=8 << 30)
        device.cudnn.settings = Settings(tf32=tf32)
        return device

    def _found(self, name: str, batch: int | None) -> Net:
        if name == "gpt2":
            return GPT2(batch=batch or 2, seq=6, width=16, blocks=1, heads=2, vocabulary=40)
        return super()._found(name, batch)

    def undetermined(self) -> CudaDevice:
        return self.device()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """So few that small examples go to it in slices."""
        before, slices.MOST = slices.MOST, 500
        try:
            yield
        finally:
            slices.MOST = before

    def policies(self, first: Sequence[str]) -> list[str]:
        return super().policies(first)[:2]

    def settle(self, tf32: bool) -> None:
        import torch

        torch.set_num_threads(1)  # on small arrays several threads only wait for one another
        super().settle(tf32)

    def torch_steps(self, step: Any, library: Any = None) -> AbstractContextManager[object]:
        from tests.torch.imitation_host import imitated

        return imitated(step, library)

    def torch_addresses(self) -> Any:
        from minidnn.torch.addresses import api
        from minidnn.torch.addresses.library import library
        from tests.torch.driver import Driver

        result, driver = library(), Driver(8 << 30)
        result.setup(driver.take, driver.give)
        api._installed.append(result)
        return result

    def total_memory(self) -> int:
        return self.device().api.memory  # type: ignore[attr-defined]

    def sources(self) -> tuple[str, ...]:
        return ("elementwise",)

    def compile(self, what: Sequence[tuple[str, str]]) -> list[float]:
        from tests.support.cuda.host import library

        return [_seconds(lambda s=source, t=storage: library(s, storage=t)) for source, storage in what]

    def properties(self) -> Mapping[str, Any]:
        return {"deviceName": "a CUDA on the host", "deviceVer": 900}

    def deviceless(self, properties: Mapping[str, Any]) -> Any:
        return self.device().cudnn

    @cached_property
    def sanitizer(self) -> list[str] | None:
        return ["env"]  # runs the command that follows, as the sanitizer does


def compiled(source: str, storage: str, arch: int) -> float:
    """Seconds to compile a source into the cache; runs in a process of its own."""
    return _seconds(lambda: compile.cubin(_nvrtc(), source, arch, storage))


@cache
def _nvrtc() -> Nvrtc:
    return Nvrtc(packages.load(gpu=False).paths["nvrtc"])


def _seconds(work: Callable[[], object]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began


def card() -> str:
    """The name of the first GPU. Takes no memory on it. Raises CudaUnavailable."""
    return packages.find_driver().cards[0].name


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "gpu"
