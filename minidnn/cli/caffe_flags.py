"""The command line of Caffe's tool, put into ours: `caffe train --solver=s.prototxt -gpu 0` is known by its flags, and
the answer is the command to run.

Caffe's flags begin with one dash or two, and have their values behind "=" or a space.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from minidnn.errors import InvalidInput

GPUS = re.compile(r"all|\d+(,\d+)*")  # what Caffe's --gpu takes; ours takes the name of a GPU to simulate
VERBS = {"device_query": "devices"}  # Caffe's verbs that have other names here
EFFECTS = "Ctrl-C and SIGTERM end a run with a snapshot, and SIGHUP takes one; no flag changes this"
LINES = "log lines go to standard output and standard error; no flag changes this"
SWITCHES = ("logtostderr", "alsologtostderr", "colorlogtostderr")  # glog's that need no value
STATE = 'the net\'s file sets level and stages: state { level: 0 stage: "x" }'


@dataclass
class _Command:
    """Our command. before: what starts it; file: the words that come first; notes: what it has no word for"""

    before: list[str] = field(default_factory=list)
    file: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


Put = Callable[[_Command, str], object]


def check(argv: Sequence[str]) -> None:
    """Raise InvalidInput, which names our command, for a command line that has Caffe's verb or flags."""
    verb, *words = argv or [""]
    ours = VERBS.get(verb, verb)
    flags, own = {**FLAGS[ours], **_LOG} if ours in FLAGS else {}, OWN.get(ours, frozenset())
    command, theirs = _Command(), [verb] if verb in VERBS else []
    at = 0
    while at < len(words):
        word = words[at]
        name, equals, value = word.partition("=")
        plain = name.lstrip("-")
        whole = bool(equals) or plain in SWITCHES  # the word alone is the flag
        has_value = whole or at + 1 < len(words)
        value = value if whole or not has_value else words[at + 1]
        if word.startswith("-") and has_value and plain in flags and _caffes(name, plain, value, own):
            theirs.append(name)
            flags[plain](command, value)
            at += 1 if whole else 2
        else:
            command.words.append(word)
            at += 1
    if theirs:
        mine = [*command.before, "minidnn", ours, *command.file, *command.words]
        notes = "".join(f"; {note}" for note in dict.fromkeys(command.notes))
        what = "is Caffe's" if len(theirs) == 1 else "are Caffe's"
        raise InvalidInput(f"{', '.join(theirs)} {what}; the command here is: {shlex.join(mine)}{notes}")


def _caffes(name: str, plain: str, value: str, own: frozenset[str]) -> bool:
    """Whether the flag is Caffe's: of our own ones, with a single dash or with a value of Caffe's."""
    if plain == "gpu":
        return bool(GPUS.fullmatch(value)) or (plain in own and not name.startswith("--"))
    return plain not in own or not name.startswith("--")


def _file(command: _Command, value: str) -> None:
    command.file.append(value)


def _as(*words: str) -> Put:
    """The value behind these words."""
    return lambda command, value: command.words.extend([*words, value])


def _noted(note: str) -> Put:
    return lambda command, value: command.notes.append(note)


def _gpu(command: _Command, value: str) -> None:
    if not GPUS.fullmatch(value):
        command.words += ["--gpu", value]
        return
    numbers = value.split(",")
    if value == "all" or len(numbers) > 1:
        command.before += ["mpiexec", "-n", "N" if value == "all" else str(len(numbers))]
        command.words += ["--device", "cuda"]
        command.notes.append(
            "N is the number of GPUs, with a rank for each (docs/ranks.md)" if value == "all" else "docs/ranks.md"
        )
    else:
        command.words += ["--device", "cuda" if value == "0" else f"cuda:{value}"]


def _one_gpu(command: _Command, value: str) -> None:
    """As `_gpu`, of a verb that runs on one device."""
    _gpu(command, "0" if value == "all" else value.split(",")[0])


def _set(name: str, several: bool = False) -> Put:
    def put(command: _Command, value: str) -> None:
        command.words += ["--set", f"{name}={f'[{value}]' if several else value}"]

    return put


_LOG: dict[str, Put] = dict.fromkeys((*SWITCHES, "stderrthreshold", "minloglevel", "log_dir", "v"), _noted(LINES))
_EFFECTS = dict.fromkeys(("sigint_effect", "sighup_effect"), _noted(EFFECTS))
_NET: dict[str, Put] = {
    "model": _file, "solver": _file, "weights": _as("--weights"), "gpu": _one_gpu, "iterations": _as("--iterations"),
    **dict.fromkeys(("level", "stage"), _noted(STATE)), **_EFFECTS,
}  # fmt: skip
OWN = {  # flags of the same name that our verbs have
    "train": frozenset({"weights"}), "test": frozenset({"weights", "iterations"}),
    "time": frozenset({"iterations", "gpu"}),
}  # fmt: skip
FLAGS: dict[str, dict[str, Put]] = {
    "train": {
        "solver": _file, "model": _file, "snapshot": _as("--resume"), "weights": _as("--weights"), "gpu": _gpu,
        "level": _set("train_state.level"), "stage": _set("train_state.stage", several=True),
        "iterations": _as("--max-iter"), "phase": _noted("a run trains, and tests as the solver says"), **_EFFECTS,
    },
    "test": {**_NET, "phase": _noted("test is phase TEST")},
    "time": {
        **_NET, "weights": _noted("seconds do not depend on weights"),
        "phase": _noted("time runs a training step, or phase TEST of a net without a loss"),
    },
    "devices": {"gpu": _noted("all devices are listed")},
    **{verb: {"gpu": _one_gpu} for verb in ("plan", "compare", "frontier", "search", "tune")},
}  # fmt: skip
