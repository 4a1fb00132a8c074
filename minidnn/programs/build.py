"""From a net to its programs: TRAIN, ACCUMULATE and TEST, differentiated and fused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from minidnn.costs import Costs
from minidnn.errors import InvalidInput, near
from minidnn.layers.facts import FACTS, Facts
from minidnn.nets.graph import Blob, Graph, check_shared
from minidnn.nets.net import Net
from minidnn.program import Program, Role, Tensor
from minidnn.programs.autodiff import differentiate
from minidnn.programs.buckets import sized
from minidnn.programs.fusion import Fuses, fused
from minidnn.programs.host_residents import with_host_residents
from minidnn.programs.raw import with_raw_inputs
from minidnn.programs.spec import TrainSpec
from minidnn.spoken import option

TRAINING = ("BEGIN", "ACCUMULATE", "TRAIN")  # the programs of a training step


def facts_of(facts: str | Facts) -> Facts:
    """The memory facts of that name; a Facts is returned as it is. Raises InvalidInput that lists the known names."""
    if isinstance(facts, str):
        if facts not in FACTS:
            there = ", ".join(FACTS)
            raise InvalidInput(f"there are no facts called {facts!r}{near(facts, FACTS)}; there are {there}")
        return FACTS[facts]
    return facts


def executable(facts: str | Facts) -> Facts:
    """Like `facts_of`, but raises InvalidInput for facts that no backend has kernels for; the message names those."""
    result = facts_of(facts)
    if lacking := result.planning_only():
        able = ", ".join(name for name, f in FACTS.items() if not f.planning_only())
        raise InvalidInput(
            f"the memory facts {result.name!r} are for planning (plan, or compare with {option('gpu', 'NAME')}): no "
            f"backend has kernels for {lacking}; those that run are {able}"
        )
    return result


def programs(
    net: Net,
    train: TrainSpec | None,
    phases: Sequence[str],
    *,
    tests: Sequence[Net] = (),
    keep: Sequence[str] = (),
    facts: Facts | None = None,
    format: str = "float32",
    fuses: Fuses | None = None,
    double_buffered: bool = False,
    test_loss: bool = False,
    state: str = "device",
    costs: Costs | None = None,
) -> dict[str, Program]:
    """A net's programs by name, in the order in which a machine loads them. Planning needs no device; for programs that
    a device will run, pass `fuses=device.fuses`, so that ops are fused where it has kernels. Raises as `build`.

    tests: the nets of phase TEST, if they are not `net` alone; the programs of the second and others are TEST1 ..."""
    graphs = {name: one.graph(phase, format=format) for name, (one, phase) in named(net, phases, tests).items()}
    return build(graphs, train, keep, facts, fuses, double_buffered, test_loss, state, costs)


def named(net: Net, phases: Sequence[str], tests: Sequence[Net] = ()) -> dict[str, tuple[Net, str]]:
    """The net and the phase of each program, by the program's name."""
    result: dict[str, tuple[Net, str]] = {}
    for phase in phases:
        several = tests or (net,) if phase == "TEST" else (net,)
        result |= {f"{phase}{i or ''}": (one, phase) for i, one in enumerate(several)}
    return result


def build(
    graphs: Mapping[str, Graph],
    train: TrainSpec | None,
    keep: Sequence[str],
    facts: Facts | None = None,
    fuses: Fuses | None = None,
    double_buffered: bool = False,
    test_loss: bool = False,
    state: str = "device",
    costs: Costs | None = None,
) -> dict[str, Program]:
    """A program per graph, by name; ACCUMULATE comes before TRAIN if iter_size is above 1.

    TEST has the scores as outputs, too; each program has the blobs that `keep` names. Nothing is fused under a paper's
    memory facts, since the papers have no fused ops.

    double_buffered: the inputs of TRAIN and ACCUMULATE travel as they are, and are double-buffered (programs/raw.py).
                     TEST keeps its inputs: it is given samples as the net reads them.
    test_loss: programs of phase TEST compute the objective, too, if their nets have a loss
    state: where what lives from step to step lies (programs/host_residents.py)
    costs: those of the device and of communications, by which gradients travel in buckets (programs/buckets.py); None:
           in buckets of the spec's size

    Raises InvalidInput for an unknown blob in `keep`, and for several ranks whose weights are to live on the host.
    Raises NotTrainable (programs/autodiff.py), and ShapeError for a parameter whose shape differs between phases."""
    if state == "all" and train is not None and train.ranks > 1:
        raise InvalidInput(
            f"state all: {train.ranks} ranks make their weights whole on the device, so these cannot live on the host; "
            "state host, for the optimizer's state alone, would work"
        )
    for graph, other in combinations(list(graphs.values())[::-1], 2):  # of one net, or of a net and its test_net
        check_shared(graph, other)
    for name in keep:
        if not any(last(graph, name) for graph in graphs.values()):
            known = (b.name for graph in graphs.values() for node in graph.layers for b in node.tops)
            raise InvalidInput(f"keep: the net has no blob {name!r}{near(name, known)}")
    if costs is not None:
        only = {"TRAIN": graphs["TRAIN"]} if "TRAIN" in graphs else {}

        def last_part(spec: TrainSpec) -> Program:
            return build(only, spec, (), facts, fuses, double_buffered, state=state)["TRAIN"]

        train = sized(train, last_part, costs)
    result: dict[str, Program] = {}
    for phase, graph in graphs.items():  # named TRAIN, TEST, TEST1 ...
        kept = [blob.tensor for name in keep if (blob := last(graph, name))]
        if graph.phase == "TEST":
            kept += _scores(graph)
        if phase == "TRAIN" and train:
            result |= {part: differentiate(graph, facts, spec, kept) for part, spec in _parts(train).items()}
            continue
        result[phase] = replace(differentiate(graph, facts, None, kept, loss=test_loss), name=phase)
    fuses = fuses if facts in (None, Facts()) else None
    result = {name: fused(program, fuses) for name, program in result.items()}
    if double_buffered and "TRAIN" in graphs:
        result |= {n: with_raw_inputs(p, graphs["TRAIN"]) for n, p in result.items() if n in TRAINING}
    return with_host_residents(result, state)


def _parts(train: TrainSpec) -> dict[str, TrainSpec]:
    """The programs of a training iteration, each once, by name, in the order of their micro-batches."""
    return {spec.part: spec for spec in train.parts}


def last(graph: Graph, name: str) -> Blob | None:
    """The last version of a blob, after all layers that change it in place; None if no layer makes it."""
    result = [blob for node in graph.layers for blob in node.tops if blob.name == name]
    return result[-1] if result else None


def _scores(graph: Graph) -> list[Tensor]:
    """The activations that a loss or an accuracy compares with labels or targets: the net's answers about samples."""
    compared = [n for n in graph.layers if n.layer.loss or any(b.tensor.role is Role.LABEL for b in n.bottoms)]
    return [b.tensor for node in compared for b in node.bottoms if b.tensor.role is Role.ACTIVATION]
