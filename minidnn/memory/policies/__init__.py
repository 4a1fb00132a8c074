"""Policies: what decides. Each maps (program, costs, budget) to a Plan and does nothing else.

papers/ has a file for each policy that a paper proposed, ours/ those of minidnn's own, and shared/ what several of
them use. names.py has the tables of all policies, and reads their names. bibliography.py says who proposed what.
plan_file.py reads and writes a saved plan. users.py blames a user's own policy for its mistakes.

A policy of your own needs no change to the package: `POLICIES["mine"] = f`.
"""

from minidnn.memory.policies.names import (
    AT,
    BUDGETED,
    CHOOSING,
    DEFAULT,
    OTHERS,
    POLICIES,
    SOME_NETS,
    STAYING,
    STOPPING,
    SUFFIXES,
    NoSuchPolicy,
    find,
    is_users,
    names,
    parts,
    summary,
)
from minidnn.memory.policies.shared.algorithms import choose

__all__ = [
    "AT",
    "BUDGETED",
    "CHOOSING",
    "DEFAULT",
    "OTHERS",
    "POLICIES",
    "SOME_NETS",
    "STAYING",
    "STOPPING",
    "SUFFIXES",
    "NoSuchPolicy",
    "choose",
    "find",
    "is_users",
    "names",
    "parts",
    "summary",
]  # fmt: skip
