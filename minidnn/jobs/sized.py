"""What a search can make larger: the batch, the images, the tokens of a sample, or the depth of a net of a family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from minidnn import zoo
from minidnn.errors import BadInput, InvalidInput
from minidnn.jobs.job import Source
from minidnn.jobs.plannable import Plannable
from minidnn.jobs.search import Make
from minidnn.jobs.series import Series
from minidnn.memory.planning import synchronous
from minidnn.schema.message import LARGEST
from minidnn.spoken import option

SIDE = 32  # pixels: most nets halve their images five times
WIDEST = 1 << 16  # pixels a side
APART, TOKENS = 128, 1 << 24  # tokens: one to the next, and the most

Read = Callable[[Source], Plannable]


@dataclass(frozen=True)
class Sized:
    """A net that a search makes larger.

    make:   the programs of a size
    series: the sizes to choose from
    probes: two sizes to estimate from
    job:    the net at one size
    model:  the name of the net, or of its family
    """

    make: Make
    series: Series
    probes: tuple[int, int]
    job: Plannable
    model: str


def by_batch(source: Source, read: Read, step: int | None) -> Sized:
    job = read(source)
    if job.asked:
        raise InvalidInput(f"{option('max', 'batch')} looks for the batch: leave out {option('batch')}")
    step = step or 1
    if step > LARGEST:
        raise InvalidInput(f"{option('step', step)}: there is no batch of more than {LARGEST}")
    series = Series(step, step, LARGEST // step * step, batches=True)
    start = series[series.number(job.batch or 1)]
    return Sized(lambda batch: synchronous(job.at_batch(batch)), series, (start, 4 * start), job, job.name)


def by_size(source: Source, read: Read, step: int | None) -> Sized:
    job = read(source)
    side, step = job.side, step or SIDE
    if side is None:
        raise InvalidInput(f"{option('max', 'size')}: no input of {job.name} is a batch of images, (N, C, H, W)")
    if step > WIDEST:
        raise InvalidInput(f"{option('step', step)}: no image has a side of more than {WIDEST} pixels here")
    first = _smallest(job, range(step, max(side, step) + 1, step))
    series = Series(first, step, WIDEST // step * step)
    start = series[series.number(side)]
    return Sized(lambda size: synchronous(job.at_images(size)), series, (start, 2 * start), job, job.name)


def by_tokens(source: Source, read: Read, step: int | None) -> Sized:
    job = read(source)
    if job.setting.seq is not None:
        raise InvalidInput(f"{option('max', 'tokens')} looks for the tokens: leave out {option('seq')}")
    tokens, step = job.tokens, step or APART
    if step > TOKENS:
        raise InvalidInput(f"{option('step', step)}: no window has more than {TOKENS} tokens")
    if tokens is None:
        raise InvalidInput(f"{option('max', 'tokens')}: no layer of {job.name} gives tokens (source: tokens:, text:)")
    series = Series(step, step, TOKENS // step * step)
    start = series[series.number(tokens)]
    return Sized(lambda length: synchronous(job.at_tokens(length)), series, (start, 2 * start), job, job.name)


def by_depth(source: Source, read: Read, step: int | None) -> Sized:
    if not isinstance(source, str):
        raise InvalidInput(f"{option('max', 'depth')} takes the name of a family of nets: {', '.join(zoo.DEPTHS)}")
    family = zoo.family(source)
    _, first, apart = zoo.DEPTHS[family]
    if step and step % apart:
        raise InvalidInput(
            f"{option('step', step)}: the depths of {family} are {apart} apart, so a multiple of that is needed"
        )
    series = Series(first, step or apart, 99_999)
    job = read(f"{family}{first}")
    probes = first, first + 16 * apart
    return Sized(lambda depth: synchronous(read(f"{family}{depth}").programs), series, probes, job, family)


KINDS: dict[str, Callable[[Source, Read, int | None], Sized]] = {
    "batch": by_batch, "size": by_size, "tokens": by_tokens, "depth": by_depth,
}  # fmt: skip


def _smallest(job: Plannable, sides: Sequence[int]) -> int:
    """The smallest of these sides at which the net can be made: images must not end before its layers do."""
    for side in sides:
        try:
            job.at_images(side)
        except BadInput:
            if side == sides[-1]:
                raise
        else:
            return side
    raise AssertionError("there is a side to try")
