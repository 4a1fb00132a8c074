"""Whether policies exist, before anything is planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from minidnn.errors import InvalidInput
from minidnn.memory.effort import looking
from minidnn.memory.policies import find
from minidnn.memory.policies.names import AT, SEARCHING, base
from minidnn.memory.policies.plan_file import SUFFIX
from minidnn.spoken import option


def check_policies(policies: Sequence[str], sizes: bool = False, whole: bool = False) -> None:
    """Raise NoSuchPolicy if a policy does not exist.

    sizes: the net will be planned at many sizes; then a plan file, which holds one size, raises InvalidInput
    whole: ops have no parts of the batch; then a policy that asks for parts, NAME@N, raises InvalidInput"""
    for policy in policies:
        if sizes and policy.endswith(SUFFIX):
            raise InvalidInput(f"{policy} is for one size of a net, but this command plans many: name a policy instead")
        find(policy)
        if whole and AT in policy and not policy.endswith(SUFFIX):
            raise InvalidInput(f"{policy}: these ops cannot run in parts: leave out {AT}{policy.partition(AT)[2]}")


@contextmanager
def looking_longer(policies: Sequence[str], effort: float | None) -> Iterator[None]:
    """Within it, policies that search do so for as long as the effort says. Raises InvalidInput if none of these
    does."""
    if effort is not None and not any(base(policy) in SEARCHING for policy in policies):
        some = " and ".join(sorted(SEARCHING))
        raise InvalidInput(
            f"{option('effort')}: {', '.join(policies)} makes its plan without a search; leave it out, or name {some}"
        )
    with looking(effort):
        yield


def no_effort(effort: float | None, verb: str) -> None:
    """Raise InvalidInput if a verb that makes many plans is asked to look longer for one."""
    if effort is not None:
        raise InvalidInput(
            f"{option('effort')}: {verb} makes many plans, and searches longer for none of them; leave it out"
        )
