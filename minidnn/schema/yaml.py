"""YAML 1.2 as a Document: 1e-4 is a number, `on` and `NO` are words; a file that asks for another version is refused.

Syntax errors and keys given twice are reported like all other errors of a file: with line and column, and all at once
where possible.

Files are not trusted. An alias is read anew at each place that names it, so a few bytes could stand for billions of
values: a file may hold no more than VALUES for each of its bytes. The parser's time grows with the square of the depth
to which lists and mappings are nested: no more than DEPTH of them.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from minidnn.schema.document import DEPTH, Document, InvalidFile, Mark, Path_, quote

_VERSION = re.compile(r"^%YAML[ \t]+(\S+)", re.MULTILINE)
_BEGIN = re.compile(r"^---(\s|$)", re.MULTILINE)  # of a document: no directive comes after it


def parse(text: str, source: str) -> Document:
    """The document of a YAML text; `source` is its name in errors.

    Raises InvalidFile for bad YAML. Keys given twice become errors of the document."""
    from ruamel.yaml.error import MarkedYAMLError
    from ruamel.yaml.reader import ReaderError

    document = Document(None, source)
    document.bound(len(text))
    begin = _BEGIN.search(text)
    directive = _VERSION.search(text[: begin.start()] if begin else "")
    if directive and directive[1] != "1.2":
        line = text[: directive.start()].count("\n") + 1
        raise InvalidFile([f"{source}:{line}:1: YAML {directive[1]}; minidnn reads YAML 1.2: leave the directive out"])
    try:
        node = _composed(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
        context = f" ({error.context})" if error.context else ""
        raise InvalidFile([f"{where}: not valid YAML: {error.problem or error.context}{context}"]) from None
    except ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, error.position - (before.rfind("\n") + 1) + 1
        what = f"the character {chr(error.character)!r} is not allowed in it"
        raise InvalidFile([f"{source}:{line}:{column}: not valid YAML: {what}"]) from None
    except RecursionError:
        raise InvalidFile([f"{source}: not valid YAML: lists or mappings are nested too deeply"]) from None
    except (ValueError, OverflowError, AssertionError, LookupError, TypeError, AttributeError) as error:
        # The parser's own slips, as on the character "\UFFFFFFFF": whatever it raises, the file is to blame.
        raise InvalidFile([f"{source}: not valid YAML: {error or type(error).__name__}"]) from None
    if node is not None:
        document.data = _value(node, (), document, frozenset())
    return document


@lru_cache(maxsize=16)
def _composed(text: str) -> Any:
    """The nodes of a YAML text; nobody changes them. A study reads the same few nets many times, and ResNet-152's text
    alone takes a second."""
    from ruamel.yaml import YAML
    from ruamel.yaml.scanner import Scanner, ScannerError

    class Shallow(Scanner):
        """Refuses brackets and indented lines that are nested too deeply as soon as it sees them."""

        def fetch_flow_collection_start(self, token: Any, to_push: str) -> None:
            self._deeper()
            super().fetch_flow_collection_start(token, to_push)

        def add_indent(self, column: int) -> bool:
            self._deeper()
            return super().add_indent(column)

        def _deeper(self) -> None:
            if self.flow_level + len(self.indents) > DEPTH:
                what = f"lists or mappings are nested too deeply: more than {DEPTH}"
                raise ScannerError(None, None, what, self.reader.get_mark())

    yaml = YAML(typ="safe", pure=True)
    yaml.Scanner = Shallow
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an anchor of one name may be given twice: the last one counts
        return yaml.compose(text)


def dump(data: Any) -> str:
    """The YAML text of plain values: each layer's messages on one line, layers one below another."""
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap, CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    def styled(value: Any, depth: int) -> Any:
        if isinstance(value, Mapping):
            made: Any = CommentedMap((styled(k, depth), styled(v, depth + 1)) for k, v in value.items())
        elif isinstance(value, list | tuple):
            made = CommentedSeq(styled(v, depth + 1) for v in value)
        elif isinstance(value, str) and (not value.isprintable() or value.startswith("?")):
            # Unicode's line breaks would be read as spaces, and "? a" within brackets as a key.
            return DoubleQuotedScalarString(value)
        else:
            return value
        if depth >= 3:  # inside a layer
            made.fa.set_flow_style()
        return made

    yaml = YAML(typ="rt", pure=True)
    yaml.width = 110
    yaml.brace_single_entry_mapping_in_flow_sequence = True
    yaml.indent(mapping=2, sequence=2, offset=0)
    stream = io.StringIO()
    yaml.dump(styled(data, 0), stream)
    return stream.getvalue()


# -- from nodes to values ------------------------------------------------------------------------------------


def _value(node: Any, path: Path_, document: Document, above: frozenset[int]) -> Any:
    document.marks[path] = mark = (node.start_mark.line + 1, node.start_mark.column + 1)
    document.entered(mark)
    if id(node) in above:
        document.error(path, "an alias that contains itself")
        return None
    above |= {id(node)}
    if node.id == "mapping":
        return _mapping(node, path, document, above)
    if node.id == "sequence":
        return [_value(item, (*path, i), document, above) for i, item in enumerate(node.value)]
    return _scalar(node, path, document)


def _mapping(node: Any, path: Path_, document: Document, above: frozenset[int]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    first: dict[str, Mark] = {}
    for key_node, value_node in node.value:
        here = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
        if key_node.id == "scalar" and str(key_node.tag).endswith(":merge"):
            mine = document.marks[path]
            for part in value_node.value if value_node.id == "sequence" else [value_node]:
                found = _value(part, path, document, above)
                if isinstance(found, dict):
                    merged = {**found, **merged}
                else:
                    document.error(path, f"expected a mapping to merge, got {quote(found)}")
            document.marks[path] = mine
            continue
        if key_node.id != "scalar":
            document.error_at(here, path, "expected a field's name, got a list or mapping")
            continue
        key = str(key_node.value)
        field: Path_ = (*path, key)
        if key in first:
            document.error_at(here, field, f"given twice; first on line {first[key][0]}")
            continue
        first[key] = here
        result[key] = _value(value_node, field, document, above)
        value: Path_ = (*field, "=")
        document.marks[value] = document.marks[field]
        document.marks[field] = here  # the mark of a field is the place of its name
    return {**merged, **result}


_INT = re.compile(r"[-+]?[0-9]+")


def _scalar(node: Any, path: Path_, document: Document) -> Any:
    tag, text = str(node.tag).rsplit(":", 1)[-1], str(node.value)
    if tag == "null":
        return None
    if tag == "bool":
        return text.lower() == "true"
    try:
        if tag == "int" and len(text) <= 100:
            return int(text) if _INT.fullmatch(text) else int(text.replace("_", ""), 0)
        if tag == "float":
            lower = text.lower()
            return float(lower.replace(".", "") if lower.endswith((".inf", ".nan")) else text.replace("_", ""))
    except ValueError:  # the tag was given by hand: !!int foo
        document.error(path, f"expected a number, as the tag {node.tag} says, got {quote(text)}")
        return None
    if tag in ("str", "timestamp"):
        # YAML permits "\0" and "\uD800" in double quotes, but a file's name cannot hold them, nor can UTF-8 the second.
        if bad := next((c for c in text if c == "\0" or "\ud800" <= c <= "\udfff"), None):
            document.error(path, f"the character {bad!r} is not allowed in it")
        return text
    what = f"the tag {node.tag}" if len(text) <= 100 else f"a number of {len(text)} characters"
    document.error(path, f"expected a plain value, got {what}")
    return None
