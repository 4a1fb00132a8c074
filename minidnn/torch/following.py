"""Follow the storages of a step that runs on fakes: every op that makes some, and their deaths.

Autograd keeps the fakes that backward needs as it keeps real tensors, so storages are born and die in the order of a
real step. But it works out of place on fakes in some places where it works in place on real tensors. `hidden` has those
of its formulas. Where two gradients of one tensor meet, `_meet` finds the addition, and the sum gets the bytes of the
gradient that dies with it.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from minidnn.errors import InvalidInput
from minidnn.program import Role
from minidnn.torch import hidden
from minidnn.torch.experimental import each_op, fake_errors, identity, is_view, schema_of, storage_of, trees
from minidnn.torch.fakes import Fakes
from minidnn.torch.lives import Event, Storage
from minidnn.torch.nodes import Node, Nodes, nodes_of
from minidnn.torch.places import place
from minidnn.torch.values import Values

Scratch = Callable[[Any, tuple[Any, ...], dict[str, Any]], int]


@dataclass
class _Sum:
    """A sum of two gradients, until the next op."""

    old: int  # storage of the gradient that was there first
    new: int  # storage of the sum
    at: int  # where its event comes


class Follower:
    """What is observed of a step.

    before:   the storages that are there when it begins; `events` are those of the step alone
    storages: all that were observed, by the places that events name
    names:    the path of each module, by its id
    scratch:  the bytes that an op takes beside its results
    numbers:  what ops give that ask for a tensor's value; None: the value, where it is known, else that is refused
    values:   what is known of values
    """

    def __init__(
        self, fakes: Fakes, names: Mapping[int, str], scratch: Scratch | None = None, numbers: float | None = None
    ) -> None:
        self.fakes, self.names, self.scratch, self.numbers = fakes, names, scratch, numbers
        self.values = Values()
        self.before: list[Event] = []
        self.events: list[Event] = []
        self.storages: list[Storage] = []
        self._places: dict[int, int] = {}  # identity of a living storage -> its place
        self._holders: Counter[int] = Counter()  # how many living storages have the bytes of a place
        self._modules: list[str] = []
        self._nodes = Nodes(lambda: len(self.storages))
        self._sum: _Sum | None = None
        self._over = False

    # ---- what is there

    def stands(self, x: Any, role: Role, module: str, name: str, line: str = "") -> None:
        """A fake whose storage is there before the step and after it."""
        storage = x.untyped_storage()
        if identity(storage) not in self._places and storage.nbytes() and x.device.type == self.fakes.device.type:
            self.before.append(self._new(storage, Storage(storage.nbytes(), role, module, line, name)))

    def becomes(self, x: Any, role: Role, module: str) -> None:
        """A storage that was observed turns out to be this."""
        at = self._places.get(storage_of(x))
        if at is not None:
            self.storages[at] = replace(self.storages[at], role=role, module=module)

    def held(self, values: Any) -> int:
        """The bytes of the living storages of some tensors, in whatever they are nested."""
        tensors = filter(self.fakes.own, trees().tree_leaves(values))
        places = {self._places.get(storage_of(x)) for x in tensors} - {None}
        return sum(self.storages[at].nbytes for at in places if at is not None)

    def _new(self, storage: Any, what: Storage) -> Event:
        at = len(self.storages)
        self.storages.append(what)
        self._hold(storage, at)
        return Event(at, what.nbytes)

    def _hold(self, storage: Any, at: int) -> None:
        """The storage has the bytes of this place as long as it lives."""
        self._places[identity(storage)] = at
        self._holders[at] += 1
        weakref.finalize(storage, self._died, identity(storage)).atexit = False

    def _died(self, address: int) -> None:
        if self._over:
            return
        if self._sum is not None and address == self._sum.old:  # nothing else held it: the sum was made in place
            self._places[self._sum.new] = self._places.pop(address)
            self._sum = None
            return
        if self._sum is not None and address == self._sum.new:
            self._settle()
        at = self._places.pop(address)
        self._holders[at] -= 1
        if not self._holders[at]:
            self.events.append(Event(at, -self.storages[at].nbytes))

    def _settle(self) -> None:
        """The sum has bytes of its own."""
        if self._sum is not None:
            at = self._places[self._sum.new]
            self.events.insert(self._sum.at, Event(at, self.storages[at].nbytes))
            self._sum = None

    # ---- the step

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """What runs within is observed, once."""
        import torch
        from torch.nn.modules import module as hooks
        from torch.overrides import TorchFunctionMode

        follower = self

        class Calls(TorchFunctionMode):
            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                result = func(*args, **(kwargs or {}))
                follower.label(result)
                return result

        with contextlib.ExitStack() as stack:
            enter = hooks.register_module_forward_pre_hook(lambda part, _: self._modules.append(self._path(part)))
            leave = hooks.register_module_forward_hook(self._leave, always_call=True)
            stack.callback(enter.remove)
            stack.callback(leave.remove)
            stack.enter_context(torch.autograd.set_multithreading_enabled(False))
            for mode in (self.fakes.mode, each_op(self._op), Calls()):
                stack.enter_context(mode)
            try:
                yield
                self._settle()
            finally:
                self._over = True

    def _path(self, part: Any) -> str:
        return self.names.get(id(part), self._modules[-1] if self._modules else "")

    def _leave(self, part: Any, given: Any, result: Any) -> None:
        self._modules.pop()

    def _line(self) -> str:
        """The line that runs, or whose backward runs."""
        return place(sys._getframe()) if self._node is None else self._node.line

    @contextlib.contextmanager
    def within(self, path: str) -> Iterator[None]:
        """What runs within belongs to the module of this path."""
        self._modules.append(path)
        try:
            yield
        finally:
            self._modules.pop()

    def _op(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an op, and observe what it makes."""
        if func.namespace in ("prim", "profiler"):  # questions about tensors, as for their device; marks of time
            return func(*args, **kwargs)
        self._settle()
        name = str(func).removesuffix(".default")
        if name == "aten._local_scalar_dense" and (value := self._value(args[0])) is not None:
            return value
        if not name.startswith("aten.lift_fresh"):  # of torch.tensor: its argument is new
            args, kwargs = trees().tree_map(self._known, (args, kwargs))
        result = self._run(func, args, kwargs)
        results = trees().tree_leaves(result)
        self._observe(name, args, results)
        self.values.follow(func, args, kwargs, results)
        self._take_scratch(name, func, args, kwargs)
        return result

    def _value(self, x: Any) -> Any:
        """The one value of a tensor; None if it is refused to tell."""
        return self.values.one(x) if self.numbers is None else self.numbers

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return func(*args, **kwargs)
        except fake_errors().operator:  # PyTorch does not know its results
            if schema_of(func).returns:
                raise
            return None  # it has none: it changes its arguments

    def _known(self, x: Any) -> Any:
        """The fake of a tensor that the module refers to but does not have; anything else as it is."""
        fake = self.fakes.of(x)
        if fake is not x:
            line = place(sys._getframe())
            if x.requires_grad:
                raise InvalidInput(
                    f"{line}: a tensor {tuple(x.shape)} requires a gradient but is not a parameter of the module; "
                    "register it as a torch.nn.Parameter"
                )
            self.stands(fake, Role.STATE, "", f"tensor {tuple(x.shape)}", line)
        return fake

    def _observe(self, name: str, args: tuple[Any, ...], results: list[Any]) -> None:
        import torch

        for number, x in enumerate(results):
            if not self.fakes.own(x):
                continue
            if x.layout != torch.strided:
                raise InvalidInput(f"{self._line()}: {name} makes a tensor of {x.layout}, whose bytes depend on values")
            storage, nbytes = x.untyped_storage(), hidden.nbytes(name, args, number, x)
            if identity(storage) in self._places or not nbytes or self._elsewhere(name, x):
                continue
            if (over := self._over_argument(name, args)) is not None:
                self._hold(storage, over)
                continue
            event, met = self._new(storage, self._born(name, nbytes)), self._meet(name, args, x)
            if met is None:
                self.events.append(event)
            else:
                self._sum = _Sum(met, identity(storage), len(self.events))

    def _elsewhere(self, name: str, x: Any) -> bool:
        """Whether a tensor is on the host, while the step's device is another."""
        if x.device.type not in ("cpu", self.fakes.device.type):
            raise InvalidInput(
                f"{self._line()}: {name} makes a tensor on {x.device.type}, while the step runs on "
                f"{self.fakes.device.type}; take the device of an input instead"
            )
        return bool(x.device.type != self.fakes.device.type)

    def _born(self, name: str, nbytes: int) -> Storage:
        if (node := self._node) is not None:
            return Storage(nbytes, Role.GRADIENT, node.module, node.line, name)
        module = self._modules[-1] if self._modules else ""
        return Storage(nbytes, Role.ACTIVATION, module, place(sys._getframe()), name)

    def _take_scratch(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        nbytes = self.scratch(func, args, kwargs) if self.scratch is not None else 0
        if nbytes:
            at = len(self.storages)
            self.storages.append(replace(self._born(name, nbytes), role=Role.WORKSPACE))
            self.events += (Event(at, nbytes), Event(at, -nbytes))

    # ---- backward

    def label(self, results: Any) -> None:
        """What autograd has to do for these results, as far as it is new, belongs to the module and line that run."""
        if found := nodes_of(results):
            self._nodes.label(found, self._modules[-1] if self._modules else "", place(sys._getframe()))

    @property
    def _node(self) -> Node | None:
        """The node whose backward runs; None in forward, also where it runs again."""
        return None if self._modules else self._nodes.running

    def _over_argument(self, name: str, args: tuple[Any, ...]) -> int | None:
        """The place of the op's first argument, if the op writes over it where tensors are real."""
        node = self._node
        if node is None or not hidden.in_place(node.name, name):
            return None
        at = self._places.get(storage_of(args[0]), -1)
        return at if at >= node.first else None

    def _meet(self, name: str, args: tuple[Any, ...], result: Any) -> int | None:
        """The storage of the first of two gradients of one tensor, if the op is autograd's sum of them.

        The first is then no gradient that the running node got, and it was there before the node, unless the node gives
        both. It is dense, as the sum is; and no view, which would hold its base's storage, too."""
        node, old = self._node, args[0]
        if name != "aten.add.Tensor" or node is None:
            return None
        if not self.fakes.own(old) or is_view(old) or (old.shape, old.stride()) != (result.shape, result.stride()):
            return None
        address = storage_of(old)
        at = self._places.get(address, -1)
        if at < 0 or self.storages[at].role is not Role.GRADIENT or address in node.given:
            return None
        return address if at < node.first or node.twice else None
