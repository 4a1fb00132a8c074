"""The values of those tensors of a step on fakes that need neither parameters nor what comes of them.

Libraries ask for such values to choose what runs: `transformers` asks whether positions that it has counted itself
begin anew, and whether a mask that is an argument masks anything. These tensors are small, and are computed beside the
step.

What is not PyTorch's public API: `torch.utils._python_dispatch._disable_current_modes`, `torch.utils.weak`, an op's
`_schema`, and the address `UntypedStorage._cdata`.
"""

from __future__ import annotations

from typing import Any

from minidnn.torch.installed import torch_module

MOST = 1 << 20  # elements of a tensor whose values are known


class Values:
    """What is known of the values of fakes, as tensors on the CPU."""

    def __init__(self) -> None:
        self._of = torch_module("utils.weak").WeakTensorKeyDictionary()
        self._lost: set[int] = set()  # addresses of storages that were changed by what is not known

    def give(self, fake: Any, real: Any) -> None:
        """A fake stands for this tensor."""
        if real.device.type != "meta" and real.numel() <= MOST and not hasattr(real, "fake_mode"):
            self._of[fake] = real.detach().cpu().clone()

    def of(self, fake: Any) -> Any:
        """The values of a fake, or of what is none; None if nobody knows them."""
        if not hasattr(fake, "fake_mode"):  # a new tensor that becomes a fake
            return fake
        return None if fake.untyped_storage()._cdata in self._lost else self._of.get(fake)

    def one(self, fake: Any) -> Any:
        """The number that a fake of one element has; None if nobody knows it."""
        with torch_module("utils._python_dispatch")._disable_current_modes():
            known = self.of(fake)
            return None if known is None else known.item()

    def follow(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], results: list[Any]) -> None:
        """An op has run on fakes, and made these: run it on their values, too, if all are known."""
        torch, trees = torch_module(), torch_module("utils._pytree")
        given = [x for x in trees.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        if not self._computes(func, given, [x for x in results if isinstance(x, torch.Tensor)]):
            self._lose(func, args, kwargs)
            return

        def real(x: Any) -> Any:
            if isinstance(x, torch.Tensor):
                return self.of(x)
            return torch.device("cpu") if isinstance(x, torch.device) else x

        with torch_module("utils._python_dispatch")._disable_current_modes(), torch.no_grad():
            made = trees.tree_leaves(func(*trees.tree_map(real, args), **trees.tree_map(real, kwargs)))
        for fake, value in zip(results, made, strict=True):
            if isinstance(fake, torch.Tensor):
                self._lost.discard(fake.untyped_storage()._cdata)
                self._of[fake] = value

    def _computes(self, func: Any, given: list[Any], results: list[Any]) -> bool:
        """Whether an op gives, from what is known, small tensors that are always the same."""
        if not results or max(x.numel() for x in results) > MOST or any(self.of(x) is None for x in given):
            return False
        return torch_module().Tag.nondeterministic_seeded not in func.tags and "empty" not in func._schema.name

    def _lose(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """What the op changes in place is no longer known."""
        if not func._schema.is_mutable:
            return
        for i, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                changed = kwargs.get(argument.name) if i >= len(args) else args[i]
                for x in changed if isinstance(changed, list | tuple) else [changed]:
                    if isinstance(x, torch_module().Tensor):
                        self._lost.add(x.untyped_storage()._cdata)
