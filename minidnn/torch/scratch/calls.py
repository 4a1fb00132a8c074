"""A call of an operator of PyTorch, as far as its scratch depends on it: the operator, and its arguments, with the
shape of each tensor in place of its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from minidnn.torch.experimental import fake_mode, hint_of, identity, schema_of, storage_of, trees

if TYPE_CHECKING:
    import torch


class Form(NamedTuple):
    """A tensor without its numbers. Strides are in elements."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @property
    def numel(self) -> int:
        return math.prod(self.size)

    @property
    def nbytes(self) -> int:
        """The least bytes of a storage that holds it."""
        if not self.numel:
            return 0
        last = sum((n - 1) * step for n, step in zip(self.size, self.stride, strict=True))
        return (last + 1) * self.dtype.itemsize

    @property
    def contiguous(self) -> bool:
        """Whether its elements lie in the order of its dimensions, without gaps."""
        step = 1
        for n, stride in zip(reversed(self.size), reversed(self.stride), strict=True):
            if n != 1 and stride != step:
                return not self.numel
            step *= n
        return True

    @property
    def channels_last(self) -> bool:
        """Whether dimension 1 lies innermost, as PyTorch's memory formats channels_last have it."""
        if len(self.size) not in (4, 5) or self.contiguous:
            return False
        order = (0, *range(2, len(self.size)), 1)
        return Form(
            tuple(self.size[d] for d in order), tuple(self.stride[d] for d in order), self.dtype
        ).contiguous  # fmt: skip

    def __str__(self) -> str:
        kind = str(self.dtype).removeprefix("torch.")
        return f"{kind}{list(self.size)}{'' if self.contiguous else f'/{list(self.stride)}'}"


class Unlike(Exception):
    """The call's arguments are others than a formula expects."""


class Generator:
    """In place of a torch.Generator among the arguments."""

    def __str__(self) -> str:
        return "Generator"


@dataclass(frozen=True, eq=False)
class Call:
    """args, kwargs: of the operator, with a Form for each tensor; one tensor that comes twice is one Form twice
    made:         the bytes of each result that is a new storage, and 0 for one that is not; None: not known
    impossible:   why it cannot be run on tensors that are made for it; empty if it can"""

    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    made: tuple[int, ...] | None = None
    impossible: str = ""

    @classmethod
    def of(cls, target: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Call:
        """Of an operator and its arguments: tensors of any kind (fake, meta, real), or Forms in their places."""
        import torch

        forms: dict[int, Any] = {}
        problems: list[str] = []

        def form(x: Any) -> Any:
            if isinstance(x, torch.Tensor):
                problems.extend(_problems(torch, x))
                if id(x) not in forms:
                    forms[id(x)] = Form(tuple(map(int, x.shape)), _strides(torch, x), x.dtype)
                return forms[id(x)]
            if isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool):
                return hint_of(x)
            return Generator() if isinstance(x, torch.Generator) else x

        if schema_of(target) is None:
            problems.append("it is no operator of PyTorch")
        given, named = trees().tree_map(form, (tuple(args), dict(kwargs or {})), is_leaf=_is_form)
        return cls(target, given, named, None, problems[0] if problems else "")

    @classmethod
    def of_node(cls, node: torch.fx.Node) -> Call:
        """Of a node of a graph that was traced with fake tensors: `meta["val"]` has them."""
        import torch

        def value(n: torch.fx.Node) -> Any:
            return n.meta["val"] if "val" in n.meta else getattr(n.graph.owning_module, str(n.target))

        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), value)
        call = cls.of(node.target, args, kwargs)  # type: ignore[arg-type]
        before = [x for x in trees().tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        made = new_storages(node.meta["val"], before) if "val" in node.meta else None
        return cls(call.target, call.args, call.kwargs, made, call.impossible)

    @property
    def name(self) -> str:
        """The operator, without its overload: "aten.mm"."""
        return str(getattr(self.target, "overloadpacket", self.target))

    @cached_property
    def forms(self) -> list[Form]:
        """The arguments' tensors, each once."""
        leaves = trees().tree_leaves((self.args, self.kwargs), is_leaf=_is_form)
        return list({id(x): x for x in leaves if _is_form(x)}.values())

    @cached_property
    def key(self) -> str:
        """A text of all that the scratch depends on, the device and the libraries apart."""
        numbers = {id(form): k for k, form in enumerate(self.forms)}
        seen: set[int] = set()

        def text(x: Any) -> str:
            if _is_form(x):
                again = id(x) in seen
                seen.add(id(x))
                return f"tensor {numbers[id(x)]}" if again else str(x)
            if isinstance(x, list | tuple):
                return f"[{', '.join(map(text, x))}]"
            return str(x)

        parts = [*map(text, self.args), *(f"{name}={text(x)}" for name, x in sorted(self.kwargs.items()))]
        return f"{self.target}({', '.join(parts)})"

    @cached_property
    def results(self) -> tuple[int, ...]:
        """`made`, or what PyTorch says without numbers; nothing where it is impossible. Raises what PyTorch raises."""
        if self.made is not None or self.impossible:
            return self.made or ()
        import torch

        with fake_mode(), torch.no_grad():
            args, kwargs, tensors = self.filled(lambda f: torch.empty_strided(f.size, f.stride, dtype=f.dtype))
            return new_storages(self.target(*args, **kwargs), tensors)

    def filled(self, make: Callable[[Form], Any], generator: Any = None) -> tuple[list[Any], dict[str, Any], list[Any]]:
        """(args, kwargs, the tensors) with a tensor for each Form."""
        tensors = {id(form): make(form) for form in self.forms}

        def value(x: Any) -> Any:
            return tensors[id(x)] if _is_form(x) else generator if isinstance(x, Generator) else x

        args, kwargs = trees().tree_map(value, (list(self.args), dict(self.kwargs)), is_leaf=_is_form)
        return args, kwargs, list(tensors.values())

    def argument(self, name: str) -> Any:
        """An argument by its name in the operator's schema; its default where it is not given. Raises Unlike."""
        for k, argument in enumerate(schema_of(self.target).arguments):
            if argument.name == name:
                given = self.args[k] if k < len(self.args) else self.kwargs.get(name, argument.default_value)
                return given
        raise Unlike(f"{self.target} has no argument {name}")


def new_storages(results: Any, before: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """The bytes of each result's storage; 0 for one that was there before, or that an earlier result has."""
    import torch

    seen = {storage_of(x) for x in before if x.layout == torch.strided}
    result = []
    for x in trees().tree_leaves(results):
        storage = x.untyped_storage() if isinstance(x, torch.Tensor) and x.layout == torch.strided else None
        result.append(storage.nbytes() if storage is not None and identity(storage) not in seen else 0)
        if storage is not None:
            seen.add(identity(storage))
    return tuple(result)


def _is_form(x: Any) -> bool:
    return isinstance(x, Form)


def _strides(torch: Any, x: torch.Tensor) -> tuple[int, ...]:
    return tuple(map(int, x.stride())) if x.layout == torch.strided else (0,) * x.dim()


def _problems(torch: Any, x: torch.Tensor) -> list[str]:
    """Why no tensor of this kind is made."""
    if x.layout != torch.strided:
        return [f"one of its arguments is {x.layout}"]
    if x.is_quantized:
        return ["one of its arguments is quantized"]
    return ["one of its arguments is a conjugate or negative view"] if x.is_conj() or x.is_neg() else []
