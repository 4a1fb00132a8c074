"""The directive `commands`: a section for each verb of the command line, from its own parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from sphinx.util.docutils import SphinxDirective

from minidnn.cli.help import Formatter
from minidnn.cli.main import _parser
from minidnn.cli.verbs import VERBS

WIDTH = 100  # characters of a line of usage


def verb_parser(verb: str) -> argparse.ArgumentParser:
    """The parser of a verb."""
    (verbs,) = (action.choices for action in _parser([verb])._actions if isinstance(action.choices, dict))
    return verbs[verb]


def page() -> str:
    """The Markdown of all verbs."""
    return "\n".join(line for verb in VERBS for line in _section(verb, verb_parser(verb)))


def _section(verb: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    parser.formatter_class = lambda prog: Formatter(prog, width=WIDTH)
    yield f"## {verb}\n\n{parser.description}\n"
    yield f"```text\n{parser.format_usage().strip()}\n```\n"
    for group in parser._action_groups:
        told = [(_named(action), _help(parser, action)) for action in group._group_actions]
        if shown := [(name, text) for name, text in told if text]:
            yield "| | |\n|---|---|"
            yield from (f"| {name} | {text} |" for name, text in shown)
            yield ""
        if group.description:
            formatter = Formatter(parser.prog, width=WIDTH)
            formatter.add_text(group.description)
            yield f"```text\n{formatter.format_help().rstrip()}\n```\n"
    if parser.epilog:
        yield f"```text\n{parser.epilog.strip()}\n```\n"


def _named(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    value = f" {Formatter('minidnn')._format_args(action, action.dest.upper())}" if action.nargs != 0 else ""
    return "<br>".join(f"`{flag}{value}`" for flag in action.option_strings)


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    if not action.help or action.help == argparse.SUPPRESS:
        return ""
    text = " ".join(Formatter(parser.prog)._expand_help(action).split())
    for character in "\\|*<[":
        text = text.replace(character, f"\\{character}")
    return text


class Commands(SphinxDirective):
    def run(self) -> list[Any]:
        self.env.note_reread()  # the parsers are no file of docs/
        return self.parse_text_to_nodes(page(), allow_section_headings=True)


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True}
