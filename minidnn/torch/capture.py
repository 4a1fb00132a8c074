"""The graph of a step as a Program, with the calls of PyTorch that each op stands for.

A Tensor of the Program is a storage of PyTorch: views of it cost nothing, and are made where an op reads them. An op is
a call that makes new storages. Calls that change a storage in place, directly behind the op that made it, belong to
that op. Any other change in place makes a new version of the storage, which takes the old one's bytes if the plan says
so, and is a copy if the old value is needed longer.

What the caller owns lives on the device from step to step, and its bytes stay where they are (Program.held):
parameters, buffers, the batch, constants, the optimizer's state, and in ACCUMULATE the gradients.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from minidnn.errors import InvalidInput
from minidnn.program import Op, Pass, Program, Role, Tensor
from minidnn.torch.flops import flops
from minidnn.torch.installed import torch_module
from minidnn.torch.kinds import kind
from minidnn.torch.places import OUTSIDE, Place
from minidnn.torch.scratch import Call as Measured
from minidnn.torch.scratch import Form, Found, Scratch
from minidnn.torch.traced import Traced

if TYPE_CHECKING:
    import torch

# These change running statistics, though their schemas do not say so: the arguments that are changed, and the one that
# says whether. What they return depends on the batch alone then, so a re-run leaves the statistics out.
STATISTICS = {"native_batch_norm": (3, 4, 5), "cudnn_batch_norm": (3, 4, 5), "miopen_batch_norm": (3, 4, 5)}
STATE = "optimizer.state"
FORWARD_ALONE = "TEST"  # the program of a step without gradients


class Layout(NamedTuple):
    """How a tensor lies in its storage, in elements of `dtype`."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype

    @classmethod
    def of(cls, t: torch.Tensor) -> Layout:
        return cls(tuple(t.shape), tuple(t.stride()), int(t.storage_offset()), t.dtype)


class View(NamedTuple):
    """An argument of a call: a tensor of the Program, seen so."""

    tensor: Tensor
    layout: Layout


@dataclass(frozen=True, eq=False)
class Call:
    """A call of PyTorch.

    args, kwargs: with a View for each tensor
    makes:        (number of the result, tensor), or (None, tensor) if the call returns one alone
    changes:      the arguments' tensors that it changes in place, and the versions that they become
    once:         numbers of arguments that a re-run replaces by None
    random:       whether it draws from a generator
    """

    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    makes: tuple[tuple[int | None, Tensor], ...] = ()
    changes: tuple[tuple[Tensor, Tensor], ...] = ()
    once: tuple[int, ...] = ()
    random: bool = False


@dataclass(frozen=True, eq=False)
class Source:
    """Where the value of a tensor that the caller owns comes from."""

    what: str  # "parameter", "buffer", "input", "constant", "tangent", "gradient" or "state"
    name: str = ""
    index: int = 0
    value: Any = None


@dataclass(frozen=True, eq=False)
class Capture:
    """A step as a Program.

    calls:     by the name of the op, in order
    layouts:   how each tensor lies, as the call that makes it returns it
    sources:   of the tensors that the caller owns
    loss:      what the step returns: the loss, or without training the tensors that the module returns
    gradients: of each parameter that has one
    places:    where each op comes from
    scratch:   bytes that each op takes beside its results, by its name
    """

    traced: Traced
    program: Program
    calls: Mapping[str, tuple[Call, ...]]
    layouts: Mapping[Tensor, Layout]
    sources: Mapping[Tensor, Source]
    results: tuple[View, ...]
    gradients: Mapping[str, View]
    places: Mapping[str, Place]
    scratch: Mapping[str, int]

    @classmethod
    def of(
        cls,
        traced: Traced,
        extents: Mapping[str, Found] = MappingProxyType({}),
        accumulate: frozenset[str] = frozenset(),
        state: int = 0,
    ) -> Capture:
        """
        extents:    of each call, by its node's name, the bytes of its results and what it takes beside (`extents`);
                    a call that is not there takes what its results' shapes say
        accumulate: the parameters whose gradient is added to one that is there
        state:      bytes of the optimizer's state, which the device holds during the step
        """
        return _Reader(traced, extents, accumulate, state).capture()


def extents(traced: Traced, scratch: Scratch) -> dict[str, Found]:
    """What each call of a graph takes of memory, by its node's name. Ops of others are not run to measure it: they may
    count."""
    nodes = [n for n in traced.graph.graph.nodes if n.op == "call_function" and _known(n.target)]
    return dict(zip((n.name for n in nodes), scratch.of([Measured.of_node(n) for n in nodes]), strict=True))


