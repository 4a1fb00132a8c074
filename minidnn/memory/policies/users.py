"""Policies that are not minidnn's: a function that a user has entered in POLICIES, or a plan file. Their mistakes are
reported to their author, with the policy, the offload interval and the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

from minidnn.errors import BadInput, described
from minidnn.memory.offload_check import wrong
from minidnn.memory.plan import Plan
from minidnn.memory.policies.plan_file import SUFFIX, PlanError
from minidnn.memory.proof.verify import ScheduleError
from minidnn.program import Program

Decide = Callable[..., Plan]


class PolicyError(BadInput):
    """A policy of the user's own fails, or its plan does not hold; the message names the policy, and its offload
    interval."""


def is_own(decide: Decide) -> bool:
    """Whether the function that decides is the user's, and not minidnn's."""
    while isinstance(decide, partial):
        decide = decide.func
    return getattr(decide, "__module__", "").partition(".")[0] != "minidnn"


def checked(name: str, decide: Decide) -> Decide:
    """The same policy, which raises PolicyError where it fails, returns no plan, or asks for an offload interval that
    cannot be."""

    @wraps(decide)
    def told(program: Program, *more: Any, **named: Any) -> Plan:
        try:
            plan = decide(program, *more, **named)
        except BadInput:
            raise
        except Exception as error:
            raise PolicyError(f"policy {name}: {described(error)}") from error
        if not isinstance(plan, Plan):
            raise PolicyError(f"policy {name}: it returned {type(plan).__name__} instead of a Plan")
        if why := wrong(program, plan):
            raise PolicyError(f"policy {name}: {why}")
        return plan

    return told


@contextmanager
def blamed(name: str, own: bool) -> Iterator[None]:
    """Raise PolicyError, or PlanError for a file, where a plan of the user's own cannot be lowered, placed or proved.

    own: whether it is the user's; errors of others are bugs of minidnn"""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, ScheduleError) as error:
        if not own or isinstance(error, BadInput):
            raise
        why = f"{name}: the plan does not hold: {error}"
        raise (PlanError(why) if name.endswith(SUFFIX) else PolicyError(f"policy {why}")) from error
