"""Profiles of GPUs: a roofline for each, read from costs/gpus/NAME.yaml (docs/costs.md). No GPU is needed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from minidnn.costs.costs import Costs
from minidnn.costs.roofline import GPU, Bytes, Number, PcieSlot
from minidnn.errors import BadInput, near

PROFILES = Path(__file__).with_name("gpus")
ARCHITECTURES = Path(__file__).with_name("architectures")
WAYS = {":tf32": True, ":fp32": False}  # at the end of a name: whether TF32 is allowed, whatever the default
SUFFIXES = ".yaml", ".yml"
_SIGN = re.compile(r"[^a-z0-9]")
_BRAND = re.compile(r"nvidia|geforce|tesla|quadro|gtx|rtx|[^a-z0-9]")


class ProfileError(BadInput, ValueError):
    """There is no such GPU profile, or its file is wrong."""


def gpus() -> list[str]:
    """Names of the profiles that come with the package."""
    return sorted(path.stem for path in PROFILES.glob("*.yaml"))


def short(name: str) -> str:
    """A card's name without the maker's words, spaces and signs: "NVIDIA GeForce RTX 3060", "rtx-3060" and "3060" are
    all "3060"."""
    return _BRAND.sub("", name.lower())


def parted(name: str) -> tuple[str, str]:
    """(name, way): a name without the one of WAYS at its end, and that; an empty way if there is none."""
    way = next((way for way in WAYS if name.endswith(way)), "")
    return name.removesuffix(way), way


def named(name: str) -> str:
    """The profile's own name ("rtx3060") for any name of the card, as people or the driver write it; the path of a
    file as it is. One of WAYS at the end is kept. Raises ProfileError if there is no such profile."""
    name, way = parted(name)
    result = name if name.endswith(SUFFIXES) else of_card(name)
    if result is None:
        hint, there = near(_SIGN.sub("", name.lower()), gpus(), 0.5), ", ".join(gpus())
        raise ProfileError(f"no GPU profile is called {name!r}{hint}; there are {there}, or give a file.yaml")
    return result + way


def of_card(name: str) -> str | None:
    """The name of the profile of a card that is called so; None: there is none."""
    if name in gpus():
        return name
    asked = short(name)
    known = {short(which): which for which in gpus()}
    if asked not in known:
        known |= {short(called): which for which in gpus() for called in gpu(which).called}
    return known.get(asked)


def gpu(name: str) -> GPU:
    """The profile of the card `name`, or that in a file NAME.yaml of your own. One of WAYS at the end says whether TF32
    is allowed.

    Raises ProfileError if there is no such profile, if its file is wrong, or if ":tf32" is asked of a card without."""
    result, way = parted(named(name))
    path = Path(result) if result.endswith(SUFFIXES) else PROFILES / f"{result}.yaml"
    return going(checked(content(path), str(path)), way, result)


def going(card: GPU, way: str, name: str) -> GPU:
    """The card with TF32 as `way` says; as it is if that is empty. Raises ProfileError, in which the card is called
    `name`, if it has no TF32 to allow."""
    if not way:
        return card
    if WAYS[way] and card.tf32_flops is None:
        raise ProfileError(f"{name}{way}: it has no tensor cores for TF32: there is no tf32_flops")
    return replace(card, tf32=WAYS[way])


def profile(name: str) -> Costs:
    """The Costs of the GPU that `gpu(name)` describes, under the profile's own name. Raises ProfileError."""
    result = named(name)
    return gpu(result).costs(result)


def architecture(name: str) -> dict[str, Any]:
    """The fields of a profile that are assumed for all cards of an architecture ("ampere"). Raises ProfileError."""
    known = sorted(path.stem for path in ARCHITECTURES.glob("*.yaml"))
    if name not in known:
        raise ProfileError(f"there is no architecture {name!r}{near(name, known)}; there are {', '.join(known)}")
    fields: dict[str, Any] = content(ARCHITECTURES / f"{name}.yaml")
    return fields


def checked(data: Any, source: str) -> GPU:
    """The GPU of these fields; an `architecture` among them gives those that are not there. source: in errors

    Raises ProfileError, which lists the errors."""
    from pydantic import TypeAdapter, ValidationError

    try:
        if isinstance(data, dict) and "architecture" in data:
            own = {field: value for field, value in data.items() if field != "architecture"}
            data = {**architecture(str(data["architecture"])), **own}
        return TypeAdapter(GPU).validate_python(data)
    except ProfileError as error:
        raise ProfileError(f"{source}: {error}") from None
    except ValidationError as error:
        wrong = (
            ": ".join(filter(None, (".".join(map(str, e["loc"])), e["msg"].removeprefix("Value error, "))))
            for e in error.errors()
        )
        raise ProfileError(f"{source}: " + "; ".join(wrong)) from None


def text(card: GPU) -> str:
    """The text of a card's file; whether TF32 is allowed is not in it."""
    lines = [f"title: {json.dumps(card.title)}", f"workspace_of: {card.workspace_of}"]
    if card.called:
        lines.append(f"called: {json.dumps(card.called)}")
    for name, each in vars(card).items():
        if isinstance(each, Number | Bytes | PcieSlot):
            value = f"{each.value:.5g}" if isinstance(each, Number) else each.value
            lines.append(f"{name}: {{value: {value}, source: {json.dumps(each.source)}}}")
    return "\n".join([*lines, ""])


def content(path: Path) -> Any:
    """The content of a YAML file. Raises ProfileError if it cannot be read."""
    from minidnn.schema.document import InvalidFile
    from minidnn.schema.files import read

    try:
        document = read(path)
        document.check()
    except InvalidFile as error:
        raise ProfileError(str(error)) from None
    return document.data
