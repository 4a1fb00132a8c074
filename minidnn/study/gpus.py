"""The GPU that is simulated (a known one, a file, or the one at hand), and the host's memory that plans may use.

Nobody has endless host memory, so a plan without a host budget has one, too: this machine's memory, or for a GPU that
is simulated as much as is usual beside one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minidnn import costs, sizes
from minidnn.costs import GPU, Costs
from minidnn.costs.profiles import going, parted
from minidnn.memory.execution.host import physical_memory

if TYPE_CHECKING:
    from minidnn.study.subject import Subject

HERE = "here"  # the name of the GPU at hand
HOST = 64 * 2**30  # bytes of the host's memory that are assumed beside a GPU that is simulated


def named(name: str) -> str:
    """The one name by which a GPU is known from here on. Raises ProfileError if there is no such GPU."""
    return name if parted(name)[0] == HERE else costs.named(name)


def gpu(name: str) -> GPU:
    """The profile of that name; HERE is this machine's GPU, and takes its driver alone.

    Raises ProfileError, and CudaUnavailable if this machine has no GPU."""
    base, way = parted(name)
    if base != HERE:
        return costs.gpu(name)
    from minidnn.backends.cuda.at_hand import at_hand

    return going(at_hand(), way, base)


def host_memory(name: str | None) -> int:
    """Bytes of the host that plans may use if nobody says how many. name: the GPU that is simulated, or None"""
    own = None if name is None else gpu(name).host_memory
    if own is not None:
        return sizes.parse(own.value)
    return physical_memory() if name is None or parted(name)[0] == HERE else HOST


def notes(about: Subject, costs: Costs) -> str:
    """Where the seconds of `costs` come from, what links ranks, and how much of the host plans may use, in a few
    sentences."""
    return f"{_of_device(about, costs)}{_of_ranks(about, costs)}"


def _of_device(about: Subject, costs: Costs) -> str:
    if costs.origin == "profile":
        card, format, more = gpu(costs.device), about.setting.format, ""
        if format != "float32" and getattr(card, f"{format}_flops") is None:
            more = f" It has no rates of {format}: arithmetic takes as long as in float32."
        elif format == "float32" and card.tf32_flops is not None:
            more = f" TF32 is {'allowed (--gpu NAME:fp32 forbids it)' if card.tf32 else 'forbidden'}."
        return f"Simulated on {card.title} from the profile {costs.device}.{more}{_of_host(about, card)}"
    how = {"measured": "measured costs of", "estimated": "estimated costs of"}[costs.origin]
    more = "" if costs.origin == "measured" else " `minidnn profile` measures them, and --costs measured takes those."
    return f"Simulated with {how} this machine ({costs.device}).{more}"


def _of_ranks(about: Subject, costs: Costs) -> str:
    ranks = about.setting.ranks
    if ranks is None:
        return ""
    link = "" if ranks == 1 else f" Ranks are linked by {about.network(costs).title}."
    alone = " A net without a solver is updated by SGD with momentum." if about.solver is None else ""
    return f"{link}{alone}"


def _of_host(about: Subject, card: GPU) -> str:
    if not about.host_assumed:
        return ""
    allowed = sizes.text(about.setting.host_budget or 0)
    if card.host_memory is not None:
        return f" Its memory is the host's: plans may keep {allowed} of it there (--host-budget)."
    return f" Assumed: {allowed} of the host (--host-budget)."
