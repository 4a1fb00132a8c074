"""What is planned, as the verbs see it that plan: `plan`, `frontier`, `cards`, `search`, `board` and `compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from minidnn.costs import Costs
from minidnn.costs.net import Network
from minidnn.jobs.change import Asked, Change
from minidnn.jobs.ram import Residence
from minidnn.jobs.setting import Setting
from minidnn.memory.execution.device import Device
from minidnn.program import Program
from minidnn.results.policies import EagerRow


class Plannable(Protocol):
    """Programs and costs, and what may be changed of them. Nets are one kind (jobs/job.py).

    name:         in titles
    setting:      budgets, policy and the rest
    programs:     in the order in which a machine loads them
    train:        the program whose steps count
    forward:      whether the programs are forward passes alone, so that nothing is trained
    format:       the number format that is computed in
    batch:        samples of one batch; None: there is none, or it cannot be changed
    asked:        the batch that the caller names; None: its own
    side:         pixels of a side of its images; None: it has none
    tokens:       of a sample; None: it has none
    gpu:          the name of the GPU that is simulated; None: none is
    here:         the device of this machine that minidnn runs it on; None: it runs it on none
    host_assumed: whether the setting's host budget is one that nobody named
    several:      whether ops have several algorithms to choose from
    assumed:      what is assumed on any device, in sentences
    whole:        whether ops run as a whole alone, never in parts of the batch
    places:       the lines of the user's source that ops and their tensors come from, by name; None: there is no source
    ranked:       the same, if a number of ranks is asked for; else None
    """

    @property
    def name(self) -> str: ...
    @property
    def setting(self) -> Setting: ...
    @property
    def programs(self) -> tuple[Program, ...]: ...
    @property
    def train(self) -> Program: ...
    @property
    def forward(self) -> bool: ...
    @property
    def format(self) -> str: ...
    @property
    def batch(self) -> int | None: ...
    @property
    def asked(self) -> int | None: ...
    @property
    def side(self) -> int | None: ...
    @property
    def tokens(self) -> int | None: ...
    @property
    def gpu(self) -> str | None: ...
    @property
    def here(self) -> Device | None: ...
    @property
    def host_assumed(self) -> bool: ...
    @property
    def several(self) -> bool: ...
    @property
    def assumed(self) -> str: ...
    @property
    def whole(self) -> bool: ...
    @property
    def places(self) -> Mapping[str, str] | None: ...
    @property
    def ranked(self) -> Ranked | None: ...

    def costs(self) -> Costs:
        """The costs that the programs are planned with."""
        ...

    def costs_of_sizes(self) -> Costs:
        """The costs that the programs of other batches are planned with, too."""
        ...

    def programs_on(self, gpu: str) -> tuple[Program, ...]:
        """The programs as this GPU takes them: its libraries may keep other bytes."""
        ...

    def costs_on(self, gpu: str) -> Costs:
        """The costs of these programs on a GPU, of any name that `gpus.named` gives."""
        ...

    def costs_after(self, change: Change, known: Costs, sizes: bool = False) -> Costs:
        """The costs of the programs that a change makes. known: those of the programs as they are; sizes: whether other
        batches will be planned, too"""
        ...

    def told(self, costs: Costs) -> str:
        """What computes, and where the seconds of the costs come from, in sentences."""
        ...

    def beside(self) -> Sequence[EagerRow]:
        """What PyTorch itself takes for the same step."""
        ...

    def changed(self, change: Change) -> Plannable:
        """The same with the batch, format, fusion and place of state that a change names. Raises BadInput."""
        ...

    def at_batch(self, batch: int) -> tuple[Program, ...]:
        """The programs at another batch. Raises BadInput."""
        ...

    def at_images(self, side: int) -> tuple[Program, ...]:
        """The programs for images of `side` x `side` pixels. Raises BadInput."""
        ...

    def at_tokens(self, length: int) -> tuple[Program, ...]:
        """The programs for windows of `length` tokens. Raises BadInput."""
        ...

    def command(self, policy: str) -> Asked:
        """The command that plans it under this policy, and what can be changed of that."""
        ...

    def residence(self, unread: bool = False) -> Residence | None:
        """The process of a run; None: it is none of minidnn's. unread: whether data and workers are still to come"""
        ...


class Ranked(Plannable, Protocol):
    """Several ranks, which are simulated.

    parts:   the names of the programs of an iteration's micro-batches
    remarks: what else is to be said of them, in sentences
    """

    @property
    def parts(self) -> Sequence[str]: ...
    @property
    def remarks(self) -> str: ...

    def network(self, costs: Costs) -> Network:
        """The network between ranks."""
        ...

    def among(self, ranks: int, batch: int | None = None) -> Ranked:
        """The same with so many ranks, and with this batch of each if there is one."""
        ...
