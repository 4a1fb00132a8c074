"""The search for a room: how many live bytes to plan for, so that the placed plan keeps a budget.

Policies decide by live bytes, and placement may need more than their peak. So a plan is made for a *room*, at first for
one of the budget's size. If the placed plan exceeds the budget, the next room is smaller. If it keeps it, the next is
larger, until the rooms that do and do not fit are close.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Rooms:
    """The rooms to plan for. Whoever iterates sets `over` for each room.

    attempts: rooms at most
    near:     bytes: the search ends once the rooms that do and do not fit differ by so many
    fitting:  the largest room that fits; 0: none is known
    failing:  the smallest room that does not
    again:    whether to step back from each room that does not fit; False: only until one fits, then rooms are halved
    over:     bytes by which the placed plan for the room exceeds the budget; 0 or less if it fits
    """

    budget: int
    attempts: int
    near: int
    fitting: int = 0
    failing: int = 0
    again: bool = False
    over: int = field(default=0, init=False)
    back: int = field(default=0, init=False)  # bytes of the next step back

    def __iter__(self) -> Iterator[int]:
        room, self.failing = self.budget, self.failing or self.budget
        for _ in range(self.attempts):
            yield room
            if self.over > 0:
                self.failing, self.back = room, 2 * self.back or self.over
            else:
                self.fitting, self.back = room, 0
            if self.failing - self.fitting <= self.near:
                return
            room = self.next(room)

    @property
    def middle(self) -> int:
        return (self.fitting + self.failing) // 2

    def next(self, room: int) -> int:
        """The room behind this one: smaller by what was too much, and by twice as much each time; or the middle."""
        steps = self.over > 0 and (self.again or not self.fitting)
        return room - self.back if steps and room - self.back > self.fitting else self.middle
