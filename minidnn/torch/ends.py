"""What a step leaves in `.grad` of the parameters."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from minidnn.program import Role, Tensor
from minidnn.torch.calls import Layout, View, adding, copying
from minidnn.torch.capture import Source
from minidnn.torch.drafts import Drafts
from minidnn.torch.places import Place


def gradients_left(drafts: Drafts, made: Mapping[str, View | None], accumulate: Collection[str]) -> dict[str, View]:
    """The gradient of each parameter that has one, as it is left in `.grad`.

    made:       what the backward pass has made of each
    accumulate: the parameters whose gradient is added to one that is there
    """
    layouts = {s.name: drafts.layouts[t] for t, s in drafts.sources.items() if s.what == "parameter"}
    result: dict[str, View] = {}
    taken: set[Tensor] = set()
    for name, view in made.items():
        if view is not None:
            result[name] = _gradient(drafts, name, view, layouts[name], name in accumulate, taken)
    return result


def _gradient(drafts: Drafts, name: str, view: View, layout: Layout, added: bool, taken: set[Tensor]) -> View:
    """What `.grad` becomes: the result itself if it is nobody else's and lies as the parameter does, else a copy of
    it; or the sum of what was there and the result."""
    place = next((d.place for d in reversed(drafts.all) if view.tensor in d.writes), Place())
    stride = layout.stride if _dense(layout) else _rows(layout.size)
    want = Layout(layout.size, stride, 0, view.layout.dtype)
    nbytes = max(1, math.prod(layout.size) * view.layout.dtype.itemsize)
    if added:
        t = drafts.tensor(f"{name}.grad", nbytes, Role.PARAM_GRADIENT)
        drafts.layouts[t], drafts.sources[t] = want, Source("gradient", name)
        sum_ = View(t, want)
        drafts.append(f"{name}.accumulate", place, (t, view.tensor), (t,), adding(sum_, view))
        return sum_
    stolen = view.tensor not in drafts.sources and view.tensor not in taken
    if stolen and view.layout == want and view.tensor.nbytes == nbytes:
        taken.add(view.tensor)
        drafts.gradients[view.tensor] = replace(view.tensor, role=Role.PARAM_GRADIENT)
        return view
    t = drafts.tensor(f"{name}.grad", nbytes, Role.PARAM_GRADIENT)
    drafts.layouts[t] = want
    drafts.append(f"{name}.copy", place, (view.tensor,), (t,), copying(view, want, t))
    return View(t, want)


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
