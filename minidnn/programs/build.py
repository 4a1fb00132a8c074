"""From a net to its programs: TRAIN, ACCUMULATE and TEST, differentiated and fused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from minidnn.errors import InvalidInput, near
from minidnn.layers.facts import FACTS, Facts
from minidnn.nets.graph import Blob, Graph
from minidnn.nets.net import Net
from minidnn.program import Program, Role, Tensor
from minidnn.programs.autodiff import differentiate
from minidnn.programs.fusion import Fuses, fused
from minidnn.programs.updates import TrainSpec


def facts_of(facts: str | Facts) -> Facts:
    """The memory facts of that name, or those given. Raises InvalidInput with the names there are."""
    if isinstance(facts, str):
        if facts not in FACTS:
            there = ", ".join(FACTS)
            raise InvalidInput(f"there are no facts called {facts!r}{near(facts, FACTS)}; there are {there}")
        return FACTS[facts]
    return facts


def executable(facts: str | Facts) -> Facts:
    """The same, if a net can run with them. Raises InvalidInput naming what no backend has kernels for."""
    found = facts_of(facts)
    if lacking := found.planning_only():
        able = ", ".join(name for name, f in FACTS.items() if not f.planning_only())
        raise InvalidInput(
            f"the memory facts {found.name!r} are for planning (plan, or compare --gpu NAME): no backend has kernels "
            f"for {lacking}; those that run are {able}"
        )
    return found


def programs(
    net: Net,
    train: TrainSpec | None,
    phases: Sequence[str],
    *,
    test_net: Net | None = None,
    keep: Sequence[str] = (),
    facts: Facts | None = None,
    format: str = "float32",
    fuses: Fuses | None = None,
) -> dict[str, Program]:
    """A net's programs by name, in the order in which they are loaded; for planning, no device needed. What runs on a
    device is also fused, as it says: `fuses=device.fuses`."""
    nets = {"TRAIN": net, "TEST": test_net or net}
    return build({phase: nets[phase].graph(phase, format=format) for phase in phases}, train, keep, facts, fuses)


def build(
    graphs: Mapping[str, Graph],
    train: TrainSpec | None,
    keep: Sequence[str],
    facts: Facts | None = None,
    fuses: Fuses | None = None,
) -> dict[str, Program]:
    """TRAIN, ACCUMULATE before it where iter_size asks for one, and TEST, whose scores are outputs. Under other memory
    facts than our own nothing is fused: the papers know no such ops."""
    for name in keep:
        if not any(last(graph, name) for graph in graphs.values()):
            known = (b.name for graph in graphs.values() for node in graph.layers for b in node.tops)
            raise InvalidInput(f"keep: the net has no blob {name!r}{near(name, known)}")
    found: dict[str, Program] = {}
    for phase, graph in graphs.items():
        kept = [blob.tensor for name in keep if (blob := last(graph, name))]
        if phase == "TEST":
            kept += _scores(graph)
        if phase == "TRAIN" and train and train.iter_size > 1:
            found["ACCUMULATE"] = differentiate(graph, facts, replace(train, accumulate=True), kept)
        found[phase] = differentiate(graph, facts, train if phase == "TRAIN" else None, kept)
    fuses = fuses if facts in (None, Facts()) else None
    return {name: fused(program, fuses) for name, program in found.items()}


def last(graph: Graph, name: str) -> Blob | None:
    """The last version of a blob: what a file's reader means by its name, whoever changed it in place."""
    found = [blob for node in graph.layers for blob in node.tops if blob.name == name]
    return found[-1] if found else None


def _scores(graph: Graph) -> list[Tensor]:
    """What is compared with labels: where a net ends in a loss or an accuracy, what it says about its input."""
    compared = [node for node in graph.layers if any(b.tensor.role is Role.LABEL for b in node.bottoms)]
    return [b.tensor for node in compared for b in node.bottoms if b.tensor.role is Role.ACTIVATION]
