"""What plan, compare, time and profile are about: a model file or a solver file, as programs and as costs.

A model file means weights and their gradients; a solver file adds its optimizer's state, its iter_size, and its
TEST program if it tests.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minidnn.cli.options import common, opened
from minidnn.costs import Costs
from minidnn.program import Program
from minidnn.programs.fusion import Fuses

if TYPE_CHECKING:
    from minidnn.layers.facts import Facts


@dataclass(eq=False)
class Subject:
    """A file that was read. `programs` are in the order in which they are loaded."""

    path: str
    net: Any
    test_net: Any
    solver: Any  # SolverParameter, or None for a model file
    programs: tuple[Program, ...]
    device: Any  # its name, or itself
    seed: int
    format: str
    facts: Facts
    fuses: Fuses | None  # what of its programs was fused: what the device, or the simulated GPU, offers

    @property
    def fuse(self) -> bool:
        return self.fuses is not None

    @property
    def name(self) -> str:
        return self.net.name or Path(self.path).stem

    @property
    def train(self) -> Program:
        return next((p for p in self.programs if p.name == "TRAIN"), self.programs[-1])

    @property
    def batch(self) -> int | None:
        """Samples of one batch: the first dimension of the data."""
        return next((t.shape[0] for t in self.train.inputs if len(t.shape) > 1), None)

    def at_batch(self, batch: int) -> tuple[Program, ...]:
        """The programs at another batch size, without reading the file again."""
        test_net = self.test_net and self.test_net.with_batch(batch)
        net = self.net.with_batch(batch)
        return _programs(net, test_net, self.solver, self.seed, self.facts, self.format, self.fuses)

    def titled(self) -> str:
        batch = f", batch {self.batch}" if self.batch else ""
        return self.name + batch + (f", {self.format}" if self.format != "float32" else "")


def arguments(parser: argparse.ArgumentParser, *shared: str) -> None:
    parser.add_argument("file", metavar="FILE.yaml", help="a model file, or a solver file (adds its optimizer's state)")
    common(parser, "batch", *shared)


def read(args: argparse.Namespace) -> Subject:
    """The subject that the arguments name."""
    from minidnn.programs.build import facts_of
    from minidnn.training.solver_file import understand

    facts = facts_of(getattr(args, "facts", None) or "default")
    net, test_net, p = understand(args.file, batch=args.batch)
    seed = p.random_seed if p is not None and p.random_seed >= 0 else 0
    format = args.format or (p is not None and p.minidnn.format) or "float32"
    device = getattr(args, "device", None) or (p is not None and p.minidnn.device) or "cpu"
    device = opened(args, device) if hasattr(args, "device") else device
    fuses = None if args.no_fusion else _fuses(device, getattr(args, "gpu", None))
    found = _programs(net, test_net, p, seed, facts, format, fuses)
    return Subject(args.file, net, test_net, p, found, device, seed, format, facts, fuses)


def _fuses(device: Any, gpu: str | None) -> Fuses | None:
    """What is fused on a simulated GPU, or on the device."""
    from minidnn.backends import open_device
    from minidnn.programs.fusion import as_cudnn

    return as_cudnn if gpu is not None else open_device(device).fuses


def _programs(
    net: Any, test_net: Any, solver: Any, seed: int, facts: Facts, format: str, fuses: Fuses | None
) -> tuple[Program, ...]:
    from minidnn.programs.build import programs
    from minidnn.training.solver_file import phases, train_spec

    train = None if solver is None else train_spec(solver, seed)
    found = programs(net, train, phases(solver), test_net=test_net, facts=facts, format=format, fuses=fuses)
    return tuple(found.values())


def described(about: Subject) -> str:
    """The device and all that its numbers depend on: libraries, threads, whether TF32 is allowed."""
    from minidnn.backends import open_device

    device = open_device(about.device)
    return f"{device.name}: {device.description}"


def budgets(about: Subject, args: argparse.Namespace) -> tuple[int | None, int | None]:
    """(device budget, host budget): the command line's, else the solver file's, else none."""
    own = about.solver.minidnn if about.solver is not None else None
    host = getattr(args, "host_budget", None)
    return args.budget or (own and own.budget), host or (own and own.host_budget)


def policies_of(args: argparse.Namespace) -> list[str]:
    """Those of --policies or --policy; empty where neither was given."""
    from minidnn.errors import InvalidInput

    if args.policies and args.policy:
        raise InvalidInput("--policy is one of --policies: give one or the other")
    return args.policies or ([args.policy] if args.policy else [])


def check_policies(policies: Sequence[str], sizes: bool = False) -> None:
    """Raise NoSuchPolicy for one that there is not. `sizes`: many sizes of the net are planned, so no file will do."""
    from minidnn.errors import InvalidInput
    from minidnn.memory.policies import find
    from minidnn.memory.policies.plan_file import SUFFIX

    for policy in policies:
        if sizes and policy.endswith(SUFFIX):
            raise InvalidInput(f"{policy} plans one size of a net, and here many are planned: name a policy instead")
        find(policy)


def costs_of(subject: Subject, gpu: str | None) -> Costs:
    """The profile of `gpu`; else what was measured on the device, if that covers the programs; else the estimate."""
    from minidnn.backends import open_device
    from minidnn.costs import estimate, measured, measurements, profile

    if gpu is not None:
        return profile(gpu)
    device = open_device(subject.device)
    known = measurements(device)
    if known.problem:
        print(f"minidnn: {known.problem}", file=sys.stderr)
    ops = [op for program in subject.programs for op in program.ops]
    return measured(device, known) if known.covers(ops, device.algorithms) else estimate(device)


def notes(costs: Costs, format: str = "float32") -> str:
    """Where seconds come from, for people."""
    if costs.origin == "profile":
        from minidnn.costs import gpu

        card, more = gpu(costs.device), ""
        if format != "float32" and getattr(card, f"{format}_flops") is None:
            more = f" It has no rates of {format}: arithmetic takes as long as in float32."
        elif format == "float32" and card.tf32_flops is not None:
            more = f" TF32 is {'allowed' if card.tf32 else 'forbidden (--gpu NAME:tf32 allows it)'}."
        return f"Simulated on {card.title} from the profile {costs.device}.{more}"
    how = {"measured": "measured costs of", "estimated": "estimated costs of"}[costs.origin]
    more = "" if costs.origin == "measured" else " `minidnn profile` measures them."
    return f"Simulated with {how} this machine ({costs.device}).{more}"
