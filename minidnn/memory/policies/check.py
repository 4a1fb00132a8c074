"""Whether policies exist, before anything is planned."""

from __future__ import annotations

from collections.abc import Sequence

from minidnn.errors import InvalidInput
from minidnn.memory.policies import find
from minidnn.memory.policies.names import AT
from minidnn.memory.policies.plan_file import SUFFIX


def check_policies(policies: Sequence[str], sizes: bool = False, whole: bool = False) -> None:
    """Raise NoSuchPolicy if a policy does not exist.

    sizes: the net will be planned at many sizes; then a plan file, which holds one size, raises InvalidInput
    whole: ops have no parts of the batch; then a policy that asks for parts, NAME@N, raises InvalidInput"""
    for policy in policies:
        if sizes and policy.endswith(SUFFIX):
            raise InvalidInput(f"{policy} plans one size of a net, and here many are planned: name a policy instead")
        find(policy)
        if whole and AT in policy and not policy.endswith(SUFFIX):
            raise InvalidInput(f"{policy}: these ops run as a whole alone: leave out {AT}{policy.partition(AT)[2]}")
