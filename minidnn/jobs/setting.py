"""How a net is run, as one value: device, policy, budgets, number format, memory facts, seed and the rest.

Some of these values come from the user (`Given`), some from a solver file (`minidnn: {...}`), and the others have
defaults. `Setting.of` puts the three together once, where a Solver or a Session is made. All code below gets the one
frozen value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any, TypedDict

from minidnn import sizes
from minidnn.costs import Costs, Disk, Heuristic, Peer, Staging
from minidnn.costs.links import network
from minidnn.costs.net import Link, Network
from minidnn.data.workers import LIMIT as WORKER_LIMIT
from minidnn.errors import InvalidInput, near
from minidnn.formats import named
from minidnn.jobs.options import COSTS, described
from minidnn.layers.facts import FACTS, Facts
from minidnn.memory.packing.greedy import ORDERS
from minidnn.memory.packing.pool import FITS
from minidnn.memory.policies import BUDGETED, DEFAULT
from minidnn.programs.build import facts_of
from minidnn.programs.host_residents import STATES
from minidnn.ranks.engine import LIMIT, Engine
from minidnn.ranks.launched import Launch
from minidnn.schema.sources import WORKERS
from minidnn.spoken import option

if TYPE_CHECKING:
    from minidnn.memory.execution.device import Device
    from minidnn.schema import SolverParameter


class Given(TypedDict, total=False):
    """How a net is run, as a user says it. A value that is None or left out comes from the solver file, else from the
    defaults. The meaning of each (jobs/options.py):
    """

    device: str | Device | None
    policy: str | None
    budget: int | str | None
    host_budget: int | str | None
    ram: int | str | None
    host_ring: int | str | None
    pin_on_demand: bool
    compress: bool
    peer: str | Sequence[str] | None
    placement: str | None
    disk: str | Path | None
    costs: Costs | str | None
    effort: float | None
    seed: int | None
    format: str | None
    facts: str | Facts | None
    fuse: bool
    early: bool
    workers: int | None
    worker_limit: float | None
    keep: Sequence[str]
    state: str | None
    engine: Engine | None
    launch: Launch | None
    rank_limit: float | None
    ranks: int | None
    link: str | Network | None
    global_batch: int | None
    seq: int | None
    debug: bool
    delays: float


Given.__doc__ = f"{Given.__doc__}\n{indent(described(), '    ')}\n"


@dataclass(frozen=True)
class Setting:
    """How a net is run, complete; `Given` explains the fields. Sizes are bytes; a budget of None is all the device's
    memory."""

    device: str | Device = "cpu"
    policy: str = DEFAULT
    named: bool = False  # whether the user has named the policy
    budget: int | None = None
    host_budget: int | None = None
    ram: int | None = None
    staging: Staging | None = None  # None: that of the costs
    peers: tuple[Peer, ...] = ()  # none: those of the costs
    placement: Heuristic | None = None  # None: that of the costs
    disk: Path | None = None  # the folder of what the staging puts on a disk
    costs: Costs | None = None  # None: the device's (jobs/costs.py)
    measured: bool = False  # whether these are those that were measured
    estimated: bool = False  # whether the user has asked for estimates, which are taken anyway but by comparisons
    effort: float | None = None  # None: plans are the usual ones
    seed: int = 0
    format: str = "float32"
    facts: Facts = FACTS["default"]
    fuse: bool = True
    early: bool = True
    workers: int | None = None  # None: those of each Data layer
    worker_limit: float = WORKER_LIMIT
    keep: tuple[str, ...] = ()
    state: str = "device"
    engine: Engine | None = None
    launch: Launch | None = None
    rank_limit: float = LIMIT
    ranks: int | None = None  # None: nobody has asked
    link: Network | None = None  # None: assumed
    global_batch: int | None = None
    seq: int | None = None  # None: the files'
    debug: bool = False
    delays: float = 0.0

    @classmethod
    def of(cls, given: Given, file: SolverParameter | None = None) -> Setting:
        """Each value from `given`, else from the file, else the default. Raises InvalidInput if a value is wrong."""
        own = file.minidnn if file is not None else None

        def said(name: str) -> Any:
            value = given.get(name)
            return getattr(own, name, None) if value is None else value

        keep, (costs, source) = given.get("keep", ()), _costs(given.get("costs"))
        if given.get("link") is not None and all(given.get(name) is None for name in ("ranks", "engine", "launch")):
            raise InvalidInput(f"{option('link')}: a link joins ranks: give their number ({option('ranks', 'N')})")
        if isinstance(keep, str):
            raise InvalidInput(f"keep is a list of blobs: use keep=[{keep!r}]")
        if costs is None:
            compress, place = bool(given.get("compress") or (own is not None and own.compress)), said("disk")
            # of the two ways to pin, one that is given replaces the other one in the file
            file_s = None if given.get("host_ring") or given.get("pin_on_demand") else own
        else:  # given costs say how bytes lie on the host
            compress, place, file_s = given.get("compress", False), given.get("disk"), None
        ring = given.get("host_ring") or (None if file_s is None else file_s.host_ring)
        on_demand = bool(given.get("pin_on_demand") or (file_s is not None and file_s.pin_on_demand))
        folder, disk = _disk(place)
        return cls(
            device=said("device") or cls.device,
            policy=said("policy") or (cls.policy if said("budget") is None and said("ram") is None else BUDGETED),
            named=bool(said("policy")),
            budget=_bytes("budget", said("budget")),
            host_budget=_bytes("host_budget", said("host_budget")),
            ram=_bytes("ram", said("ram")),
            staging=_staging(_bytes("host_ring", ring), compress, disk, on_demand),
            peers=_peers(given.get("peer")),
            placement=_placement(given.get("placement")),
            disk=folder,
            costs=costs,
            measured=source == "measured",
            estimated=source == "estimated",
            effort=_effort(given, said("ram")),
            seed=given.get("seed") or 0,
            format=named(said("format") or cls.format),
            facts=facts_of(given.get("facts") or "default"),
            fuse=given.get("fuse", cls.fuse),
            early=given.get("early", cls.early),
            workers=_workers(given.get("workers")),
            worker_limit=_seconds("worker_limit", given.get("worker_limit")) or WORKER_LIMIT,
            keep=tuple(keep),
            state=_one_of("state", said("state") or cls.state, STATES),
            engine=given.get("engine"),
            launch=given.get("launch"),
            rank_limit=given.get("rank_limit") or LIMIT,
            ranks=_count("ranks", given.get("ranks")),
            link=_network(given.get("link")),
            global_batch=_count("global_batch", given.get("global_batch")),
            seq=_count("seq", given.get("seq")),
            debug=given.get("debug", cls.debug),
            delays=given.get("delays", cls.delays),
        )

    @property
    def together(self) -> int:
        """How many ranks train together, simulated or not."""
        several = self.engine or self.launch
        return several.ranks if several is not None else self.ranks or 1

    @property
    def ranked(self) -> bool:
        """Whether ranks communicate, or are simulated to."""
        return self.engine is not None or self.ranks is not None

    def batch_of(self, iter_size: int, batch: int | None = None) -> int | None:
        """The batch of each rank, by `global_batch` if there is one, else `batch`, which may be asked for.

        Raises InvalidInput if it cannot be divided equally."""
        if self.global_batch is None:
            return batch
        if batch is not None:
            both = option("global_batch", self.global_batch)
            raise InvalidInput(f"{option('batch', batch)} is each rank's, and {both} all ranks': give one")
        parts = self.together * iter_size
        if self.global_batch % parts:
            below = self.global_batch // parts * parts
            near = " and ".join(str(n) for n in (below, below + parts) if n)
            what = f"{self.together} ranks" + (f" x iter_size {iter_size}" if iter_size > 1 else "")
            given = option("global_batch", self.global_batch)
            raise InvalidInput(f"{given} does not divide among {what}, {parts} equal parts; {near} do")
        return self.global_batch // parts


def _count(name: str, count: int | None) -> int | None:
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise InvalidInput(f"{option(name)} {count!r}: expected a whole number of at least 1")
    return count


def _costs(given: Costs | str | None) -> tuple[Costs | None, str | None]:
    """The costs that are given, and which of COSTS are asked for instead; None: nobody says."""
    if not isinstance(given, str):
        return given, None
    return None, _one_of("costs", given, COSTS)


def _network(link: str | Network | None) -> Network | None:
    return network(link) if isinstance(link, str) else link


def _one_of(name: str, word: str, choices: Sequence[str]) -> str:
    if word not in choices:
        raise InvalidInput(f"{option(name)}: {word!r} is not one of {', '.join(choices)}{near(word, choices)}")
    return word


def _seconds(name: str, seconds: float | None) -> float | None:
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if seconds is not None and not (number and 0 < seconds < math.inf):
        raise InvalidInput(f"{option(name)} {seconds!r}: expected a number of seconds above 0")
    return seconds


def _effort(given: Given, ram: int | str | None) -> float | None:
    """The seconds for which plans are looked for. Raises InvalidInput where more than one plan would come of it."""
    seconds = _seconds("effort", given.get("effort"))
    if seconds is not None and ram is not None:
        budgets = f"{option('budget')} and {option('host_budget')}"
        raise InvalidInput(
            f"{option('effort')}: with {option('ram')} a policy plans several times; use {budgets} instead"
        )
    if seconds is not None and any(given.get(name) is not None for name in ("engine", "launch")):
        raise InvalidInput(
            f"{option('effort')}: each rank plans for itself, and a timed search may end differently on each: write "
            "one plan (`minidnn plan --effort SECONDS --save FILE.plan`), and give it to all ranks "
            f"({option('policy', 'FILE.plan')})"
        )
    return seconds


def _workers(count: int | None) -> int | None:
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= WORKERS):
        raise InvalidInput(f"{option('workers')} {count!r}: expected a whole number from 0 to {WORKERS}")
    return count


def _bytes(name: str, size: int | str | None) -> int | None:
    try:
        return None if size is None else sizes.parse(size)
    except ValueError as error:
        raise InvalidInput(f"{option(name)}: {error}") from None


def _disk(place: str | Path | None) -> tuple[Path | None, Disk | None]:
    """The folder of a "PATH[:SIZE]", and the disk that plans know."""
    if place is None:
        return None, None
    path, _, size = str(place).rpartition(":")
    if path and not Path(place).exists():
        most = _bytes("disk", size)
    else:
        path, most = str(place), None
    if not Path(path).is_dir():
        raise InvalidInput(
            f"{option('disk')}: {path} is not a folder: name a folder on the disk that tensors may use, PATH or "
            "PATH:SIZE"
        )
    return Path(path), Disk(most)


def _staging(ring: int | None, compress: bool, disk: Disk | None, on_demand: bool) -> Staging | None:
    if on_demand and ring is not None:
        raise InvalidInput(
            f"{option('pin_on_demand')} pins as much as copies use at once, and "
            f"{option('host_ring')} {sizes.text(ring)} at most: give one"
        )
    if on_demand or ring is not None or disk is not None:
        return Staging(ring or 0, compress, disk=disk, on_demand=on_demand)
    if compress:
        again = f"give {option('host_ring', '64MiB')}, or {option('pin_on_demand', True)}"
        raise InvalidInput(f"{option('compress', True)} needs pinned memory that is used again: {again}")
    return None


def _peers(given: str | Sequence[str] | None) -> tuple[Peer, ...]:
    """The peers of texts LINK:SIZE."""
    result = []
    for text in (given,) if isinstance(given, str) else given or ():
        name, _, size = text.rpartition(":")
        if not name:
            raise InvalidInput(
                f"{option('peer', text)}: expected a link and the bytes behind it, such as nvlink4:40GiB"
            )
        link = network(name)
        if not isinstance(link, Link):
            raise InvalidInput(f"{option('peer', text)}: one link leads to a peer, not nodes of several")
        nbytes = _bytes("peer", size)
        assert nbytes is not None
        result.append(Peer(nbytes, link.bandwidth, link.latency, link.title or name))
    return tuple(result)


TWO_ENDED = "two_ended"


def _placement(text: str | None) -> Heuristic | None:
    """The heuristic of "best:two_ended:size"; each part may be left out."""
    if text is None:
        return None
    known = (*FITS, TWO_ENDED, *ORDERS)
    words = [_one_of("placement", word, known) for word in text.split(":")]
    fit, order = ([word for word in words if word in table] for table in (FITS, ORDERS))
    if len(fit) > 1 or len(order) > 1:
        raise InvalidInput(
            f"{option('placement', text)}: one of {', '.join(FITS)}, and one order of {', '.join(ORDERS)}"
        )
    return Heuristic(next(iter(fit), "best"), TWO_ENDED in words, next(iter(order), "start"))


def simulated_only(ranks: int) -> str:
    """Why a run takes no number of ranks, and what starts them."""
    how = f"start the program on each: mpiexec -n {ranks} ..."
    return f"{option('ranks', ranks)}: a plan simulates ranks; to train on them, {how}"
