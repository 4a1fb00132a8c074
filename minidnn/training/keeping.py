"""Keeps the best test of a run as it goes (`keep_best`), and ends a run that gets no better (`patience`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from minidnn.errors import InvalidInput, near
from minidnn.layers.accuracy import Accuracy
from minidnn.nets import perplexity
from minidnn.nets.graph import Graph
from minidnn.training.best import HIGHEST, LOWEST, OBJECTIVE, Best
from minidnn.training.events import Tested
from minidnn.training.session import Session


@dataclass(frozen=True)
class Goal:
    """The output of a test net that is to get better, and which way that is."""

    output: str
    way: str
    program: str  # the test net's

    @classmethod
    def of(cls, text: str, graphs: Mapping[str, Graph], outputs: Mapping[str, list[str]]) -> Goal:
        """The goal that `keep_best` names: an output, or "highest:OUTPUT" or "lowest:OUTPUT". Without that word an
        Accuracy is best where it is highest, and a loss where it is lowest.

        graphs, outputs: of each program of the test nets, in their order: its graph, its outputs of one number

        Raises InvalidInput for an output that no test net has, and for one that could be better either way."""
        way, _, output = text.rpartition(":")
        if way not in (HIGHEST, LOWEST):
            way, output = "", text
        for program, names in outputs.items():
            if output in names:
                way = way or _way(graphs[program], output)
                if not way:
                    said = f"use {HIGHEST}:{output} or {LOWEST}:{output}"
                    raise InvalidInput(f"keep_best: {output} is neither an Accuracy nor a loss: {said}")
                return cls(output, way, program)
        known = list(dict.fromkeys(name for names in outputs.values() for name in names))
        if not outputs:
            raise InvalidInput("keep_best needs tests: give test_iter and test_interval, or test_epochs")
        there = f"there are {', '.join(known)}" if known else "they have none of one number"
        raise InvalidInput(f"keep_best: no test net has an output {output!r}{near(output, known)}; {there}")

    def after(self, best: Best | None, test: Tested) -> Best:
        """The best test, once this one is counted, too. A test that was counted changes nothing: a run that goes on
        from a snapshot may repeat it."""
        value = test.outputs.get(self.output, test.loss)
        assert value is not None
        if best is None or (value > best.value if self.way == HIGHEST else value < best.value):
            return Best(self.output, self.way, value, test.iteration, test.iteration, 0)
        if best.tested >= test.iteration:
            return best
        return Best(best.output, best.way, best.value, best.iteration, test.iteration, best.misses + 1)


class Keeping:
    """The best test of a run as it goes: what `keep_best` and `patience` ask for. `best` is None before the first
    test, and without `keep_best`."""

    def __init__(
        self, session: Session, programs: Sequence[str], output: str | None, patience: int | None, place: str
    ) -> None:  # fmt: skip
        """programs: of the test nets
        place:    the snapshot_prefix

        Raises InvalidInput if the best cannot be kept."""
        self.best: Best | None = None
        self.goal: Goal | None = None
        self._patience = patience
        if output is not None:
            if not place:
                raise InvalidInput("keep_best needs a snapshot_prefix, next to which the best snapshot is kept")
            more = {name: [OBJECTIVE] if session.tells_objective(name) else [] for name in programs}
            outputs = {name: [*session.scalar_names(name), *more[name]] for name in programs}
            self.goal = Goal.of(output, session.graphs, outputs)

    @property
    def spent(self) -> bool:
        """Whether so many tests were not better that the run ends."""
        return bool(self._patience and self.best and self.best.misses >= self._patience)

    def count(self, tests: Sequence[Tested]) -> Best | None:
        """Count the tests of one iteration, one of each test net. The best test if that is a new one now."""
        if self.goal is None:
            return None
        (test,) = (one for one in tests if one.program == self.goal.program)
        before, self.best = self.best, self.goal.after(self.best, test)
        return self.best if before is None or self.best.iteration > before.iteration else None

    def go_on(self, then: Best) -> str | None:
        """Go on with the best test of a snapshot's run. A sentence for the user if this run looks at something else."""
        if self.goal and (self.goal.output, self.goal.way) == (then.output, then.way):
            self.best = then
            return None
        what = f"the {self.goal.way} {self.goal.output} is kept from here on" if self.goal else "this run keeps none"
        return f"the snapshot's run kept the {then.way} {then.output}, {then.value:.6g}; {what}"


def _way(graph: Graph, output: str) -> str:
    """Whether the highest or the lowest value of this output is the best; "" if nothing says so."""
    if output == OBJECTIVE or output in perplexity.losses(graph):
        return LOWEST
    node, i = next((n, i) for n in reversed(graph.layers) for i, b in enumerate(n.tops) if b.name == output)
    if isinstance(node.layer, Accuracy):
        return HIGHEST
    return LOWEST if node.layer.loss_weight(i) > 0 else ""
