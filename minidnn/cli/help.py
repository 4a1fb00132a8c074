"""Lists in help texts (policies, GPU profiles, memory facts, families), made from the tables themselves.

A help text contains the list's name in braces. The tables are imported only when help is printed.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable

EXAMPLES = "examples:"
POLICIES = "{policies}"  # stands for a list of them


def examples(*commands: str) -> str:
    """The end of a help text: these command lines."""
    return "\n".join([EXAMPLES, *(f"  {command}" for command in commands)])


def _folded(command: str, width: int) -> list[str]:
    """The command line on lines of this width, as a shell takes them."""
    lines = textwrap.wrap(
        command, width - 2, subsequent_indent="      ", break_long_words=False, break_on_hyphens=False
    )
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


class Formatter(argparse.HelpFormatter):
    """Replaces the names in braces in help texts by their lists."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Examples keep their lines, and a list has a line for each name; other texts are folded."""
        if text == POLICIES:
            return policies(width, indent)
        if not text.startswith(EXAMPLES):
            return super()._fill_text(text, width, indent)
        return "\n".join(line for shown in text.split("\n") for line in _folded(shown, width))

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = action.help
        for name, written in LISTS.items():
            if text and f"{{{name}}}" in text:
                text = text.replace(f"{{{name}}}", written())
        return text


def policies(width: int, indent: str) -> str:
    """A line or more for each policy: its name, and the first line of its docstring. Then who proposed them.

    width: characters of a line, without the indent that it begins with"""
    from minidnn.memory.policies import CHOOSING, POLICIES, SUFFIXES, summary
    from minidnn.memory.policies.bibliography import PAPERS

    column = max(map(len, (*POLICIES, *CHOOSING))) + 2
    lines = []
    for name in (*CHOOSING, *POLICIES):
        first, *more = textwrap.wrap(summary(name), max(width - column, 20)) or [""]
        lines += [f"{name:{column}}{first}".rstrip(), *(" " * column + line for line in more)]
    suffixes = ", ".join(f":{letter} ({what})" for letter, what in SUFFIXES.items())
    told = (
        f"{', '.join(CHOOSING)} choose algorithms themselves; other names may end in {suffixes}; without a suffix, :f"
    )
    whose: dict[str, list[str]] = {}
    for name, paper in PAPERS.items():
        whose.setdefault(paper.short, []).append(name)
    papers = "; ".join(f"{', '.join(names)}: {short}" for short, names in whose.items())
    ends = [line for text in (told, papers) for line in textwrap.wrap(text, width)]
    return "\n".join(f"{indent}{line}" for line in [*lines, "", *ends])


def default_policy() -> str:
    from minidnn.memory.policies import BUDGETED, DEFAULT

    return f"{DEFAULT}, or {BUDGETED} with a budget"


def gpus() -> str:
    from minidnn import costs

    return str(len(costs.gpus()))


def devices() -> str:
    from minidnn.backends import DEVICES

    return ", ".join(DEVICES)


def host() -> str:
    from minidnn import sizes
    from minidnn.jobs.gpus import HOST

    return sizes.exact(HOST)


def facts() -> str:
    """The memory facts that nets run with, then those that are for planning only."""
    from minidnn.layers import FACTS

    named = [name for name in FACTS if name != "default"]
    runs = [name for name in named if not FACTS[name].planning_only()]
    plans = [name for name in named if FACTS[name].planning_only()]
    return f"{', '.join(runs)}; or, for planning only, {', '.join(plans)}"


def families() -> str:
    from minidnn.zoo import DEPTHS

    *first, last = DEPTHS
    return f"{', '.join(first)} or {last}"


def links() -> str:
    from minidnn.costs.links import links

    return ", ".join(links())


LISTS: dict[str, Callable[[], str]] = {
    function.__name__: function for function in (default_policy, gpus, devices, host, facts, families, links)
}
