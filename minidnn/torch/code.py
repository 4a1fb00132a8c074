"""A proved schedule as a Python function that PyTorch runs: one line for each call, copy and release.

The function is a generator. It begins with the tensors that the caller owns, yields the loss, is sent the loss's
gradient, and returns the gradients of the parameters. A forward pass alone yields nothing, and returns its results.
Names are resolved here, so that a step looks nothing up but Python's local variables.
"""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from minidnn.memory.schedule import (
    Alloc,
    Compute,
    Fetch,
    Free,
    Instruction,
    Offload,
    Prefetch,
    Residency,
    Schedule,
    Stash,
)
from minidnn.program import Tensor
from minidnn.torch.calls import Call, Layout, View, views_of
from minidnn.torch.capture import GRADIENTS, RESULT, Capture
from minidnn.torch.functions import Check, Copy, function_of, viewed, within
from minidnn.torch.installed import torch_module
from minidnn.torch.places import Place
from minidnn.torch.runtime import Runtime

if TYPE_CHECKING:
    pass

Steps = Generator[Any, Any, Any]


@dataclass(eq=False)
class Writer:
    """Writes the function, and collects what its names mean."""

    capture: Capture
    schedule: Schedule
    runtime: Runtime
    checked: bool
    told: Callable[[int], object] | None = None
    lines: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)
    variable: dict[int, str] = field(default_factory=dict)  # by the identity of a residency
    views: dict[tuple[str, Layout], str] = field(default_factory=dict)
    _known: dict[Any, str] = field(default_factory=dict)

    def write(self) -> Callable[..., Steps]:
        """The function. Its arguments are the values of the tensors of `owned`, in that order."""
        self._reused = self._counted()
        self._again = {x.op.name for x in self._computes() if x.run}
        self._check_order()
        self.names["V"], self.names["S"], self.names["O"] = viewed, torch_module().as_strided, within
        self.names["READ"], self.names["SET"] = self.runtime.random_state()
        for buffer in self.schedule.buffers:
            if buffer.persistent:
                for s in buffer.residencies:
                    self.variable[id(s)] = self._owned_name(s.tensor)
        for i, x in enumerate(self.schedule.instructions):
            if self.told is not None and isinstance(x, Compute | Prefetch):
                self.lines.append(f"{self._function(self.told)}({i})")
            self._instruction(i, x)
        head = f"def step({', '.join(self._owned_name(t) for t in owned(self.capture))}):"
        self.lines.append("return gradients" if self.capture.traced.training else "return results")
        if not self.capture.traced.training:
            self.lines.append("yield")  # never reached: it makes the function a generator
        self._between_edges()
        source = "\n    ".join([head, *self.lines]) + "\n"
        file = f"<minidnn step {self.schedule.program.name} {id(self):x}>"
        linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
        exec(compile(source, file, "exec"), self.names)
        function: Callable[..., Steps] = self.names["step"]
        return function

    def _between_edges(self) -> None:
        edges = self.runtime.edges()
        if edges is not None:
            begin, end = map(self._function, edges)
            inner = [f"    {line}" for line in self.lines]
            self.lines = [f"{begin}()", "try:", *inner, "finally:", f"    {end}()"]

    def _check_order(self) -> None:
        """The ops that draw random numbers must do so in the order in which eager mode does."""
        calls = self.capture.calls
        drawing = [op.name for op in self.capture.program.ops if any(c.random for c in calls.get(op.name, ()))]
        if [x.op.name for x in self._computes() if not x.run and x.op.name in set(drawing)] != drawing:
            raise AssertionError("a plan draws random numbers in another order than its program")

    def _computes(self) -> Iterable[Compute]:
        return (x for x in self.schedule.instructions if isinstance(x, Compute))

    def _counted(self) -> Counter[tuple[int, Layout]]:
        """How often each view of each residency is read."""
        result: Counter[tuple[int, Layout]] = Counter()
        for x in self._computes():
            at = {s.tensor: id(s) for s in x.reads}
            for call in self.capture.calls.get(x.op.name, ()):
                for view in views_of((call.args, call.kwargs)):
                    if view.tensor in at:
                        result[at[view.tensor], view.layout] += 1
        return result

    # ---- names

    def _owned_name(self, t: Tensor) -> str:
        return self._name(("owned", t), "o")

    def _name(self, key: Any, letter: str) -> str:
        if key not in self._known:
            self._known[key] = f"{letter}{len(self._known)}"
        return self._known[key]

    def _constant(self, value: Any) -> str:
        if value is None or isinstance(value, bool | int | str):
            return repr(value)
        if isinstance(value, list | tuple) and not isinstance(value, Layout) and not hasattr(value, "numel"):
            inner = ", ".join(map(self._constant, value))
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
        name = self._name(("constant", id(value)), "k")
        self.names[name] = value
        return name

    def _function(self, function: Callable[..., Any]) -> str:
        name = self._name(("function", id(function)), "f")
        self.names[name] = function
        return name

    def _bind(self, residency: Residency) -> str:
        name = self._name(("residency", id(residency)), "r")
        self.variable[id(residency)] = name
        return name

    # ---- instructions

    def _instruction(self, i: int, x: Instruction) -> None:
        if isinstance(x, Alloc):
            return
        if isinstance(x, Free):
            self._free(x)
            return
        if isinstance(x, Compute):
            self._compute(x)
        elif isinstance(x, Offload):
            copy = self._function(self.runtime.offload(x, self._layout(x.residency.tensor)))
            self.lines.append(f"{copy}({self.variable[id(x.residency)]})")
        elif isinstance(x, Prefetch):
            copy = self._function(self.runtime.prefetch(x, self._layout(x.residency.tensor)))
            self._give_up([x.residency])
            self.lines.append(f"{self._bind(x.residency)} = {copy}()")
        elif isinstance(x, Stash | Fetch):
            move = self.runtime.stash(x) if isinstance(x, Stash) else self.runtime.fetch(x)
            self.lines.append(f"{self._function(move)}()")
        elif (wait := self.runtime.wait(i, x)) is not None:
            self.lines.append(f"{self._function(wait)}()")
        if (mark := self.runtime.mark(i, x)) is not None:
            self.lines.append(f"{self._function(mark)}()")

    def _free(self, x: Free) -> None:
        self._forget(x.buffer.residencies)

    def _give_up(self, new: Iterable[Residency], kept: Iterable[Residency] = ()) -> None:
        """Forget the tensors whose bytes these residencies take: a slot's former ones. An op's own are `kept`."""
        staying = {id(s) for s in (*new, *kept)}
        for s in new:
            self._forget(was for was in s.buffer.residencies if id(was) not in staying)

    def _forget(self, residencies: Iterable[Residency]) -> None:
        gone = {self.variable.pop(id(s)) for s in residencies if id(s) in self.variable}
        gone.difference_update(self.variable.values())  # a later version that lies there has the same name
        views = [(key, name) for key, name in self.views.items() if key[0] in gone]
        for key, _ in views:
            del self.views[key]
        if names := [*sorted(gone), *(name for _, name in views)]:
            self.lines.append(f"del {', '.join(names)}")

    def _layout(self, t: Tensor) -> Layout:
        return self.capture.layouts[t]

    def _compute(self, x: Compute) -> None:
        if x.op.name == RESULT:
            self._result(x)
        elif x.op.name == GRADIENTS:
            at = {s.tensor: s for s in x.reads}
            kept = [v for v in self.capture.gradients.values() if self._is_new(v)]
            self.lines.append(f"gradients = [{', '.join(self._view(v, at) for v in kept)}]")
        else:
            self._calls(x)

    def _is_new(self, view: View) -> bool:
        return view.tensor not in self.capture.sources

    def _result(self, x: Compute) -> None:
        at = {s.tensor: s for s in x.reads}
        results = ", ".join(self._view(v, at) for v in self.capture.results)
        if self.capture.traced.training:
            tangent = next(t for t, s in self.capture.sources.items() if s.what == "tangent")
            # A copy, since the caller keeps it as long as it likes, and the op may have made it within a large storage.
            sums = [t for t, s in self.capture.sources.items() if s.what == "gradient"]
            names = ", ".join(map(self._owned_name, (tangent, *sums)))
            self.lines.append(f"{names}, = yield {results}.clone()")
        else:
            self.lines.append(f"results = [{results}]")

    def _calls(self, x: Compute) -> None:
        at: dict[Tensor, Residency] = {s.tensor: s for s in x.reads}
        new = {s.tensor: s for s in x.writes}
        self._give_up(x.writes, x.reads)
        calls = self.capture.calls[x.op.name]
        draws = any(call.random for call in calls) and x.op.name in self._again
        state = self._name(("state", x.op.name), "q")
        if draws:
            given = {id(g): g for call in calls for g in (*call.args, *call.kwargs.values()) if _is_generator(g)}
            self.names[f"{state}g"] = tuple(given.values())
            self.lines += (
                [f"{state} = READ({state}g)"] if not x.run else [f"now = READ({state}g); SET({state}g, {state})"]
            )
        for call in calls:
            self._call(call, x.run > 0, at, new, self.capture.places[x.op.name])
        if draws and x.run:
            self.lines.append(f"SET({state}g, now)")

    def _call(
        self, call: Call, again: bool, at: dict[Tensor, Residency], new: Mapping[Tensor, Residency], place: Place
    ) -> None:
        for was, now in call.changes:
            if was != now:
                self._next_version(at[was], new[now])
                at[was] = at[now] = new[now]
        args = [None if again and i in call.once else a for i, a in enumerate(call.args)]
        given = [self._argument(a, at) for a in args]
        given += [f"{name}={self._argument(a, at)}" for name, a in call.kwargs.items()]
        line = f"{self._function(function_of(call))}({', '.join(given)})"
        if not call.makes:
            self.lines.append(line)
            return
        single = call.makes[0][0] is None
        made = [(i, t, self._bind(new[t])) for i, t in call.makes]
        if single:
            self.lines.append(f"{made[0][2]} = {line}")
        else:
            self.lines.append(f"t = {line}")
            self.lines += [f"{name} = t[{i}]" for i, _, name in made]
            self.lines.append("del t")
        for _, t, name in made:
            at[t] = new[t]
            if self.checked:
                check = self._function(Check(t, self._layout(t), str(call.target), str(place)))
                self.lines.append(f"{check}({name})")

    def _next_version(self, was: Residency, now: Residency) -> None:
        """The new version of a tensor that changes in place: the old one's bytes, or a copy of them."""
        old = self.variable[id(was)]
        if was.buffer is now.buffer:
            self.variable[id(now)] = old
        else:
            copy = self._function(Copy(self._layout(now.tensor), now.tensor.nbytes))
            self.lines.append(f"{self._bind(now)} = {copy}({old})")

    def _argument(self, value: Any, at: Mapping[Tensor, Residency]) -> str:
        if isinstance(value, View):
            return self._view(value, at)
        if isinstance(value, list | tuple) and not isinstance(value, Layout) and views_of(value):
            return f"[{', '.join(self._argument(v, at) for v in value)}]"
        return self._constant(value)

    def _view(self, view: View, at: Mapping[Tensor, Residency]) -> str:
        """An expression for a view of a tensor; one that is read more often is made once."""
        residency = at[view.tensor]
        name, own, layout = self.variable[id(residency)], self._layout(view.tensor), view.layout
        if layout == own:
            return name
        if (name, layout) in self.views:
            return self.views[name, layout]
        if view.tensor in self.capture.sources:
            text = f"O({name}, {self._constant(layout)}, {own.offset * own.dtype.itemsize})"
        elif layout.dtype == own.dtype:
            text = f"S({name}, {layout.size}, {layout.stride}, {layout.offset})"
        else:
            text = f"V({name}, {self._constant(layout)})"
        if self._reused[id(residency), layout] > 1:
            view_name = self._name(("view", name, layout), "v")
            self.lines.append(f"{view_name} = {text}")
            self.views[name, layout] = view_name
            return view_name
        return text


def written(
    capture: Capture,
    schedule: Schedule,
    runtime: Runtime,
    checked: bool = False,
    told: Callable[[int], object] | None = None,
) -> Callable[..., Steps]:
    """The schedule's function.

    checked: whether it compares each result's layout with the predicted one. Raises InvalidInput where they differ.
    told:    called with the number of each instruction that may ask for memory, before it
    """
    return Writer(capture, schedule, runtime, checked, told).write()


def _is_generator(x: Any) -> bool:
    return isinstance(x, torch_module().Generator)


def owned(capture: Capture) -> list[Tensor]:
    """The tensors whose values the function gets, in order: all that the caller owns, but the optimizer's state, and
    the gradient of the loss and those that are added to, which it is sent behind the loss."""
    return [t for t, source in capture.sources.items() if source.what not in ("tangent", "gradient", "state")]
