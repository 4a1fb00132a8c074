"""The bytes that PyTorch itself takes for a step `loss = ...; loss.backward()`, predicted: nothing is computed.

The module runs on tensors without values, and every storage is followed from its birth to its death (following.py). So
the answer has what eager keeps alive, exactly. It lacks what ops take beside their results, unless `scratch` tells, and
what stands outside the step: the optimizer's state (optimizer.py), the CUDA context.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from minidnn.errors import InvalidInput
from minidnn.program import Role
from minidnn.torch import caching
from minidnn.torch.blocks import checkpoint_each
from minidnn.torch.constants import eager_paths
from minidnn.torch.experimental import mode_of, trees
from minidnn.torch.fakes import Fakes, borrowed, device_of, random_kept
from minidnn.torch.following import Follower, Scratch
from minidnn.torch.lives import Event, Storage, alive, curve
from minidnn.torch.places import refused


@dataclass(frozen=True)
class Eager:
    """The bytes of a step of eager PyTorch after `zero_grad()`: forward, loss and backward.

    device:       whose ops were followed: "cuda" if the module is there, else "cpu". The two differ here and there: a
                  dropout's mask has 4 bytes an element on the cpu, and 1 on CUDA
    storages:     all storages that the step has, which events name by place
    before:       events before the step: parameters, buffers, the batch
    events:       those of the step. What is alive at its end are the loss and the gradients
    checkpointed: the paths of the blocks that run again in backward; empty for plain eager
    """

    device: str
    storages: tuple[Storage, ...]
    before: tuple[Event, ...]
    events: tuple[Event, ...]
    checkpointed: tuple[str, ...] = ()

    @property
    def standing(self) -> int:
        """The bytes that are there before the step: parameters, buffers, the batch."""
        return sum(event.nbytes for event in self.before)

    @cached_property
    def curve(self) -> tuple[int, ...]:
        """The bytes that the step adds to `standing`, after each of its events."""
        return curve(self.events)

    @property
    def above(self) -> int:
        """The most bytes that the step adds to `standing`: activations, gradients, scratch."""
        return max(self.curve, default=0)

    @property
    def peak(self) -> int:
        """The most bytes at once, all included, as a sum of exact sizes."""
        return self.standing + self.above

    @cached_property
    def reserved(self) -> int:
        """The bytes that CUDA's caching allocator would reserve for it: `peak`, rounding and fragmentation."""
        return caching.reserved((*self.before, *self.events))

    @cached_property
    def at_peak(self) -> tuple[Storage, ...]:
        """What is alive when the bytes are at their most for the first time, the largest first."""
        count = len(self.before) + (self.curve.index(self.above) + 1 if self.events else 0)
        there = [self.storages[at] for at in alive((*self.before, *self.events), count)]
        return tuple(sorted(there, key=lambda storage: -storage.nbytes))


def predict(
    module: Any,
    args: Any,
    kwargs: Mapping[str, Any] | None = None,
    loss: Callable[[Any, Any], Any] | None = None,
    scratch: Scratch | None = None,
    checkpointed: bool = False,
) -> Eager:
    """The bytes of a step of the module, which stays as it is. It may be on the cpu, on CUDA, on "meta", or fake.

    args:         its positional arguments, a tuple, whose tensors need no values
    loss:         loss(module(*args[:-1], **kwargs), args[-1]); None: the module gives its loss, alone, or as "loss" of
                  a mapping or an object
    scratch:      the bytes that an op takes beside its results: scratch(func, args, kwargs), with fake tensors
    checkpointed: run each repeated block under torch.utils.checkpoint (blocks.py)

    Raises InvalidInput, with the line of the user's code, for a module that needs values to know what to do, or that
    fails; also if there are no blocks to checkpoint."""
    import torch

    name = type(module).__name__
    if not isinstance(module, torch.nn.Module):
        raise InvalidInput(f"expected a torch.nn.Module, got {name}")
    if not isinstance(args, (tuple, list)) or (loss is not None and not args):
        raise InvalidInput(
            f"expected a tuple of arguments{', the last for the loss' if loss else ''}, got {args!r:.80}"
        )
    roots = {"": module, "loss": loss} if isinstance(loss, torch.nn.Module) else {"": module}
    batch = [x for x in trees().tree_leaves((args, dict(kwargs or {}))) if isinstance(x, torch.Tensor)]
    device = device_of([*module.parameters(), *module.buffers(), *batch])
    with random_kept(device):
        return _followed(torch, roots, device, (tuple(args), dict(kwargs or {})), loss, scratch, checkpointed)


