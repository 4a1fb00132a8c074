"""What must hold of the files that a power cut leaves (power_cut.py): they are laid out, and training is resumed."""

from __future__ import annotations

from tests.faults.power_cut import State, lay
from tests.faults.trainings import SAVED, Trainer
from tests.faults.verdicts import goes_on


def promised(said: bytes) -> list[str]:
    """The snapshots that the program had reported as saved."""
    return SAVED.findall(said.decode())


def snapshots(trainer: Trainer, state: State) -> dict[str, bytes | None]:
    """The snapshots among these files, by name."""
    files = dict(state)
    return {name: files[path] for name in trainer.whole if (path := f"{trainer.root}/out/{name}") in files}


def kept(trainer: Trainer, said: bytes, state: State) -> list[str]:
    """What is lost in these files, in words. A torn file must never have the name of a snapshot: `--resume latest`
    would pass over it, but `--resume FILE` would not."""
    there = snapshots(trainer, state)
    lost = [f"{name} was reported as saved, and is gone" for name in promised(said) if name not in there]
    return lost + [f"{name} is not whole" for name, data in trainer.whole.items() if there.get(name, data) != data]


def resumes(trainer: Trainer, state: State) -> list[str]:
    """What is lost when training is resumed from these files."""
    place = trainer.fresh()
    lay(state, trainer.root, place)
    return goes_on(trainer, *trainer.resume(place))
