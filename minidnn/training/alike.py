"""What ranks that train together need alike, compared field by field: their words name the first field that differs.

Digests are compared first, which are as small for 1,000 ranks as for two. The fields follow only where these differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from hashlib import sha256
from typing import Any

from pydantic import BaseModel

from minidnn.errors import InvalidInput
from minidnn.jobs.nets import Nets
from minidnn.jobs.setting import Setting
from minidnn.memory.proof.digest import digest
from minidnn.memory.schedule import Arrangement
from minidnn.ranks.engine import Channel
from minidnn.schema import SolverParameter
from minidnn.spoken import option
from minidnn.version import __version__

Fields = Mapping[str, Any]  # the path of a field -> its value, plain

# Of a setting, what may differ: what a rank is, and what changes no byte.
OWN = {
    "device", "costs", "estimated", "disk", "workers", "seed", "engine", "launch", "rank_limit", "named", "debug",
    "delays",
}  # fmt: skip
# Of a solver's `minidnn`, what the first rank alone does, and what a setting's staging says.
ELSEWHERE = {"log", "tensorboard", "host_ring", "pin_on_demand", "compress", "disk"}


def compare(channel: Channel, parts: Mapping[str, Fields]) -> None:
    """Compare the parts of all ranks, in this order. Raises InvalidInput on all of them if one differs."""
    mine = {what: _digest(part) for what, part in parts.items()}
    result = channel.share(mine)
    for what in parts:
        rank = next((k for k, other in enumerate(result) if other[what] != result[0][what]), None)
        if rank is not None:
            all_fields = channel.share(dict(parts[what]))
            text = _difference(all_fields[0], all_fields[rank])
            raise InvalidInput(f"rank {rank} differs from rank 0 in {what}: {text}; {_remedy()}")


def _remedy() -> str:
    what = "all ranks need the same command, files and minidnn, and devices with equal memory"
    return f"{what} (or a {option('budget')} and a {option('host_budget')})"


def _digest(part: Fields) -> str:
    return sha256(repr(sorted(part.items())).encode()).hexdigest()[:16]


def _difference(first: Fields, other: Fields) -> str:
    """The first field that differs, and how many more do."""
    names = [name for name in dict.fromkeys([*first, *other]) if repr(first.get(name)) != repr(other.get(name))]
    name, more = names[0], len(names) - 1
    text = f"it has {name}: {_text(other.get(name))} where rank 0 has {_text(first.get(name))}"
    return text + (f", and {more} more differ{'s' * (more == 1)}" if more else "")


def _text(value: Any) -> str:
    if value is None:
        return "nothing"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def check_given(channel: Channel, nets: Nets, setting: Setting) -> None:
    """Compare what the user has given to each rank, before anything is planned by it. Raises InvalidInput on all."""
    device = setting.device if isinstance(setting.device, str) else setting.device.name
    parts = {
        "minidnn's version": {"version": __version__},
        "the device": {"device": device.partition(":")[0]},
        "the net": flat(nets.net.parameter),
        **{f"test net {i}": flat(net.parameter) for i, net in enumerate(nets.tests) if net is not nets.net},
        "the solver's fields": of_solver(nets.solver) if nets.solver else {},
        "the plan": of_setting(setting),
    }
    compare(channel, parts)


def check_alike(channel: Channel, arrangement: Arrangement, samples: int | None, at: int) -> None:
    """Compare what has come of it, before the first step. Raises InvalidInput on all ranks.

    samples: of an epoch; at: the iteration to begin with"""
    plan = {
        "policy": arrangement.policy, "bytes on the device": arrangement.arena, "bytes off it": arrangement.off_device,
        "digest": digest(arrangement)[:12],
    }  # fmt: skip
    parts: dict[str, Fields] = {
        "the number of training samples": {"samples": samples},
        "the iteration to begin with": {"iteration": at},
        "the plan": plan,
    }
    compare(channel, parts)


def of_solver(solver: SolverParameter) -> Fields:
    """The fields of a solver. Those of its `minidnn` that a setting has are compared there, with what the user says."""
    return flat(solver, {"net": True, "minidnn": ELSEWHERE | {f.name for f in fields(Setting)}})


def of_setting(setting: Setting) -> Fields:
    """What the user says of how a net is run."""
    values = ((f.name, getattr(setting, f.name)) for f in fields(setting) if f.name not in OWN)
    return {name: repr(value) if is_dataclass(value) else value for name, value in values}


def flat(message: BaseModel, without: Any = None) -> Fields:
    """The fields of a message, each with its path: layer[conv1].convolution_param.num_output."""
    return dict(_flat("", message.model_dump(mode="json", exclude=without)))


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _flat(f"{path}.{name}" if path else name, item)
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        for i, item in enumerate(value):
            name = item.get("name") if path == "layer" and isinstance(item, Mapping) else None
            yield from _flat(f"{path}[{i if name is None else name}]", item)
    else:
        yield path, value
