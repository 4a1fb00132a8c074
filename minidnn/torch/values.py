"""The values of those tensors of a step on fakes that need neither parameters nor what comes of them.

Libraries ask for such values to choose what runs: `transformers` asks whether positions that it has counted itself
begin anew, and whether a mask that is an argument masks anything. These tensors are small, and are computed beside the
step.
"""

from __future__ import annotations

from typing import Any

from minidnn.torch.experimental import by_tensor, mode_of, schema_of, storage_of, trees, without_modes
from minidnn.torch.installed import torch_module

MOST = 1 << 20  # elements of a tensor whose values are known


class Values:
    """What is known of the values of fakes, as tensors on the CPU."""

    def __init__(self) -> None:
        self._of = by_tensor()
        self._lost: set[int] = set()  # storages that were changed by what is not known

    def give(self, fake: Any, real: Any) -> None:
        """A fake stands for this tensor."""
        if real.device.type != "meta" and real.numel() <= MOST and mode_of(real) is None:
            self._of[fake] = real.detach().cpu().clone()

    def of(self, fake: Any) -> Any:
        """The values of a fake, or of what is none; None if nobody knows them."""
        if mode_of(fake) is None:  # a new tensor that becomes a fake
            return fake
        return None if storage_of(fake) in self._lost else self._of.get(fake)

    def one(self, fake: Any) -> Any:
        """The number that a fake of one element has; None if nobody knows it."""
        with without_modes():
            known = self.of(fake)
            return None if known is None else known.item()

    def follow(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], results: list[Any]) -> None:
        """An op has run on fakes, and made these: run it on their values, too, if all are known."""
        torch = torch_module()
        given = [x for x in trees().tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        if not self._computes(func, given, [x for x in results if isinstance(x, torch.Tensor)]):
            self._lose(func, args, kwargs)
            return

        def real(x: Any) -> Any:
            if isinstance(x, torch.Tensor):
                return self.of(x)
            return torch.device("cpu") if isinstance(x, torch.device) else x

        with without_modes(), torch.no_grad():
            made = trees().tree_leaves(func(*trees().tree_map(real, args), **trees().tree_map(real, kwargs)))
        for fake, value in zip(results, made, strict=True):
            if isinstance(fake, torch.Tensor):
                self._lost.discard(storage_of(fake))
                self._of[fake] = value

    def _computes(self, func: Any, given: list[Any], results: list[Any]) -> bool:
        """Whether an op gives, from what is known, small tensors that are always the same."""
        if not results or max(x.numel() for x in results) > MOST or any(self.of(x) is None for x in given):
            return False
        return torch_module().Tag.nondeterministic_seeded not in func.tags and "empty" not in schema_of(func).name

    def _lose(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """What the op changes in place is no longer known."""
        schema = schema_of(func)
        for i, argument in enumerate(schema.arguments if schema.is_mutable else ()):
            if argument.alias_info is not None and argument.alias_info.is_write:
                changed = kwargs.get(argument.name) if i >= len(args) else args[i]
                for x in changed if isinstance(changed, list | tuple) else [changed]:
                    if isinstance(x, torch_module().Tensor):
                        self._lost.add(storage_of(x))
