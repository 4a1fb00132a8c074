"""The repeated blocks of a module, and `torch.utils.checkpoint` around each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from minidnn.errors import InvalidInput


def repeated(module: Any) -> dict[str, Any]:
    """The blocks of a module by their paths: parts with parts of their own, at least two of one class in one ModuleList
    or Sequential; of blocks within blocks the outer ones."""
    return dict(_blocks("", module))


def _blocks(path: str, part: Any) -> list[tuple[str, Any]]:
    import torch

    containers = (torch.nn.ModuleList, torch.nn.Sequential)
    children = {f"{path}.{name}".lstrip("."): child for name, child in part.named_children()}
    counts = Counter(type(child) for child in children.values()) if isinstance(part, containers) else Counter()
    found = []
    for name, child in children.items():
        if counts[type(child)] > 1 and type(child) not in containers and any(child.children()):
            found.append((name, child))
        else:
            found += _blocks(name, child)
    return found


def checkpoint_each(module: Any, within: Callable[[str], AbstractContextManager[None]]) -> tuple[str, ...]:
    """Let each block run again in backward; the blocks' paths. It sets attributes of parts, which whoever calls this
    takes away. Parts that know how to checkpoint, as those of `transformers` and `diffusers`, do it their way.

    within: what surrounds a run of the block of a path, also when it runs again

    Raises InvalidInput if there are no blocks."""
    if known := _own(module):
        return known
    blocks = repeated(module)
    if not blocks:
        raise InvalidInput(
            f"{type(module).__name__} has no repeated blocks (two of one class in a ModuleList or Sequential)"
        )
    for path, block in blocks.items():
        vars(block)["forward"] = _checkpointed(partial(_run, block.forward, within, path))
    return tuple(blocks)


def _own(module: Any) -> tuple[str, ...]:
    """Turn on what parts have of their own; the paths of the blocks."""
    for part in list(module.modules()):
        if hasattr(part, "gradient_checkpointing_enable"):
            part.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        elif hasattr(part, "enable_gradient_checkpointing"):
            part.enable_gradient_checkpointing()
    on = [path for path, part in module.named_modules() if vars(part).get("gradient_checkpointing")]
    return tuple(
        path for path in on if not any(other.startswith(f"{path}." if path else "") for other in on if other != path)
    )


def _run(forward: Any, within: Any, path: str, *args: Any, **kwargs: Any) -> Any:
    with within(path):
        return forward(*args, **kwargs)


def _checkpointed(run: Callable[..., Any]) -> Callable[..., Any]:
    """The state of random numbers, which nothing here draws, is not kept: some 5 KB a block, on the host."""
    from torch.utils.checkpoint import checkpoint

    return partial(checkpoint, run, use_reentrant=False, preserve_rng_state=False)