RESULT, GRADIENTS = "result", "gradients"  # the ops that stand for the caller's reading of results and gradients


@dataclass(eq=False)
class _Storage:
    """A storage while the graph is read: its present version, and the op that made it, as long as nothing else has."""

    now: Tensor
    layout: Layout
    foretold: Layout  # by the fake kernel
    owned: bool
    maker: _Draft | None = None
    versions: int = 1


@dataclass(eq=False)
class _Draft:
    """An op, to which calls may still be added."""

    name: str
    kind: str
    place: Place
    during: Pass
    reads: dict[Tensor, None] = field(default_factory=dict)
    writes: dict[Tensor, None] = field(default_factory=dict)
    inplace: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    flops: int = 0
    scratch: int = 0

    def op(self, gradients: Mapping[Tensor, Tensor]) -> Op:
        """The op. gradients: those of parameters, by what they were thought to be"""
        attrs = "; ".join(_signature(call) for call in self.calls)
        reads, writes = (tuple(gradients.get(t, t) for t in tensors) for tensors in (self.reads, self.writes))
        return Op(
            self.name, self.kind, self.place.module or OUTSIDE, self.during, reads, writes, attrs, tuple(self.inplace),
            self.flops,
        )  # fmt: skip


class _Reader:
    """Reads a graph, node by node."""

    def __init__(self, traced: Traced, extents: Mapping[str, Found], accumulate: frozenset[str], state: int) -> None:
        self.traced, self.extents, self.accumulate, self.state = traced, extents, accumulate, state
        self.storages: dict[Any, _Storage] = {}
        self.drafts: list[_Draft] = []
        self.layouts: dict[Tensor, Layout] = {}
        self.sources: dict[Tensor, Source] = {}
        self.names: dict[str, int] = {}
        self.gradients: dict[Tensor, Tensor] = {}
        self.once: Tensor | None = None
        self.changed_by: dict[str, Tensor] = {}  # by the op's name: what it changes of the caller's

    def capture(self) -> Capture:
        torch = torch_module()
        nodes = list(self.traced.graph.graph.nodes)
        sources = self._placeholders()
        for node in nodes:
            if node.op == "placeholder":
                self._own(node.meta["val"], next(sources))
            elif node.op == "get_attr":
                value = getattr(self.traced.graph, node.target)
                node.meta.setdefault("val", value)
                if isinstance(value, torch.Tensor):
                    self._own(node.meta["val"], Source("constant", node.target, value=value))
            elif node.op == "call_function" and node.target is not operator.getitem:
                self._call(node)
        outputs = nodes[-1].args[0]
        values = outputs if isinstance(outputs, list | tuple) else (outputs,)
        if self.traced.training:
            results, gradients = self._ends(values)
        else:
            results, gradients = tuple(self._view(n) for n in values), {}
            self._reading(RESULT, results, Pass.FORWARD)
        if self.state:
            t = self._tensor(STATE, self.state, Role.STATE)
            self.sources[t] = Source("state")
        ops = tuple(draft.op(self.gradients) for draft in self.drafts)
        layers = dict.fromkeys(op.layer for op in ops if op.during in (Pass.FORWARD, Pass.LOSS))
        name = FORWARD_ALONE if not self.traced.training else "ACCUMULATE" if self.accumulate else "TRAIN"
        owned = tuple(self.sources)
        program = Program(name, ops, persistent=owned, layers=tuple(layers), held=owned)
        program.check()
        return Capture(
            self.traced, program, {d.name: tuple(d.calls) for d in self.drafts}, self.layouts, self.sources, results,
            gradients, {d.name: d.place for d in self.drafts}, {d.name: d.scratch for d in self.drafts},
        )  # fmt: skip

    # ---- what the caller owns

    def _placeholders(self) -> Iterator[Source]:
        traced = self.traced
        yield from (Source("parameter", name) for name in traced.parameters)
        yield from (Source("buffer", name) for name in traced.buffers)
        yield from (Source("input", f"argument {i + 1}", i) for i in range(traced.inputs))
        if traced.training:
            yield Source("tangent", "the loss's gradient")

    def _own(self, value: torch.Tensor, source: Source) -> None:
        role = {"parameter": Role.PARAM, "buffer": Role.STATE, "constant": Role.STATE}.get(source.what, Role.INPUT)
        storage = value.untyped_storage()
        t = self._tensor(source.name, _room(value), role)
        self.sources[t] = source
        self.layouts[t] = Layout.of(value)
        if storage._cdata not in self.storages:
            self.storages[storage._cdata] = _Storage(t, self.layouts[t], self.layouts[t], owned=True)

    # ---- calls

    def _call(self, node: torch.fx.Node) -> None:
        torch = torch_module()
        value = node.meta.get("val")
        values = list(value) if isinstance(value, list | tuple) else [value]
        _plain(values, self._place(node))
        changed = self._changed(node)
        if torch.Tag.inplace_view in getattr(node.target, "tags", ()):
            self._reshape(node, changed)
            return
        fresh = [
            (None if value is values[i] and not isinstance(value, list | tuple) else i, v)
            for i, v in enumerate(values)
            if isinstance(v, torch.Tensor) and v.untyped_storage()._cdata not in self.storages and _wanted(node, i)
        ]
        if not fresh and not changed:
            return  # a view
        draft = self._draft_for(node, changed, bool(fresh))
        args, kwargs = self._arguments(node)
        for view in views_of((args, kwargs)):
            if view.tensor not in draft.writes:
                draft.reads[view.tensor] = None
        if not _known(node.target):
            draft.reads[self._token()] = draft.writes[self._token()] = None
        changes = [self._change(storage, draft) for storage in changed]
        for i in self._once(node):
            if isinstance(args[i], View) and args[i].tensor in self.sources:
                self._preserve(args[i].tensor, draft)
        found = self.extents.get(node.name)
        draft.scratch = max(draft.scratch, found.nbytes if found else 0)
        makes = [
            (i, self._make(v, draft, found.results[i or 0] if found else v.untyped_storage().nbytes()))
            for i, v in fresh
            if v.untyped_storage()._cdata not in self.storages
        ]
        draft.calls.append(
            Call(
                cast("Callable[..., Any]", node.target), args, kwargs, tuple(makes), tuple(changes), self._once(node),
                torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()),
            )
        )  # fmt: skip
        known = torch.fx.node.map_arg((tuple(node.args), dict(node.kwargs)), lambda n: n.meta.get("val"))
        draft.flops += flops(node.target, known[0], known[1], value)

    def _token(self) -> Tensor:
        """A tensor that ops change that must not run again."""
        if self.once is None:
            self.once = Tensor("once", (1,), "uint8", Role.STATE)
            self.sources[self.once] = Source("state")
        return self.once

    def _reshape(self, node: torch.fx.Node, changed: Sequence[_Storage]) -> None:
        """A call that changes how a tensor lies, in place: what reads it later has its view of it."""
        place = self._place(node)
        value = node.meta["val"]
        if value.untyped_storage()._cdata not in self.storages or str(node.target).startswith("aten.resize"):
            raise InvalidInput(f"{place}: {node.target} gives a tensor other memory: make a new one of the right size")
        for storage in changed:
            if storage.owned and self.sources[storage.now].what == "input":
                raise InvalidInput(
                    f"{place}: {node.target} changes the shape of {self.sources[storage.now].name} in place, which is "
                    "the caller's: use the op that is not in place"
                )

    def _draft_for(self, node: torch.fx.Node, changed: Sequence[_Storage], makes: bool) -> _Draft:
        """The op that this call belongs to: the last one if it has made all that the call changes, else a new one."""
        last = self.drafts[-1] if self.drafts else None
        if last is not None and changed and not makes and all(s.maker is last and not s.owned for s in changed):
            return last
        place, backward = self._place(node), node.name in self.traced.backward
        during = Pass.BACKWARD if backward else Pass.LOSS if place.module == OUTSIDE else Pass.FORWARD
        short = node.target._schema.name.partition("::")[2] if hasattr(node.target, "_schema") else str(node.target)
        name = self._name(".".join(part for part in (place.module or OUTSIDE, short) if part))
        draft = _Draft(name, kind(short.rstrip("_") or short), place, during)
        self.drafts.append(draft)
        return draft

    def _place(self, node: torch.fx.Node) -> Place:
        return self.traced.places.get(node.name, Place())

    def _arguments(self, node: torch.fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        torch = torch_module()
        view = lambda n: self._view(n) if isinstance(n.meta.get("val"), torch.Tensor) else n.meta.get("val")  # noqa: E731
        mapped = torch.fx.node.map_arg((tuple(node.args), dict(node.kwargs)), view)
        return mapped[0], mapped[1]

    def _view(self, node: torch.fx.Node) -> View:
        value = node.meta["val"]
        storage, layout = self.storages[value.untyped_storage()._cdata], Layout.of(value)
        return View(storage.now, storage.layout if layout == storage.foretold else layout)

    def _changed(self, node: torch.fx.Node) -> list[_Storage]:
        """The storages that a call changes in place, by its schema."""
        schema = getattr(node.target, "_schema", None)
        result = {id(s): s for i in self._statistics(node) if not (s := self._storage(node.args[i])).owned}
        if schema is None or not schema.is_mutable:
            return list(result.values())
        for i, argument in enumerate(schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            given: Any = node.kwargs.get(argument.name) if i >= len(node.args) else node.args[i]
            for n in given if isinstance(given, list | tuple) else [given]:
                if n is not None:
                    storage = self._storage(n)
                    result[id(storage)] = storage
        return list(result.values())

    def _storage(self, node: Any) -> _Storage:
        return self.storages[node.meta["val"].untyped_storage()._cdata]

    def _statistics(self, node: torch.fx.Node) -> tuple[int, ...]:
        """The numbers of arguments that are statistics which a call changes."""
        schema = getattr(node.target, "_schema", None)
        *numbers, training = STATISTICS.get(schema.name.partition("::")[2] if schema else "", (-1,))
        changes = 0 <= training < len(node.args) and node.args[training] is True
        return tuple(i for i in numbers if node.args[i] is not None) if changes else ()

    def _once(self, node: torch.fx.Node) -> tuple[int, ...]:
        return tuple(i for i in self._statistics(node) if self._storage(node.args[i]).owned)

    def _change(self, storage: _Storage, draft: _Draft) -> tuple[Tensor, Tensor]:
        was = storage.now
        if was in draft.writes and draft is self.drafts[-1] and was not in draft.reads:  # of this op's own making
            return was, was
        draft.reads[was] = None
        if storage.owned:
            source = self.sources[was]
            if source.what == "input":
                raise InvalidInput(
                    f"{draft.place}: {draft.name} changes {source.name} in place, which is the caller's: let the "
                    "module change a copy (x.clone()), or use the op that is not in place"
                )
            self._preserve(was, draft)
            draft.writes[was] = None
            return was, was
        storage.versions += 1
        now = self._tensor(f"{was.name.partition('@')[0]}@{storage.versions}", was.nbytes, was.role)
        self.layouts[now] = storage.layout
        storage.now, storage.maker = now, None
        draft.writes[now] = None
        draft.inplace.append((was, now))
        return was, now

    def _preserve(self, owned: Tensor, changing: _Draft) -> None:
        """Let ops that have read what the caller owns read a copy of it, since it now changes: they may run again."""
        since = max((i for i, d in enumerate(self.drafts) if self.changed_by.get(d.name) == owned), default=-1)
        self.changed_by[changing.name] = owned
        readers = [
            (i, d) for i, d in enumerate(self.drafts)
            if i > since and d is not changing and owned in d.reads and not _once(d, owned)
        ]  # fmt: skip
        if not readers:
            return
        own = self.layouts[owned]
        want = own._replace(offset=0)
        t = self._tensor(f"{owned.name}.kept", owned.nbytes, Role.ACTIVATION)
        self.layouts[t] = want
        first, draft = readers[0]
        kept = _Draft(self._name(f"{owned.name}.keep"), kind("clone"), draft.place, draft.during)
        token = self._token()  # once it has changed, it cannot be copied again
        kept.reads, kept.writes = {owned: None, token: None}, {t: None, token: None}
        kept.calls = [Call(_copied, (View(owned, own), want), {}, ((None, t),))]

        def moved(view: View) -> View:
            offset = view.layout.offset - own.offset
            if view.tensor != owned:
                return view
            if offset < 0:
                raise InvalidInput(f"{changing.place}: {owned.name} shares memory with others, and changes: copy it")
            return View(t, view.layout._replace(offset=offset))

        for _, d in readers:
            d.reads = dict.fromkeys(t if x == owned else x for x in d.reads)
            d.calls = [replace(c, args=_mapped(c.args, moved), kwargs=_mapped(c.kwargs, moved)) for c in d.calls]
        self.drafts.insert(first, kept)

    def _make(self, value: torch.Tensor, draft: _Draft, nbytes: int) -> Tensor:
        storage = value.untyped_storage()
        role = Role.GRADIENT if draft.during is Pass.BACKWARD else Role.ACTIVATION
        if storage.nbytes() and not value.numel():
            raise InvalidInput(
                f"{draft.place}: a tensor without elements is given memory later, by resize_ or by out=: make it of "
                "the right size, or use the result"
            )
        t = self._tensor(draft.name, max(1, nbytes), role)
        foretold = Layout.of(value)
        self.layouts[t] = foretold if value.numel() or not nbytes else _row(nbytes, foretold)
        self.storages[storage._cdata] = _Storage(t, self.layouts[t], foretold, False, draft)
        draft.writes[t] = None
        return t

    # ---- the end of the step

    def _ends(self, outputs: Sequence[Any]) -> tuple[tuple[View, ...], dict[str, View]]:
        """The loss, and the gradient of each parameter, as it is left in `.grad`."""
        traced = self.traced
        loss = self._view(outputs[0])
        ends = dict(zip(traced.trained, outputs[1:], strict=True))
        at = next((i for i, d in enumerate(self.drafts) if d.during is Pass.BACKWARD), len(self.drafts))
        self._reading(RESULT, (loss,), Pass.LOSS, at)
        layouts = {s.name: self.layouts[t] for t, s in self.sources.items() if s.what == "parameter"}
        gradients: dict[str, View] = {}
        taken: set[Tensor] = set()
        for name, node in ends.items():
            if node is not None:
                gradients[name] = self._gradient(name, self._view(node), layouts[name], taken)
        self._reading(GRADIENTS, tuple(gradients.values()), Pass.UPDATE)
        return (loss,), gradients

    def _gradient(self, name: str, view: View, layout: Layout, taken: set[Tensor]) -> View:
        """What `.grad` becomes: the result itself if it is nobody else's and lies as the parameter does, else a copy of
        it; or the sum of what was there and the result."""
        place = next((d.place for d in reversed(self.drafts) if view.tensor in d.writes), Place())
        stride = layout.stride if _dense(layout) else _rows(layout.size)
        want = Layout(layout.size, stride, 0, view.layout.dtype)
        nbytes = max(1, math.prod(layout.size) * view.layout.dtype.itemsize)
        if name in self.accumulate:
            t = self._tensor(f"{name}.grad", nbytes, Role.PARAM_GRADIENT)
            self.layouts[t], self.sources[t] = want, Source("gradient", name)
            sum_ = View(t, want)
            call = Call(_added, (sum_, view), {}, changes=((t, t),))
            self._append(f"{name}.accumulate", place, (t, view.tensor), (t,), call)
            return sum_
        stolen = view.tensor not in self.sources and view.tensor not in taken
        if stolen and view.layout == want and view.tensor.nbytes == nbytes:
            taken.add(view.tensor)
            self.gradients[view.tensor] = replace(view.tensor, role=Role.PARAM_GRADIENT)
            return view
        t = self._tensor(f"{name}.grad", nbytes, Role.PARAM_GRADIENT)
        self.layouts[t] = want
        self._append(f"{name}.copy", place, (view.tensor,), (t,), Call(_copied, (view, want), {}, ((None, t),)))
        return View(t, want)

    def _append(self, name: str, place: Place, reads: Sequence[Tensor], writes: Sequence[Tensor], call: Call) -> None:
        during = Pass.BACKWARD
        draft = _Draft(self._name(name), "gradient.add" if call.changes else "gradient.copy", place, during)
        draft.reads, draft.writes, draft.calls = dict.fromkeys(reads), dict.fromkeys(writes), [call]
        self.drafts.append(draft)

    def _reading(self, name: str, views: Sequence[View], during: Pass, at: int | None = None) -> None:
        draft = _Draft(name, f"caller.{name}", Place(OUTSIDE), during)
        draft.reads = dict.fromkeys(view.tensor for view in views)
        self.drafts.insert(len(self.drafts) if at is None else at, draft)

    # ---- names

    def _name(self, name: str) -> str:
        number = self.names.get(name, 0)
        self.names[name] = number + 1
        return f"{name}#{number}" if number else name

    def _tensor(self, name: str, nbytes: int, role: Role) -> Tensor:
        return Tensor(
            self._name(f"{name}.y" if role in (Role.ACTIVATION, Role.GRADIENT) else name), (nbytes,), "uint8", role
        )


def _wanted(node: torch.fx.Node, i: int) -> bool:
    """Whether a call gives its result i: a backward op leaves out gradients that its mask does not ask for, though its
    fake kernel may not."""
    arguments = node.target._schema.arguments if hasattr(node.target, "_schema") else ()
    at = next((k for k, argument in enumerate(arguments) if argument.name == "output_mask"), len(node.args))
    mask = node.args[at] if at < len(node.args) else node.kwargs.get("output_mask")
    return not isinstance(mask, list | tuple) or i >= len(mask) or bool(mask[i])


def _dense(layout: Layout) -> bool:
    """Whether the elements of a tensor fill its storage, each once."""
    step = 1
    for size, stride in sorted(zip(layout.size, layout.stride, strict=True), key=lambda x: (x[1], x[0])):
        if size != 1 and stride != step:
            return 0 in layout.size
        step *= size
    return True


def _rows(size: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    return tuple(math.prod(size[i + 1 :]) for i in range(len(size)))


def _known(target: Any) -> bool:
    """Whether an op is PyTorch's own. What others compute may change when they run again."""
    schema = getattr(target, "_schema", None)
    return schema is not None and schema.name.partition("::")[0] in ("aten", "prims", "quantized", "mkldnn")


class Sum(NamedTuple):
    """A parameter's `.grad`, and whether it has a value to add to."""

    tensor: torch.Tensor
    there: bool


def _added(total: Sum, gradient: torch.Tensor) -> None:
    if total.there:
        total.tensor.add_(gradient)
    else:
        total.tensor.copy_(gradient)


def _copied(source: torch.Tensor, layout: Layout) -> torch.Tensor:
    """The values of a gradient, laid as the parameter is."""
    torch = torch_module()
    return torch.empty_strided(layout.size, layout.stride, dtype=layout.dtype, device=source.device).copy_(source)


def _row(nbytes: int, foretold: Layout) -> Layout:
    """How a result lies of which PyTorch cannot foretell the size, such as a workspace that a library asks for."""
    return Layout((nbytes // foretold.dtype.itemsize,), (1,), 0, foretold.dtype)


def _room(value: torch.Tensor) -> int:
    """Bytes from the first element of a tensor to its last."""
    return max(1, Form(tuple(value.shape), tuple(value.stride()), value.dtype).nbytes)


def _plain(values: Sequence[Any], place: Place) -> None:
    """Raise InvalidInput for results that a plan knows nothing of."""
    torch = torch_module()
    for v in values:
        if isinstance(v, torch.Tensor):
            if v.layout != torch.strided:
                what = "a sparse gradient" if v.is_sparse else f"a tensor of layout {v.layout}"
                raise InvalidInput(f"{place} makes {what}: use dense ones (nn.Embedding(sparse=False))")
            if v.is_complex():
                raise InvalidInput(f"{place} makes complex numbers, which are not planned: compute with real ones")


def _once(draft: _Draft, t: Tensor) -> bool:
    """Whether an op reads a tensor to change statistics alone, which a re-run leaves out."""
    once = {id(c.args[i]) for c in draft.calls for i in c.once}
    return all(id(v) in once for c in draft.calls for v in views_of((c.args, c.kwargs)) if v.tensor == t)


def _mapped(args: Any, function: Callable[[View], View]) -> Any:
    """Arguments with another view in place of each."""
    if isinstance(args, View):
        return function(args)
    if isinstance(args, Mapping):
        return {key: _mapped(x, function) for key, x in args.items()}
    if isinstance(args, list | tuple) and not isinstance(args, Layout):
        return type(args)(_mapped(x, function) for x in args)
    return args


def views_of(args: Any) -> list[View]:
    """The tensors among arguments, at any depth, in order."""
    if isinstance(args, View):
        return [args]
    if isinstance(args, Mapping):
        args = args.values()
    elif not isinstance(args, list | tuple) or isinstance(args, Layout):
        return []
    return [view for x in args for view in views_of(x)]


def _signature(call: Call) -> str:
    """The call as text: the op, and all arguments that are no tensors. Two calls of one text cost the same if their
    tensors are as large."""

    def text(x: Any) -> str:
        if isinstance(x, View):
            return f"{x.layout.dtype}{list(x.layout.size)}{list(x.layout.stride)}"
        if isinstance(x, list | tuple) and not isinstance(x, Layout):
            return f"[{', '.join(map(text, x))}]"
        return str(x)

    given = [*map(text, call.args), *(f"{name}={text(x)}" for name, x in call.kwargs.items())]
    return f"{getattr(call.target, '__name__', call.target)}({', '.join(given)})"
