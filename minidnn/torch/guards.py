"""What Python may not do while a module is traced, since a plan would not do it again."""

from __future__ import annotations

import contextlib
import random
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from minidnn.errors import InvalidInput, few, short
from minidnn.torch.fingerprint import Fingerprint
from minidnn.torch.installed import torch_module

if TYPE_CHECKING:
    import torch

CHECKPOINT = (
    "the module uses torch.utils.checkpoint, or other hooks on saved tensors: turn that off (in `transformers`, "
    "model.gradient_checkpointing_disable()), since the plan decides what runs again"
)
# functions of torch and of torch.random
SEEDING = ("manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state", "fork_rng")


@contextlib.contextmanager
def unchanged(module: torch.nn.Module, loss: Callable[..., Any] | None) -> Iterator[None]:
    """Leave the module as it was. Raises InvalidInput if what runs sets attributes, fills lists, draws random numbers
    of Python or NumPy, or sets those of PyTorch: a plan would repeat those of the first step."""
    torch, name = torch_module(), type(module).__name__
    own = [(m.__dict__, dict(m.__dict__)) for m in module.modules() if type(m).__module__.startswith("torch.nn.")]
    facts = Fingerprint(module, loss)
    numbers, state = _numbers(), torch.get_rng_state()
    try:
        with _without_seeding(name):
            yield
        if changed := facts.differences():
            file, line = facts.line(changed[0])
            at = f"{short(file)}:{line}: " if file else ""
            raise InvalidInput(
                f"{at}a step of {name} sets {few(changed)}, and a plan repeats the first step: keep it as a buffer and "
                "change that in place, or move it out of forward and hooks; if it is a cache that the first call "
                "fills, call the module once before"
            )
        if numbers != _numbers():
            file, line = facts.line("random")
            at = f"{short(file)}:{line}: " if file else ""
            raise InvalidInput(
                f"{at}{name} draws random numbers of Python or NumPy, which a plan would repeat in each step: draw "
                "them with torch, and let them act on tensors (torch.where, or a factor of 0 or 1)"
            )
        if not torch.equal(state, torch.get_rng_state()):
            torch.set_rng_state(state)
            raise InvalidInput(f"{name} sets the state of PyTorch's random numbers: {_SEEDS}")
    finally:
        facts.restore()
        for held, was in own:  # PyTorch's modules keep weak references to weights, and weights that they compute
            if len(held) != len(was) or any(held.get(key) is not value for key, value in was.items()):
                held.clear()
                held.update(was)


_SEEDS = "a plan draws the numbers that come next; seed before the step, and draw within it"


@contextlib.contextmanager
def _without_seeding(name: str) -> Iterator[None]:
    torch = torch_module()
    homes = [(home, key, getattr(home, key)) for home in (torch, torch.random) for key in SEEDING if hasattr(home, key)]
    for home, key, _ in homes:
        setattr(home, key, partial(_refuse, key, name))
    try:
        yield
    finally:
        for home, key, function in homes:
            setattr(home, key, function)


def _refuse(function: str, name: str, *args: Any, **kwargs: Any) -> None:
    if any(Path(frame.filename).name == "checkpoint.py" for frame in traceback.extract_stack(limit=8)):
        raise InvalidInput(CHECKPOINT)
    raise InvalidInput(f"{name} calls torch.{function}: {_SEEDS}")


def _numbers() -> tuple[Any, ...]:
    """The states of the generators of Python and NumPy."""
    state: Any = np.random.get_state()
    return random.getstate(), state[1].tobytes(), state[2]
