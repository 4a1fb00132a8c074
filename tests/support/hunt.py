"""The hunt for what a proof lets pass: random changes, of which an oracle says which are wrong; only these count."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any, TypeVar

from minidnn.memory.proof.verify import ScheduleError

Thing = TypeVar("Thing")  # a schedule, or those of all programs of a net
Change = Callable[[Thing, random.Random], "Thing | None"]  # None: there is nothing to change in this way


def hunted(
    things: Sequence[Thing],
    changes: Sequence[Change[Thing]],
    count: int,
    r: random.Random,
    why: Callable[[Thing, Thing, Any], str | None],
    prove: Callable[[Thing, Thing], object],
    goes_on: bool = False,
    title: str = "",
) -> Counter[Change[Thing]]:
    """Change things in each of these ways in turn, until so many changes were wrong, all of which must be refused. How
    many there were of each, which it also prints. A change may raise ValueError for what contradicts itself.

    why(changed, before, change): the oracle's reason why the changed thing is wrong, if it is
    prove(changed, before): raises ScheduleError for what it refuses
    goes_on: what a harmless change makes is changed again, since another change may make it wrong
    """
    things = list(things)
    wrong, contradicting, harmless = Counter(), Counter(), Counter()
    kinds = cycle(changes)
    while wrong.total() < count:
        change = next(kinds)
        before = r.choice(things)
        try:
            changed = change(before, r)
        except ValueError:
            contradicting[change] += 1
            continue
        if changed is None:
            continue
        reason = why(changed, before, change)
        if reason is None:
            harmless[change] += 1
            if goes_on:
                things.append(changed)
            continue
        wrong[change] += 1
        try:
            prove(changed, before)
        except ScheduleError:
            continue
        raise AssertionError(f"{change.__name__} is not refused: {reason}")
    print(f"\n{title:30}{'wrong, refused':>16}{'not lowered':>14}{'harmless':>12}")
    for change in dict.fromkeys(changes):
        print(f"{change.__name__:30}{wrong[change]:16}{contradicting[change]:14}{harmless[change]:12}")
    print(f"{'':30}{wrong.total():16}{contradicting.total():14}{harmless.total():12}")
    return wrong
