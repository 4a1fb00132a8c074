"""An imitation of CUDA's graphs: a capture's calls are kept, and made again."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes


def tensors(tree: Any) -> list[torch.Tensor]:
    return [x for x in torch.utils._pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


class CUDAGraph:
    """The calls of a capture, which leaves everything as it was, and replays of them, at the same addresses."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any, Any, Any]] = []
        self.made: set[int] = set()
        self.before: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def keep(self, func: Any, args: Any) -> None:
        """Keep the values from before the capture of what it changes."""
        for i, a in enumerate(func._schema.arguments):
            if a.alias_info is not None and a.alias_info.is_write and i < len(args):
                for x in args[i] if isinstance(args[i], list | tuple) else [args[i]]:
                    self.keep_one(x)
        if func._schema.name == "aten::native_batch_norm" and args[5]:
            self.keep_one(args[3])
            self.keep_one(args[4])

    def keep_one(self, x: Any) -> None:
        if x is not None and x.untyped_storage()._cdata not in self.made:
            self.before.setdefault(x.data_ptr(), (x, x.clone()))

    def note(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        old = {x.untyped_storage()._cdata for x in tensors((args, kwargs))}
        new = [x.untyped_storage()._cdata not in old for x in tensors(result)]
        self.made |= {x.untyped_storage()._cdata for x, own in zip(tensors(result), new, strict=True) if own}
        if not func._schema.name.startswith("aten::empty"):  # of which nothing is to be made again
            self.calls.append((func, args, kwargs, result))

    def restore(self) -> None:
        for x, was in self.before.values():
            x.copy_(was)
        self.before.clear()

    def replay(self) -> None:
        with _disable_current_modes():
            for func, args, kwargs, result in self.calls:
                again = func(*args, **kwargs)
                for to, x in zip(tensors(result), tensors(again), strict=True):
                    if to.data_ptr() != x.data_ptr():
                        to.copy_(x)
