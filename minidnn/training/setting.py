"""How a net is run, as one value: device, policy, budgets, number format, memory facts, seed and the rest.

A user says some of it (`Given`), a solver file some (`minidnn: {...}`), and the rest has defaults. `Setting.of` puts
the three together once, at the user's door. From there inward the whole travels as one frozen value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from minidnn import sizes
from minidnn.costs import Costs, Staging
from minidnn.errors import InvalidInput
from minidnn.formats import named
from minidnn.layers.facts import FACTS, Facts
from minidnn.memory.policies import DEFAULT
from minidnn.programs.build import facts_of

if TYPE_CHECKING:
    from minidnn.memory.execution.device import Device
    from minidnn.schema import SolverParameter


class Given(TypedDict, total=False):
    """What a user may say of how a net is run. What is None or left out is as the solver file says, else the default.

    device:      "cpu", "reference", "cuda", or a Device that is open
    policy:      what happens to memory, by name, or a FILE.plan
    budget:      device bytes that may be used: a number, or a text such as "64MiB" or "12GB"
    host_budget: host bytes that tensors off the device may use, likewise
    host_ring:   pinned bytes through which tensors leave the device for ordinary memory; None: all of it is pinned
    compress:    behind that ring tensors are packed without their zeros
    costs:       what ops and copies cost, for policies that ask; they also say how bytes lie on the host
    seed:        of weights, data order, crops and dropout
    format:      what the network computes in, parameters apart: float32, bfloat16 or float16
    facts:       what backward reads, by name ("default", or "layrub", whose ReLU keeps a byte mask), or as Facts
    fuse:        make one op of several where the device has a kernel for them
    keep:        blobs that stay readable after a step
    debug:       fill freed bytes with NaN
    delays:      seconds by which copies are late at most, at random: to bring out missing waits
    """

    device: str | Device | None
    policy: str | None
    budget: int | str | None
    host_budget: int | str | None
    host_ring: int | str | None
    compress: bool
    costs: Costs | None
    seed: int | None
    format: str | None
    facts: str | Facts | None
    fuse: bool
    keep: Sequence[str]
    debug: bool
    delays: float


@dataclass(frozen=True)
class Setting:
    """How a net is run. Sizes are bytes; a budget of None is all the device's memory."""

    device: str | Device = "cpu"
    policy: str = DEFAULT
    budget: int | None = None
    host_budget: int | None = None
    staging: Staging | None = None  # None: as `costs` say
    costs: Costs | None = None  # None: the device's estimate
    seed: int = 0
    format: str = "float32"
    facts: Facts = FACTS["default"]
    fuse: bool = True
    keep: tuple[str, ...] = ()
    debug: bool = False
    delays: float = 0.0

    @classmethod
    def of(cls, given: Given, file: SolverParameter | None = None) -> Setting:
        """What is given, else what the solver file says, else the default. Raises InvalidInput for what is neither."""
        own = file.minidnn if file is not None else None

        def said(name: str) -> Any:
            value = given.get(name)
            return getattr(own, name, None) if value is None else value

        keep, costs = given.get("keep", ()), given.get("costs")
        if isinstance(keep, str):
            raise InvalidInput(f"keep is a list of blobs: say keep=[{keep!r}]")
        if costs is None:
            ring, compress = said("host_ring"), bool(given.get("compress") or (own is not None and own.compress))
        else:  # given costs say how bytes lie on the host
            ring, compress = given.get("host_ring"), given.get("compress", False)
        return cls(
            device=said("device") or cls.device,
            policy=said("policy") or cls.policy,
            budget=_bytes("budget", said("budget")),
            host_budget=_bytes("host_budget", said("host_budget")),
            staging=_staging(_bytes("host_ring", ring), compress),
            costs=costs,
            seed=given.get("seed") or 0,
            format=named(said("format") or cls.format),
            facts=facts_of(given.get("facts") or "default"),
            fuse=given.get("fuse", cls.fuse),
            keep=tuple(keep),
            debug=given.get("debug", cls.debug),
            delays=given.get("delays", cls.delays),
        )


def _bytes(name: str, size: int | str | None) -> int | None:
    try:
        return None if size is None else sizes.parse(size)
    except ValueError as error:
        raise InvalidInput(f"{name}: {error}") from None


def _staging(ring: int | None, compress: bool) -> Staging | None:
    if ring is not None:
        return Staging(ring, compress)
    if compress:
        raise InvalidInput("to compress is for what lies behind a ring: give its size, too (--host-ring 64MiB)")
    return None
