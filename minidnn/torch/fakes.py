"""Tensors without values in place of a module's own, so that a step of it computes and allocates nothing.

The module itself runs, with its hooks, and is afterwards as it was: parameters, buffers, gradients, flags, attributes
that the step sets, and the generators of random numbers.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minidnn.errors import InvalidInput
from minidnn.torch.experimental import dicts_of, fake_mode, mode_of, share_hooks, storage_of
from minidnn.torch.installed import torch_module

if TYPE_CHECKING:
    import torch

CONTAINERS = (dict, OrderedDict, list, set)


class Fakes:
    """Tensors without values, one for each tensor of a user's. Those that share a storage do so here, too.

    device: where they pretend to be, unless they are numbers that stay on the host
    """

    def __init__(self, device: Any) -> None:
        self.mode = fake_mode(allow_fallback_kernels=False)  # which would compute
        self.device = device
        self._known: dict[int, tuple[Any, Any]] = {}  # id of a tensor -> the tensor and its fake
        self._flat: dict[int, Any] = {}  # identity of a storage -> its fake, as a vector

    def own(self, x: Any) -> bool:
        """Whether it is a tensor of these."""
        return mode_of(x) is self.mode

    def of(self, x: Any) -> Any:
        """The fake of a tensor; of anything else, itself."""
        import torch

        if not isinstance(x, torch.Tensor) or self.own(x):
            return x
        if id(x) not in self._known:
            self._known[id(x)] = (x, self._made(torch, x))
        return self._known[id(x)][1]

    def _made(self, torch: Any, x: Any) -> Any:
        if x.layout != torch.strided or isinstance(x, torch.nn.parameter.UninitializedTensorMixin):
            kind = type(x).__name__ if x.layout == torch.strided else str(x.layout)
            raise InvalidInput(f"a tensor is {kind}, whose bytes depend on values or on a first call")
        with self.mode, torch.no_grad():
            fake = self._vector(torch, x).as_strided(x.shape, x.stride(), x.storage_offset()).detach()
        if isinstance(x, torch.nn.Parameter):
            fake = torch.nn.Parameter(fake, x.requires_grad)
        fake.requires_grad_(x.requires_grad)
        for name, value in vars(x).items():
            vars(fake).setdefault(name, value)
        share_hooks(x, fake)
        return fake

    def _vector(self, torch: Any, x: Any) -> Any:
        """The storage of the tensor's fake, as elements of its type."""
        at = storage_of(x)
        if at not in self._flat:
            count = x.untyped_storage().nbytes() // x.element_size()
            self._flat[at] = torch.empty(count, dtype=x.dtype, device=self._place(x))
        return self._flat[at].view(x.dtype)

    def _place(self, x: Any) -> Any:
        return "cpu" if x.device.type == "cpu" and x.dim() == 0 else self.device


def device_of(tensors: Iterable[Any]) -> Any:
    """The device whose ops a step on these tensors runs: CUDA if one of them is there and this PyTorch has CUDA (else
    its autograd ends the process), otherwise the CPU."""
    import torch

    there = [x.device for x in tensors if x.device.type == "cuda" and torch.cuda.is_available()]
    return there[0] if there else torch.device("cpu")


@contextlib.contextmanager
def borrowed(roots: Iterable[Any], fakes: Fakes) -> Iterator[None]:
    """Modules have fakes in place of their tensors, and afterwards all that they had."""
    import torch

    parts = list(dict.fromkeys(part for root in roots for part in root.modules()))
    if scripted := [type(part).__name__ for part in parts if isinstance(part, torch.jit.ScriptModule)]:
        raise InvalidInput(f"{scripted[0]} is a module of torch.jit; give the module that it was made of")
    before = [(part, dict(vars(part)), _contents(part)) for part in parts]
    try:
        for part in parts:
            for held in (*dicts_of(part)[:2], vars(part)):
                held.update({name: fakes.of(x) for name, x in held.items() if hasattr(x, "untyped_storage")})
        yield
    finally:
        for part, attributes, contents in before:
            vars(part).clear()
            vars(part).update(attributes)
            for container, content in contents:
                container.clear()
                (container.extend if isinstance(container, list) else container.update)(content)


def _contents(part: Any) -> list[tuple[Any, Any]]:
    """The containers among a module's attributes, and copies of what is in them."""
    return [(value, value.copy()) for value in vars(part).values() if type(value) in CONTAINERS]


@contextlib.contextmanager
def random_kept(device: Any) -> Iterator[None]:
    """The generators of random numbers are afterwards as they were: PyTorch's, NumPy's and Python's."""
    import torch

    ours, arrays = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
    finally:
        random.setstate(ours)
        np.random.set_state(arrays)


# ---- for a trace, in a mode of its own


def fakes_of(tensors: Sequence[torch.Tensor], own: int, mode: Any, device: str | None) -> list[torch.Tensor]:
    """A fake of each tensor. Of the first, the module's own, those that share memory do so as fakes, and others that
    share it with them."""
    storages = [t.untyped_storage() for t in tensors]
    times = Counter(s.data_ptr() for s in storages if s.nbytes())
    within = {s.data_ptr() for s in storages[:own]}
    bases: dict[int, Any] = {}
    result = []
    for t, s in zip(tensors, storages, strict=True):
        if t.device.type == "meta" or times[s.data_ptr()] < 2 or s.data_ptr() not in within:
            result.append(fake_of(t, mode, device))
            continue
        with mode:
            if s.data_ptr() not in bases:
                bases[s.data_ptr()] = torch_module().empty(
                    s.nbytes() // t.itemsize, dtype=t.dtype, device=device or t.device
                )
            base = bases[s.data_ptr()]
            if base.dtype != t.dtype:
                raise InvalidInput(
                    f"tensors of {t.dtype} and of {base.dtype} share memory: give each its own (x.clone())"
                )
            result.append(base.as_strided(tuple(t.shape), t.stride(), t.storage_offset()).detach())
    return result


def fake_of(t: torch.Tensor, mode: Any, device: str | None) -> torch.Tensor:
    """A tensor of this geometry without values."""
    torch = torch_module()
    place = device or ("cpu" if t.device.type == "meta" else t.device)
    with mode:
        return torch.empty_strided(tuple(t.shape), t.stride(), dtype=t.dtype, device=place)
