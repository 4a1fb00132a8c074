"""The bytes of an optimizer of PyTorch, predicted: its state, and what `step()` takes beside it.

Two steps of it run on tensors without values. The first makes the state; the second counts as one of many, since some
optimizers do more then. A number that a step asks for is the count of steps, whatever it stands for.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from minidnn.errors import InvalidInput, few, near
from minidnn.program import Role
from minidnn.torch.experimental import fake_class, foreach_types, trees
from minidnn.torch.fakes import Fakes, borrowed, device_of, random_kept
from minidnn.torch.following import Follower
from minidnn.torch.lives import curve
from minidnn.torch.places import refused

STEPS = (2.0, 1000.0)


@dataclass(frozen=True)
class OptimizerBytes:
    """What an optimizer takes on the parameters' device, in bytes.

    name:         its class
    state:        what it keeps from step to step
    scratch:      the most that `step()` takes at once beside parameters, gradients and state
    by_parameter: the state of each parameter, by its path in the module; 0 for those that it does not train
    """

    name: str
    state: int
    scratch: int
    by_parameter: Mapping[str, int]


def bytes_of(optimizer: Any, module: Any, device: str | None = None) -> OptimizerBytes:
    """The bytes of an optimizer for a module's parameters, each of which has a gradient. Neither is touched.

    optimizer: a name of torch.optim ("adamw", with PyTorch's defaults), a class, a function of the parameters that
               makes one (`lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9)`), or one that there is
    device:    "cuda" for the variant that PyTorch takes there unless told otherwise (`foreach`), whatever device the
               module is on; None: the module's

    Raises InvalidInput if there is no such optimizer, or if it fails."""
    import torch

    if not isinstance(module, torch.nn.Module):
        raise InvalidInput(f"expected a torch.nn.Module, got {type(module).__name__}")
    if device not in (None, "cpu", "cuda"):
        raise InvalidInput(f"unknown device {device!r}; known are cpu and cuda")
    parameters = dict(module.named_parameters())
    where = device_of(parameters.values()) if device is None else torch.device(device)
    follower = Follower(Fakes(where), {}, numbers=STEPS[0])
    make = _named(torch, optimizer) if isinstance(optimizer, str) else optimizer
    name = getattr(make, "__name__", type(make).__name__)
    with random_kept(device_of(parameters.values())), borrowed([module], follower.fakes), torch.no_grad():
        fakes = {path: follower.fakes.of(p) for path, p in parameters.items()}
        with refused(f"the optimizer {name}"):
            return _followed(torch, follower, make, fakes)


def _named(torch: Any, name: str) -> Any:
    """The class of torch.optim that is called so, in upper or lower case."""
    base = torch.optim.Optimizer
    classes = {
        key.lower(): value for key, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, base) and value is not base
    }  # fmt: skip
    if name.lower() not in classes:
        raise InvalidInput(
            f"torch.optim {torch.__version__} has no optimizer {name!r}{near(name, classes)}; it has "
            f"{few(sorted(classes), 20)}"
        )
    return classes[name.lower()]


def _followed(torch: Any, follower: Follower, make: Any, parameters: Mapping[str, Any]) -> OptimizerBytes:
    """What was observed of the steps, on fakes that are in the module's place."""
    for path, p in parameters.items():
        follower.stands(p, Role.PARAM, path, "")
    with follower.following(), _foreach_for_fakes():
        ours = make if isinstance(make, torch.optim.Optimizer) else _made(torch, make, list(parameters.values()))
        ours = _on_fakes(ours, follower, parameters)
        trained = [p for group in ours.param_groups for p in group["params"] if p.requires_grad]
        for p in trained:
            p.grad = torch.empty_like(p)
        start = len(follower.events)
        for follower.numbers in STEPS:
            type(ours).step(ours)
        end = len(follower.events)
    taken = curve(follower.events)[:end]
    gradients = follower.held([p.grad for p in trained])
    standing = sum(follower.storages[e.storage].nbytes for e in follower.before) - follower.held(
        list(parameters.values())
    )
    return OptimizerBytes(
        type(ours).__name__,
        taken[-1] - gradients + standing,
        max(taken[start:], default=taken[-1]) - taken[-1],
        {path: follower.held(ours.state.get(p)) for path, p in parameters.items()},
    )


@contextlib.contextmanager
def _foreach_for_fakes() -> Iterator[None]:
    """Where nothing else is said, optimizers choose `foreach` by the type of parameters and by their device: fakes
    count as what they stand for."""
    types, fake = foreach_types(), fake_class()
    types.append(fake)
    try:
        yield
    finally:
        types.remove(fake)


def _made(torch: Any, make: Any, parameters: list[Any]) -> Any:
    made = make(parameters)
    if not isinstance(made, torch.optim.Optimizer):
        raise InvalidInput(f"expected an optimizer of torch.optim, a class or a function that makes one, got {made!r}")
    return made


def _on_fakes(optimizer: Any, follower: Follower, parameters: Mapping[str, Any]) -> Any:
    """A copy of an optimizer that trains the fakes of its parameters, from the fakes of its state on."""
    of, known = follower.fakes.of, {id(p) for p in parameters.values()}
    groups = [{**group, "params": [of(p) for p in group["params"]]} for group in optimizer.param_groups]
    if other := sum(id(p) not in known for group in groups for p in group["params"]):
        raise InvalidInput(f"{other} of the optimizer's parameters are none of the module's")
    ours = object.__new__(type(optimizer))
    vars(ours).update({k: v for k, v in vars(optimizer).items() if k != "step"})  # a scheduler's `step` is bound to it
    ours.param_groups, ours.state = groups, defaultdict(dict)
    for p, held in optimizer.state.items():
        ours.state[of(p)] = trees().tree_map(of, held)
        for x in trees().tree_leaves(ours.state[of(p)]):
            if follower.fakes.own(x):
                follower.stands(x, Role.STATE, "", "")
    return ours
