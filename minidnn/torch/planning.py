"""The planning verbs for modules of PyTorch: those of `minidnn`, with a module in the net's place. Nothing runs.

Each takes a module, and the arguments of a step of it: a tuple, or a dict of those by keyword. They may be on the
device "meta". Keywords that all of them have:

    loss:      computes the loss: loss(module(*args[:-1]), args[-1]); None: the module returns it, alone or as
               result["loss"]
    optimizer: whose state and scratch count: one of torch.optim, its class, its name ("adamw"), or a function of the
               parameters that makes it; None: a step ends with the gradients
    batch:     the first dimension of all arguments, in place of their own
    and of `minidnn.plan` those that a module has a use for: policy, budget, host_budget, host_ring, pin_on_demand,
    compress, disk

They raise NoTorch without PyTorch, NoSuchPolicy, and InvalidInput, which names the user's line where there is one. The
command line has them with --torch (making.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from minidnn.api import board as boards
from minidnn.api import cards as all_cards
from minidnn.api import compare as comparison
from minidnn.api import frontier as frontiers
from minidnn.api import plan as plans
from minidnn.api import search as searches
from minidnn.torch.example import Example
from minidnn.torch.job import TorchJob

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from minidnn.jobs.setting import Given

Loss = Callable[..., Any] | None
Names = Sequence[str] | str | None


def plan(
    module: Any,
    args: Any,
    *,
    loss: Loss = None,
    optimizer: Any = None,
    policies: Names = None,
    batch: int | None = None,
    gpu: str | None = None,
    **given: Unpack[Given],
) -> plans.Plans:
    """Plan a step of a module under policies; prove the plans, and simulate a step of each (`minidnn.plan`).

    gpu: the GPU to simulate ("rtx4090", or a FILE.yaml); None: this machine's CPU"""
    job = TorchJob.of(Example.of(module, args, loss, optimizer), given, gpu, batch)
    return plans.of(job, plans.listed(policies) or [job.setting.policy])


def frontier(
    module: Any,
    args: Any,
    *,
    loss: Loss = None,
    optimizer: Any = None,
    policies: Names = None,
    points: int = frontiers.POINTS,
    step: int | None = None,
    batch: int | None = None,
    gpu: str | None = None,
    **given: Unpack[Given],
) -> frontiers.Frontier:
    """Step time against memory, from the smallest budget to the largest useful one (`minidnn.frontier`)."""
    job = TorchJob.of(Example.of(module, args, loss, optimizer), given, gpu, batch)
    return frontiers.of(job, plans.listed(policies), points, step)


def cards(
    module: Any,
    args: Any,
    *,
    loss: Loss = None,
    optimizer: Any = None,
    gpus: Names = None,
    batch: int | None = None,
    **given: Unpack[Given],
) -> all_cards.Cards:
    """Find which of the known GPUs has enough memory (`minidnn.cards`)."""
    job = TorchJob.of(Example.of(module, args, loss, optimizer), given, all_cards.ANY, batch)
    return all_cards.of(job, plans.listed(gpus) or None)


def search(
    module: Any,
    args: Any,
    *,
    loss: Loss = None,
    optimizer: Any = None,
    policies: Names = None,
    step: int | None = None,
    seconds: float = searches.SECONDS,
    gpu: str | None = None,
    **given: Unpack[Given],
) -> searches.Search:
    """Find the largest batch that each policy fits in a budget (`minidnn.search`)."""
    job = TorchJob.of(Example.of(module, args, loss, optimizer), given, gpu)
    chosen = plans.listed(policies) or [job.setting.policy]
    return searches.of(job.name, lambda source: job, "batch", chosen, step, seconds)


def board(
    module: Any,
    args: Any,
    *,
    loss: Loss = None,
    optimizer: Any = None,
    policies: Names = None,
    gpus: Names = boards.GPUS,
    budgets: Sequence[str | int | float] | str = boards.BUDGETS,
    jobs: int | None = None,
    batch: int | None = None,
    **given: Unpack[Given],
) -> boards.Board:
    """Compare all policies on several GPUs and budgets, with the gap to the bound (`minidnn.board`)."""
    job = TorchJob.of(Example.of(module, args, loss, optimizer), given, all_cards.ANY, batch)
    return boards.of(
        [job.name], boards.budgets_of(budgets), plans.listed(gpus), plans.listed(policies), jobs, given,
        lambda source, size: job,
    )  # fmt: skip


def compare(
    module: Any,
    args: Any,
    *,
    loss: Loss = None,
    optimizer: Any = None,
    policies: Names = None,
    batch: int | None = None,
    gpu: str | None = None,
    **given: Unpack[Given],
) -> comparison.Comparison:
    """Compare simulated policies side by side (`minidnn.compare`)."""
    job = TorchJob.of(Example.of(module, args, loss, optimizer), given, gpu, batch)
    return comparison.of(job, plans.listed(policies))
