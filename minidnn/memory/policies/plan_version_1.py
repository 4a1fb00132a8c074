"""Plan files of version 1, whose fields, and ops of ranks and parts, have other names for the same facts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

WORDS = {"trips": "offloads", "hosted": "host_resident", "beside": "host_ops", "eager": "asap"}
POINTS = {"out": "offload_at", "free": "free_at", "back": "prefetch_at", "arrive": "needed_at"}
NAMES = (  # of ops, also behind a tensor's name and AT
    (re.compile(r"(^| at )net\.gather(?=\d*(#\d+)?$)"), r"\1net.all_gather"),
    (re.compile(r"(^| at )net\.exchange(?=\d*(#\d+)?$)"), r"\1net.all_to_all"),
    (re.compile(r"\]\.take(?=(#\d+)?$)"), r"].slice"),
    (re.compile(r"(\.\w+(=.*)?)\.join(?=(#\d+)?$)"), r"\1.concat"),
)
KINDS = {  # in a fingerprint: {what is now: what was}
    "net.all_gather": "net.gather",
    "net.all_to_all": "net.exchange",
    "_multi_tensor ": "_each ",
    "MultiTensor(": "Each(",
}


def of_today(content: dict[str, Any]) -> dict[str, Any]:
    """The values of a file of version 1 in the words of version 2; what is wrong with them stays wrong."""
    programs = content.get("programs")
    if isinstance(programs, dict):
        content = content | {"programs": {name: _program(values) for name, values in programs.items()}}
    return content | {"minidnn_plan": 2}


def of_then(fingerprinted: str) -> str:
    """The text of an op that a fingerprint of version 1 is taken of, from that of version 2."""
    for new, old in KINDS.items():
        fingerprinted = fingerprinted.replace(new, old)
    return fingerprinted


def _program(values: Any) -> Any:
    if not isinstance(values, dict):
        return values
    values = _with_names(_with_keys(values, WORDS))
    if isinstance(offloads := values.get("offloads"), list):
        values["offloads"] = [_with_keys(x, POINTS) if isinstance(x, dict) else x for x in offloads]
    return values


def _with_names(value: Any) -> Any:
    """The value with the names of ops that this version has."""
    if isinstance(value, dict):
        return {_with_names(key): _with_names(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_names(inner) for inner in value]
    if isinstance(value, str):
        for old, new in NAMES:
            value = old.sub(new, value)
    return value


def _with_keys(values: dict[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    return {words.get(key, key): value for key, value in values.items()}
