"""An optimizer's state: on the host while a step computes, and on the device while the optimizer steps.

The tensors of the state stay the same objects: between the optimizer's steps their storages are empty. Whoever asks
for the state by `optimizer.state_dict()` gets a whole copy of it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from minidnn.errors import InvalidInput
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.threads import page_aligned
from minidnn.sizes import text
from minidnn.torch.installed import torch_module
from minidnn.torch.optimizer import OptimizerBytes, bytes_of

if TYPE_CHECKING:
    import torch


class HostState:
    """Keeps the state of an optimizer on the host. `attach` begins that, `detach` ends it.

    Tensors that are smaller than LEAST bytes stay: step counts, which some optimizers keep on the CPU.
    """

    LEAST = 4096

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self._away: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # the tensor, and its bytes on the host
        self._room: dict[int, torch.Tensor] = {}
        self._handles: list[Any] = []

    def attach(self) -> None:
        """Send the state away now, and after each step of the optimizer."""
        if self._handles:
            return
        own = self.optimizer
        self._handles = [
            own.register_step_pre_hook(lambda *_: self.bring()),
            own.register_step_post_hook(lambda *_: self.send()),
            own.register_state_dict_pre_hook(lambda *_: self.bring()),
            own.register_state_dict_post_hook(self._copied),
            own.register_load_state_dict_pre_hook(lambda *_: self.bring()),
            own.register_load_state_dict_post_hook(lambda *_: self.send()),
        ]
        self.send()

    def detach(self) -> None:
        """Bring the state back, and leave it there."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.bring()

    def send(self) -> None:
        """Copy the state to the host, and free its bytes on the device."""
        for t in self._large():
            storage = t.untyped_storage()
            self._away[id(t)] = t, self._kept(t).copy_(_bytes(t))
            storage.resize_(0)

    def bring(self) -> None:
        """Bring the state back to the device."""
        for t, kept in self._away.values():
            t.untyped_storage().resize_(kept.numel())
            _bytes(t).copy_(kept)
        self._away.clear()

    def _copied(self, optimizer: Any, state_dict: dict[str, Any]) -> dict[str, Any]:
        """A copy of a state dict, whose tensors stay whole."""
        result = copy.deepcopy(state_dict)
        self.send()
        return result

    def _large(self) -> Iterator[torch.Tensor]:
        """The tensors of the state that are on the device and large, each once."""
        torch, seen = torch_module(), set(self._away)
        for state in self.optimizer.state.values():
            for t in state.values():
                if isinstance(t, torch.Tensor) and id(t) not in seen and t.untyped_storage().nbytes() >= self.LEAST:
                    seen.add(id(t))
                    yield t

    def _kept(self, t: torch.Tensor) -> torch.Tensor:
        """Bytes on the host for a tensor; page-locked ones for a tensor of a GPU."""
        torch, count = torch_module(), t.untyped_storage().nbytes()
        room = self._room.get(id(t))
        if room is None or room.numel() != count:
            if t.device.type == "cpu":
                room = torch.from_numpy(page_aligned(count))
            else:
                room = torch.empty(count, dtype=torch.uint8, pin_memory=True)
            self._room[id(t)] = room
        return room


def _bytes(t: torch.Tensor) -> torch.Tensor:
    """All bytes of a tensor's storage."""
    torch = torch_module()
    return torch.empty(0, dtype=torch.uint8, device=t.device).set_(t.untyped_storage())


def held_on_device(
    module: torch.nn.Module, optimizer: torch.optim.Optimizer | None, state: str, budget: int | None
) -> int:
    """Bytes of the optimizer's state that are on the device while a step computes. It is sent to the host if it is to
    be there. Raises BudgetError if the optimizer's own step exceeds the budget."""
    if state not in ("device", "host"):
        raise InvalidInput(f"state {state!r}: expected 'device' or 'host'")
    if optimizer is None:
        if state == "host":
            raise InvalidInput("state 'host' is an optimizer's: name it, too (optimizer=...)")
        return 0
    own = bytes_of(optimizer, module)
    if budget is not None:
        _check_optimizer(own, module, budget)
    if state == "device":
        return own.state
    HostState(optimizer).attach()
    return 0


def _check_optimizer(own: OptimizerBytes, module: torch.nn.Module, budget: int) -> None:
    weights = sum(t.nbytes for t in (*module.parameters(), *module.buffers()))
    gradients = sum(p.nbytes for p in module.parameters() if p.requires_grad)
    needed = weights + gradients + own.state + own.scratch
    if needed > budget:
        raise BudgetError(
            f"{own.name}.step() takes {text(needed)}, and the budget is {text(budget)}: {text(weights)} of weights, "
            f"{text(gradients)} of gradients, {text(own.state)} of state and {text(own.scratch)} beside these; "
            f"{needed} bytes would do, or an optimizer that keeps less (foreach=False takes less, if it is used)",
            needed,
            needed,
        )
