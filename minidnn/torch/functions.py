"""What the lines of a step's function call, beside PyTorch's own ops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minidnn.errors import InvalidInput
from minidnn.program import Tensor
from minidnn.torch.calls import Call, Layout
from minidnn.torch.experimental import schema_of
from minidnn.torch.installed import torch_module

if TYPE_CHECKING:
    import torch

# Their results depend on whether gradients are recorded: without, what backward reads is left out.
RECORDING = ("aten::mkldnn_rnn_layer",)


def function_of(call: Call) -> Callable[..., Any]:
    """The function that a call runs."""
    schema = schema_of(call.target)
    return Recording(call.target) if schema is not None and schema.name in RECORDING else call.target


@dataclass(frozen=True)
class Recording:
    """Calls an op as where gradients are recorded, on tensors of which none is."""

    target: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        torch = torch_module()
        given = [x.detach() if isinstance(x, torch.Tensor) else x for x in args]
        with torch.enable_grad():
            return self.target(*given)


@dataclass(frozen=True, eq=False)
class Copy:
    """Copies the bytes of a tensor, all of its storage."""

    layout: Layout
    nbytes: int

    def __call__(self, source: torch.Tensor) -> torch.Tensor:
        torch = torch_module()
        count = self.nbytes // self.layout.dtype.itemsize
        whole = torch.empty((count,), dtype=self.layout.dtype, device=source.device)
        whole.copy_(torch.as_strided(source, (count,), (1,), 0))
        return torch.as_strided(whole, self.layout.size, self.layout.stride, self.layout.offset)


@dataclass(frozen=True, eq=False)
class Check:
    """Compares a result with what was predicted of it."""

    tensor: Tensor
    layout: Layout
    op: str
    place: str

    def __call__(self, value: Any) -> None:
        if not isinstance(value, torch_module().Tensor):
            raise InvalidInput(f"{self.place}: {self.op} gives no tensor here, and one was predicted: leave it out")
        nbytes = value.untyped_storage().nbytes()
        if Layout.of(value) != self.layout or max(1, nbytes) != self.tensor.nbytes:
            raise InvalidInput(
                f"{self.place}: {self.op} was predicted to give {self._text(self.layout, self.tensor.nbytes)}, "
                f"and gave {self._text(Layout.of(value), nbytes)}: its fake kernel does not say what its real one "
                "does; mend it, or leave the op out of the module"
            )

    def _text(self, layout: Layout, nbytes: int) -> str:
        kind = str(layout.dtype).removeprefix("torch.")
        return f"{kind}{list(layout.size)} with strides {list(layout.stride)} in {nbytes} bytes"


def within(t: torch.Tensor, layout: Layout, start: int) -> torch.Tensor:
    """A view of a tensor of the caller's, which may begin anywhere in its storage. start: where it was predicted to"""
    moved = t.storage_offset() * t.itemsize - start
    return viewed(t, layout._replace(offset=layout.offset + moved // layout.dtype.itemsize))


def viewed(t: torch.Tensor, layout: Layout) -> torch.Tensor:
    """A view with another dtype."""
    torch = torch_module()
    view = torch.empty(0, dtype=layout.dtype, device=t.device)
    return view.set_(t.untyped_storage(), layout.offset, layout.size, layout.stride)
