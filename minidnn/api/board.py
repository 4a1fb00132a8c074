"""The board: memory policies side by side on several nets, GPUs and budgets, each with its gap to the bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from minidnn import sizes
from minidnn.api.answer import Answer, Tell, silent
from minidnn.api.cards import ANY
from minidnn.api.plan import listed
from minidnn.errors import InvalidInput
from minidnn.jobs.board import Budget, Contest, standings
from minidnn.jobs.board import board as plan_all
from minidnn.jobs.gpus import HOST, gpu, host_memory, named
from minidnn.jobs.job import Source, read
from minidnn.jobs.plannable import Plannable
from minidnn.measuring.load import processors
from minidnn.memory.planning import synchronous
from minidnn.memory.policies import names
from minidnn.memory.policies.bibliography import PAPERS, paper
from minidnn.memory.policies.check import check_policies, no_effort
from minidnn.report import board as report
from minidnn.report import board_charts, board_page
from minidnn.report.look import Look
from minidnn.results.board import Board as Document
from minidnn.results.board import BoardRow, PaperRow
from minidnn.spoken import many, option

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from minidnn.jobs.setting import Given

GPUS = ("titan_x", "rtx4090", "h100")
Read = Callable[[Source, int | None], Plannable]  # of a net at a batch size, for the GPU `ANY`
BUDGETS = ("100%", "70%", "50%", "30%", "15%")


class Board(Answer[Document, BoardRow]):
    """The result of `minidnn.board`: a row for each policy on each net and GPU within each budget."""

    look = Look(report.cells, report.sentences, report.SPARED, board_charts.picture, board_page.page)

    def show(self) -> None:
        report.show(self.document, self.title, self.notes)


def main_policies() -> list[str]:
    """The policies that stand for their papers, in the order of the tables: those that `board` asks if none is named.

    One of the user's own is among them."""
    return [name for name in names() if name in PAPERS or paper(name) is None]


def board(
    nets: Sequence[Source] | str,
    policies: Sequence[str] | str | None = None,
    *,
    gpus: Sequence[str] | str = GPUS,
    budgets: Sequence[str | int | float] | str = BUDGETS,
    jobs: int | None = None,
    ignore_unknown: bool = False,
    **given: Unpack[Given],
) -> Board:
    """Plan nets under many policies, on several GPUs within several budgets, and simulate a step of each plan.

    nets:     Nets, solvers' parameters, files or names of models; ":64" after a name sets the batch size
    policies: their names; None: one for each paper
    gpus:     any names of GPUs, or files
    budgets:  fractions of the bytes that liveness:p takes ("50%", or 0.5), or bytes ("4GiB")
    jobs:     processes that plan in parallel; None: one for each processor that this process may use
    keywords: as of `minidnn.plan`

    After Ctrl-C, the function returns the cells planned so far, with `document.finished` False. Raises NoSuchModel,
    NoSuchPolicy, ProfileError, InvalidFile and InvalidInput.
    """
    every: list[Source] = [nets] if isinstance(nets, str) else list(nets)
    return of(every, budgets_of(budgets), listed(gpus), listed(policies), jobs, given, reading(given, ignore_unknown))


def reading(given: Given, ignore_unknown: bool = False) -> Read:
    """How nets are read."""
    return lambda net, batch: read(net, given, batch, ANY, ignore_unknown)


def of(
    nets: Sequence[Source],
    budgets: Sequence[Budget],
    gpus: Sequence[str],
    policies: Sequence[str],
    jobs: int | None,
    given: Given,
    one: Read,
    tell: Tell = silent,
) -> Board:
    """The board of these nets. one: reads each"""
    if jobs is not None and jobs < 1:
        raise InvalidInput(f"{option('jobs')}: expected at least 1 process, got {jobs}")
    policies = list(dict.fromkeys(policies or main_policies()))
    check_policies(policies, sizes=True)
    cards = list(dict.fromkeys(map(named, gpus)))
    budgets = sorted(dict.fromkeys(budgets), key=lambda b: (isinstance(b, int), -b))
    contests: list[Contest] = []
    assumed: dict[str, None] = {}
    for source in nets:
        job = one(*at_batch(source))
        check_policies(policies, sizes=True, whole=job.whole)
        no_effort(job.setting.effort, "board")
        contests += _contests(job, cards)
        assumed[job.assumed] = None
    try:
        cells = plan_all(contests, budgets, policies, jobs or len(processors()), tell)
    finally:
        tell("")
    document = Document(
        format=given.get("format") or "float32",
        rows=[row for rows in cells.rows for row in rows],
        contests=cells.contests,
        standings=standings(cells, policies),
        papers=[row for policy in policies if (row := _paper(policy))],
        cells=len(contests) * len(budgets) * len(policies),
        finished=cells.finished,
    )
    count = ", ".join(map(many, (len(nets), len(budgets), len(cards)), ("net", "budget", "GPU")))
    title = f"{many(len(policies), 'policy')} on {count}"
    notes = " ".join(filter(None, ("Seconds are simulated, bytes are exact.", *assumed)))
    if given.get("host_budget") is None:
        told = option("host_budget")
        notes += f" Assumed: {sizes.text(HOST)} of host memory, unless a GPU's profile gives it ({told})."
    return Board(document, title, notes)


def budgets_of(budgets: Sequence[str | int | float] | str) -> list[Budget]:
    """Budgets as people write them (`budget_of`), or as numbers: whole ones are bytes, others parts."""
    asked = listed(budgets) if isinstance(budgets, str) else [str(b) if isinstance(b, int) else b for b in budgets]
    return [budget_of(b) if isinstance(b, str) else _part(b, str(b)) for b in asked]


def budget_of(text: str) -> Budget:
    """A budget: "70%" or "0.7" of what liveness:p takes, or bytes such as "4GiB". Raises InvalidInput."""
    try:
        if text.endswith("%"):
            return _part(float(text[:-1]) / 100, text)
        if "." in text and text.replace(".", "", 1).isdecimal():
            return _part(float(text), text)
        return sizes.parse(text)
    except ValueError:
        raise InvalidInput(f"budget {text!r}: expected a percentage such as 50%, or bytes such as 4GiB") from None


def _part(part: float, text: str) -> float:
    if not 0 < part <= 10:
        raise InvalidInput(f"budget {text!r}: expected a percentage above 0 and at most 1000%")
    return part


def at_batch(source: Source) -> tuple[Source, int | None]:
    """A net and its batch size, of "vgg19:64"; the size is None where none is named."""
    if isinstance(source, str):
        name, colon, batch = source.rpartition(":")
        if colon and batch.isdecimal():
            if int(batch) < 1:
                raise InvalidInput(f"{source}: a batch has one sample or more")
            return name, int(batch)
    return source, None


def _contests(job: Plannable, gpus: Sequence[str]) -> list[Contest]:
    """A net on each GPU."""
    result = []
    for which in gpus:
        programs = tuple(synchronous(job.programs_on(which)))
        host = host_memory(which) if job.host_assumed else job.setting.host_budget
        result.append(
            Contest(
                job.name, job.batch, which, gpu(which).title, programs, job.train.name, job.costs_on(which), host
            )
        )  # fmt: skip
    return result


def _paper(policy: str) -> PaperRow | None:
    result = paper(policy)
    if result is None:
        return None
    return PaperRow(
        policy=policy, paper_title=result.title, authors=result.authors, venue=result.venue, year=result.year,
        section=result.section, called=result.called, style=result.style, silent=list(result.silent),
    )  # fmt: skip
