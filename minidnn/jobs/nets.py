"""The nets that a file names: the one to train, those to test with, and the solver that says how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from minidnn.errors import InvalidInput, near
from minidnn.jobs.setting import Setting
from minidnn.layers.base import Shape
from minidnn.nets import dataless
from minidnn.nets.graph import Graph
from minidnn.nets.net import Net
from minidnn.programs.build import named
from minidnn.schema import SolverParameter
from minidnn.spoken import option


class Nets(NamedTuple):
    """
    net:    the net that is trained, or planned
    tests:  the nets of phase TEST, if they are not `net` alone
    solver: None for a model file, and for a Net without solver fields
    """

    net: Net
    tests: tuple[Net, ...] = ()
    solver: SolverParameter | None = None

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases of a training run: TRAIN, and TEST if there are nets to test with."""
        return ("TRAIN", "TEST") if self.tests else ("TRAIN",)

    @property
    def made_up(self) -> bool:
        """Whether the solver is no file's, but made up of fields for a net."""
        p = self.solver
        return p is not None and not any(p.has(n) for n in ("net", "net_param", "train_net", "train_net_param"))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know of how the nets were read; each once."""
        return tuple(dict.fromkeys(note for net in (self.net, *self.tests) for note in net.notes))

    def each(self, change: Callable[[Net], Net]) -> Nets:
        """These nets, each changed alike."""
        return self._replace(net=change(self.net), tests=tuple(change(test) for test in self.tests))

    def with_batch(self, batch: int) -> Nets:
        return self.each(lambda net: net.with_batch(batch))

    def with_shapes(self, shapes: Mapping[str, Shape], batch: int | None = None) -> Nets:
        """These nets with inputs of these shapes in the place of their data. Raises InvalidInput for a top that no
        layer gives."""
        known = dict.fromkeys(top for net in (self.net, *self.tests) for top in dataless.tops(net.parameter))
        for top in shapes.keys() - known.keys():
            there = f"there are {', '.join(known)}" if known else "no layer gives data"
            raise InvalidInput(f"{option('shape')} {top}: no data layer has this top{near(top, known)}; {there}")
        return self.each(lambda net: net.with_shapes(shapes, batch)) if shapes else self

    def with_images(self, side: int) -> Nets:
        """These nets for images of `side` x `side` pixels. Raises InvalidFile if one takes no images."""
        return self.each(lambda net: net.with_images(side))

    def with_tokens(self, length: int | None) -> Nets:
        """These nets with windows of `length` tokens; None: as they are. Raises InvalidFile if one takes no tokens."""
        return self if length is None else self.each(lambda net: net.with_tokens(length))

    def asked(self, setting: Setting, batch: int | None) -> tuple[Nets, int | None]:
        """(the nets with the setting's tokens, and at the batch of each rank; that batch). Several ranks divide the
        setting's global batch.

        batch: the batch size that these nets were made with instead of their files'; None: their files'

        Raises InvalidInput if they cannot have equal parts, and InvalidFile if a net takes no tokens."""
        if setting.seq is not None:
            return self.with_tokens(setting.seq).asked(replace(setting, seq=None), batch)
        each = setting.batch_of(1 if self.solver is None else self.solver.iter_size, batch)
        if each is None or each == batch:
            return self, batch
        return self.with_batch(each), each

    def graphs(self, phases: tuple[str, ...], format: str = "float32") -> dict[str, Graph]:
        """The graph of each program, by the program's name."""
        return {
            name: one.graph(phase, format=format) for name, (one, phase) in named(self.net, phases, self.tests).items()
        }
