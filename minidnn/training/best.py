"""The best test of a run, by one output of a test net. It is part of each snapshot, so that a run that goes on from one
keeps the best of both parts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from minidnn.errors import InvalidInput, near
from minidnn.layers.accuracy import Accuracy
from minidnn.nets.graph import Graph

if TYPE_CHECKING:
    from minidnn.training.events import Tested

HIGHEST, LOWEST = "highest", "lowest"
OBJECTIVE = "objective"  # a test's mean objective, with test_compute_loss
_KINDS = {"output": str, "way": str, "value": float, "iteration": int, "tested": int, "misses": int}


@dataclass(frozen=True)
class Best:
    """The best test so far, and the number of tests since."""

    output: str
    way: str  # HIGHEST or LOWEST: which value is the best
    value: float
    iteration: int
    tested: int  # the iteration of the last test that was counted
    misses: int  # the tests since the best one, of which none was better

    @classmethod
    def of(cls, said: object) -> Best:
        """The value that plain data describe, such as those of a snapshot's metadata. Raises ValueError if they
        describe none."""
        given = said if isinstance(said, Mapping) else {}
        wrong = [name for name, kind in _KINDS.items() if type(given.get(name)) is not kind]
        if wrong or given["way"] not in (HIGHEST, LOWEST) or not math.isfinite(given["value"]):
            raise ValueError(f"its best test is {said!r}; expected a usable {', '.join(wrong) or 'way and value'}")
        return cls(**{name: given[name] for name in _KINDS})

    def said(self) -> dict[str, Any]:
        """The value as plain data; `of` reads it."""
        return asdict(self)


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
                    said = f"say {HIGHEST}:{output} or {LOWEST}:{output}"
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


def _way(graph: Graph, output: str) -> str:
    """Whether the highest or the lowest value of this output is the best; "" if nothing says so."""
    if output == OBJECTIVE:
        return LOWEST
    node, i = next((n, i) for n in reversed(graph.layers) for i, b in enumerate(n.tops) if b.name == output)
    if isinstance(node.layer, Accuracy):
        return HIGHEST
    return LOWEST if node.layer.loss_weight(i) > 0 else ""
