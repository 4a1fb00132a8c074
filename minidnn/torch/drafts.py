"""The ops of a step while its graph is read: calls may still be added to them, and what they read may be replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from minidnn.errors import InvalidInput
from minidnn.program import Op, Pass, Role, Tensor
from minidnn.torch.calls import Call, Layout, View, copying, mapped, signature, views_of
from minidnn.torch.capture import Source
from minidnn.torch.kinds import kind
from minidnn.torch.places import OUTSIDE, Place


@dataclass(eq=False)
class Storage:
    """A storage while the graph is read: its present version, and the op that made it, as long as nothing else has."""

    now: Tensor
    layout: Layout
    foretold: Layout  # by the fake kernel
    owned: bool
    maker: Draft | None = None
    versions: int = 1


@dataclass(eq=False)
class Draft:
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
        attrs = "; ".join(signature(call) for call in self.calls)
        reads, writes = (tuple(gradients.get(t, t) for t in tensors) for tensors in (self.reads, self.writes))
        return Op(
            self.name, self.kind, self.place.module or OUTSIDE, self.during, reads, writes, attrs, tuple(self.inplace),
            self.flops,
        )  # fmt: skip


@dataclass(eq=False)
class Drafts:
    """All ops, in order, and the tensors that they make or that the caller owns.

    gradients: those of parameters, by what they were thought to be
    """

    all: list[Draft] = field(default_factory=list)
    layouts: dict[Tensor, Layout] = field(default_factory=dict)
    sources: dict[Tensor, Source] = field(default_factory=dict)
    gradients: dict[Tensor, Tensor] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    once: Tensor | None = None
    changed_by: dict[str, Tensor] = field(default_factory=dict)  # by the op's name: what it changes of the caller's

    def name(self, name: str) -> str:
        """The name, with a number if it has been given."""
        number = self.names.get(name, 0)
        self.names[name] = number + 1
        return f"{name}#{number}" if number else name

    def tensor(self, name: str, nbytes: int, role: Role) -> Tensor:
        """A new tensor. name: its own, or the name of the op that makes it"""
        return Tensor(
            self.name(f"{name}.y" if role in (Role.ACTIVATION, Role.GRADIENT) else name), (nbytes,), "uint8", role
        )

    def token(self) -> Tensor:
        """A tensor that ops change that must not run again."""
        if self.once is None:
            self.once = Tensor("once", (1,), "uint8", Role.STATE)
            self.sources[self.once] = Source("state")
        return self.once

    def append(self, name: str, place: Place, reads: Sequence[Tensor], writes: Sequence[Tensor], call: Call) -> None:
        """An op of minidnn's own behind all others, which makes one call."""
        during = Pass.BACKWARD
        draft = Draft(self.name(name), "gradient.add" if call.changes else "gradient.copy", place, during)
        draft.reads, draft.writes, draft.calls = dict.fromkeys(reads), dict.fromkeys(writes), [call]
        self.all.append(draft)

    def reading(self, name: str, views: Sequence[View], during: Pass, at: int | None = None) -> None:
        """The caller reads these views: behind all ops, or before the op with this number."""
        draft = Draft(name, f"caller.{name}", Place(OUTSIDE), during)
        draft.reads = dict.fromkeys(view.tensor for view in views)
        self.all.insert(len(self.all) if at is None else at, draft)

    def change(self, storage: Storage, draft: Draft) -> tuple[Tensor, Tensor]:
        """The op changes the storage in place: what it was, and what it becomes. Raises InvalidInput for the caller's
        batch."""
        was = storage.now
        if was in draft.writes and draft is self.all[-1] and was not in draft.reads:  # of this op's own making
            return was, was
        draft.reads[was] = None
        if storage.owned:
            source = self.sources[was]
            if source.what == "input":
                raise InvalidInput(
                    f"{draft.place}: {draft.name} changes {source.name} in place, which is the caller's: let the "
                    "module change a copy (x.clone()), or use the op that is not in place"
                )
            self.preserve(was, draft)
            draft.writes[was] = None
            return was, was
        storage.versions += 1
        now = self.tensor(f"{was.name.partition('@')[0]}@{storage.versions}", was.nbytes, was.role)
        self.layouts[now] = storage.layout
        storage.now, storage.maker = now, None
        draft.writes[now] = None
        draft.inplace.append((was, now))
        return was, now

    def preserve(self, owned: Tensor, changing: Draft) -> None:
        """Let ops that have read what the caller owns read a copy of it, since it now changes: they may run again."""
        since = max((i for i, d in enumerate(self.all) if self.changed_by.get(d.name) == owned), default=-1)
        self.changed_by[changing.name] = owned
        readers = [
            (i, d) for i, d in enumerate(self.all)
            if i > since and d is not changing and owned in d.reads and not _once(d, owned)
        ]  # fmt: skip
        if not readers:
            return
        own = self.layouts[owned]
        want = own._replace(offset=0)
        t = self.tensor(f"{owned.name}.kept", owned.nbytes, Role.ACTIVATION)
        self.layouts[t] = want
        first, draft = readers[0]
        kept = Draft(self.name(f"{owned.name}.keep"), kind("clone"), draft.place, draft.during)
        token = self.token()  # once it has changed, it cannot be copied again
        kept.reads, kept.writes = {owned: None, token: None}, {t: None, token: None}
        kept.calls = [copying(View(owned, own), want, t)]

        def moved(view: View) -> View:
            offset = view.layout.offset - own.offset
            if view.tensor != owned:
                return view
            if offset < 0:
                raise InvalidInput(f"{changing.place}: {owned.name} shares memory with others, and changes: copy it")
            return View(t, view.layout._replace(offset=offset))

        for _, d in readers:
            d.reads = dict.fromkeys(t if x == owned else x for x in d.reads)
            d.calls = [replace(c, args=mapped(c.args, moved), kwargs=mapped(c.kwargs, moved)) for c in d.calls]
        self.all.insert(first, kept)


def _once(draft: Draft, t: Tensor) -> bool:
    """Whether an op reads a tensor to change statistics alone, which a re-run leaves out."""
    once = {id(c.args[i]) for c in draft.calls for i in c.once}
    return all(id(v) in once for c in draft.calls for v in views_of((c.args, c.kwargs)) if v.tensor == t)
