"""A traced step becomes a Program: its graph is read, node by node."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from minidnn.errors import InvalidInput
from minidnn.program import Pass, Program, Role, Tensor
from minidnn.torch import schemas
from minidnn.torch.calls import Call, Layout, View, views_of
from minidnn.torch.capture import FORWARD_ALONE, GRADIENTS, RESULT, STATE, Capture, Source
from minidnn.torch.drafts import Draft, Drafts, Storage
from minidnn.torch.ends import gradients_left
from minidnn.torch.experimental import schema_of, storage_of
from minidnn.torch.flops import flops
from minidnn.torch.installed import torch_module
from minidnn.torch.kinds import kind
from minidnn.torch.places import OUTSIDE, Place
from minidnn.torch.scratch import Call as Measured
from minidnn.torch.scratch import Form, Found, Scratch
from minidnn.torch.traced import Traced

if TYPE_CHECKING:
    import torch


def captured(
    traced: Traced,
    extents: Mapping[str, Found] = MappingProxyType({}),
    accumulate: frozenset[str] = frozenset(),
    state: int = 0,
) -> Capture:
    """A traced step as a Program.

    extents:    of each call, by its node's name, the bytes of its results and what it takes beside (`extents`);
                a call that is not there takes what its results' shapes say
    accumulate: the parameters whose gradient is added to one that is there
    state:      bytes of the optimizer's state, which the device holds during the step
    """
    return _Reader(traced, extents, accumulate, state).capture()


def extents(traced: Traced, scratch: Scratch) -> dict[str, Found]:
    """What each call of a graph takes of memory, by its node's name. Ops of others are not run to measure it: they may
    count."""
    nodes = [n for n in traced.graph.graph.nodes if n.op == "call_function" and schemas.known(n.target)]
    return dict(zip((n.name for n in nodes), scratch.of([Measured.of_node(n) for n in nodes]), strict=True))


class _Reader:
    """Reads a graph, node by node."""

    def __init__(self, traced: Traced, extents: Mapping[str, Found], accumulate: frozenset[str], state: int) -> None:
        self.traced, self.extents, self.accumulate, self.state = traced, extents, accumulate, state
        self.storages: dict[Any, Storage] = {}
        self.drafts = Drafts()

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
            self.drafts.reading(RESULT, results, Pass.FORWARD)
        if self.state:
            t = self.drafts.tensor(STATE, self.state, Role.STATE)
            self.drafts.sources[t] = Source("state")
        drafts = self.drafts
        ops = tuple(draft.op(drafts.gradients) for draft in drafts.all)
        layers = dict.fromkeys(op.layer for op in ops if op.during in (Pass.FORWARD, Pass.LOSS))
        name = FORWARD_ALONE if not self.traced.training else "ACCUMULATE" if self.accumulate else "TRAIN"
        owned = tuple(drafts.sources)
        program = Program(name, ops, persistent=owned, layers=tuple(layers), held=owned)
        program.check()
        return Capture(
            self.traced, program, {d.name: tuple(d.calls) for d in drafts.all}, drafts.layouts, drafts.sources, results,
            gradients, {d.name: d.place for d in drafts.all}, {d.name: d.scratch for d in drafts.all},
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
        t = self.drafts.tensor(source.name, _room(value), role)
        self.drafts.sources[t] = source
        self.drafts.layouts[t] = Layout.of(value)
        if storage_of(value) not in self.storages:
            self.storages[storage_of(value)] = Storage(t, self.drafts.layouts[t], self.drafts.layouts[t], owned=True)

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
            if isinstance(v, torch.Tensor) and storage_of(v) not in self.storages and schemas.wanted(node, i)
        ]
        if not fresh and not changed:
            return  # a view
        draft = self._draft_for(node, changed, bool(fresh))
        args, kwargs = self._arguments(node)
        for view in views_of((args, kwargs)):
            if view.tensor not in draft.writes:
                draft.reads[view.tensor] = None
        if not schemas.known(node.target):
            draft.reads[self.drafts.token()] = draft.writes[self.drafts.token()] = None
        changes = [self.drafts.change(storage, draft) for storage in changed]
        for i in self._once(node):
            if isinstance(args[i], View) and args[i].tensor in self.drafts.sources:
                self.drafts.preserve(args[i].tensor, draft)
        found = self.extents.get(node.name)
        draft.scratch = max(draft.scratch, found.nbytes if found else 0)
        makes = [
            (i, self._make(v, draft, found.results[i or 0] if found else v.untyped_storage().nbytes()))
            for i, v in fresh
            if storage_of(v) not in self.storages
        ]
        draft.calls.append(
            Call(
                cast("Callable[..., Any]", node.target), args, kwargs, tuple(makes), tuple(changes), self._once(node),
                torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()),
            )
        )  # fmt: skip
        given = torch.fx.node.map_arg((tuple(node.args), dict(node.kwargs)), lambda n: n.meta.get("val"))
        draft.flops += flops(node.target, given[0], given[1], value)

    def _reshape(self, node: torch.fx.Node, changed: Sequence[Storage]) -> None:
        """A call that changes how a tensor lies, in place: what reads it later has its view of it."""
        place = self._place(node)
        value = node.meta["val"]
        if storage_of(value) not in self.storages or str(node.target).startswith("aten.resize"):
            raise InvalidInput(f"{place}: {node.target} gives a tensor other memory: make a new one of the right size")
        for storage in changed:
            if storage.owned and (source := self.drafts.sources[storage.now]).what == "input":
                raise InvalidInput(
                    f"{place}: {node.target} changes the shape of {source.name} in place, which is "
                    "the caller's: use the op that is not in place"
                )

    def _draft_for(self, node: torch.fx.Node, changed: Sequence[Storage], makes: bool) -> Draft:
        """The op that this call belongs to: the last one if it has made all that the call changes, else a new one."""
        last = self.drafts.all[-1] if self.drafts.all else None
        if last is not None and changed and not makes and all(s.maker is last and not s.owned for s in changed):
            return last
        place, backward = self._place(node), node.name in self.traced.backward
        during = Pass.BACKWARD if backward else Pass.LOSS if place.module == OUTSIDE else Pass.FORWARD
        schema = schema_of(node.target)
        short = schema.name.partition("::")[2] if schema is not None else str(node.target)
        name = self.drafts.name(".".join(part for part in (place.module or OUTSIDE, short) if part))
        draft = Draft(name, kind(short.rstrip("_") or short), place, during)
        self.drafts.all.append(draft)
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
        storage, layout = self.storages[storage_of(value)], Layout.of(value)
        return View(storage.now, storage.layout if layout == storage.foretold else layout)

    def _changed(self, node: torch.fx.Node) -> list[Storage]:
        """The storages that a call changes in place, by its schema."""
        result = {id(s): s for i in schemas.statistics(node) if not (s := self._storage(node.args[i])).owned}
        result |= {id(s): s for s in map(self._storage, schemas.changed(node))}
        return list(result.values())

    def _storage(self, node: Any) -> Storage:
        return self.storages[storage_of(node.meta["val"])]

    def _once(self, node: torch.fx.Node) -> tuple[int, ...]:
        return tuple(i for i in schemas.statistics(node) if self._storage(node.args[i]).owned)

    def _make(self, value: torch.Tensor, draft: Draft, nbytes: int) -> Tensor:
        role = Role.GRADIENT if draft.during is Pass.BACKWARD else Role.ACTIVATION
        if value.untyped_storage().nbytes() and not value.numel():
            raise InvalidInput(
                f"{draft.place}: a tensor without elements is given memory later, by resize_ or by out=: make it of "
                "the right size, or use the result"
            )
        t = self.drafts.tensor(draft.name, max(1, nbytes), role)
        foretold = Layout.of(value)
        self.drafts.layouts[t] = foretold if value.numel() or not nbytes else _row(nbytes, foretold)
        self.storages[storage_of(value)] = Storage(t, self.drafts.layouts[t], foretold, False, draft)
        draft.writes[t] = None
        return t

    # ---- the end of the step

    def _ends(self, outputs: Sequence[Any]) -> tuple[tuple[View, ...], dict[str, View]]:
        """The loss, and the gradient of each parameter, as it is left in `.grad`."""
        loss, *made = (None if node is None else self._view(node) for node in outputs)
        assert loss is not None
        drafts = self.drafts.all
        at = next((i for i, d in enumerate(drafts) if d.during is Pass.BACKWARD), len(drafts))
        self.drafts.reading(RESULT, (loss,), Pass.LOSS, at)
        gradients = gradients_left(self.drafts, dict(zip(self.traced.trained, made, strict=True)), self.accumulate)
        self.drafts.reading(GRADIENTS, tuple(gradients.values()), Pass.UPDATE)
        return (loss,), gradients


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