def _followed(
    torch: Any, roots: Mapping[str, Any], device: Any, batch: Any, loss: Any, scratch: Scratch | None,
    checkpointed: bool,
) -> Eager:  # fmt: skip
    """What was observed of a step."""
    fakes, module = Fakes(device), roots[""]
    paths = {id(part): path for prefix, root in roots.items() for path, part in root.named_modules(prefix=prefix)}
    follower = Follower(fakes, paths, scratch)
    with borrowed(roots.values(), fakes):
        for root in roots.values():
            _stand(follower, root, paths)
        given, batch = trees().tree_leaves(batch), trees().tree_map(fakes.of, batch)
        for number, (real, x) in enumerate(zip(given, trees().tree_leaves(batch), strict=True)):
            if fakes.own(x):
                follower.stands(x, Role.INPUT, "", f"batch {number}")
                follower.values.give(x, real)
        blocks = checkpoint_each(module, follower.within) if checkpointed else ()
        with refused(type(module).__name__), _paths(torch, given), follower.following():
            value = _step(torch, follower, module, batch[0], batch[1], loss)  # alive until the end, as in a user's loop
        del value
        for root in roots.values():
            for path, p in root.named_parameters():
                if p.grad is not None:
                    follower.becomes(p.grad, Role.PARAM_GRADIENT, path)
    return Eager(device.type, tuple(follower.storages), tuple(follower.before), tuple(follower.events), blocks)


def _paths(torch: Any, batch: list[Any]) -> AbstractContextManager[None]:
    """Those that eager mode takes, if the batch has the values that decide."""
    tensors = [x for x in batch if isinstance(x, torch.Tensor)]
    without = any(x.device.type == "meta" or mode_of(x) is not None for x in tensors)
    return nullcontext() if without else eager_paths()


def _stand(follower: Follower, root: Any, paths: Mapping[int, str]) -> None:
    for part in root.modules():
        for x, role, name in (
            *((x, Role.PARAM, name) for name, x in part.named_parameters(recurse=False)),
            *((x, Role.STATE, name) for name, x in part.named_buffers(recurse=False)),
            *((x, Role.STATE, name) for name, x in vars(part).items() if follower.fakes.own(x)),
        ):
            follower.stands(x, role, paths[id(part)], name)


def _step(torch: Any, follower: Follower, module: Any, args: Any, kwargs: Any, loss: Any) -> Any:
    """Run the step. Its loss"""
    with torch.enable_grad():
        if loss is None:
            value = _loss_of(torch, module(*args, **kwargs))
        else:
            value = loss(module(*args[:-1], **kwargs), args[-1])
        follower.label(value)
        _check(torch, value)
        value.backward()
        return value


def _loss_of(torch: Any, result: Any) -> Any:
    """The loss among what a module gives."""
    if isinstance(result, torch.Tensor):
        return result
    return result.get("loss") if isinstance(result, Mapping) else getattr(result, "loss", None)


def _check(torch: Any, value: Any) -> None:
    if not isinstance(value, torch.Tensor):
        raise InvalidInput(
            f"the loss is a {type(value).__name__}, not a tensor; loss=... computes it from the module's result"
        )
    if value.numel() != 1:
        raise InvalidInput(f"the loss has the shape {tuple(value.shape)}; reduce it to one number, as by .mean()")
    if not value.requires_grad:
        raise InvalidInput("the loss depends on no parameter that requires a gradient")
