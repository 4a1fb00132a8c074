"""Protobuf's text format, Caffe's .prototxt: to a Document whose fields have their places, and back to text.

The text has no types of its own: the schema decides whether a field is repeated, and whether it takes a word or a text
in quotes. So a text is first read as entries, and these become plain values by the table of the schema. As in protobuf,
a text without quotes is refused where a string is expected, and so are quotes around an enum's word. protobuf's own
parser stops at the first error, and gives no places of those that it reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from pydantic import BaseModel

from minidnn.schema.caffe import NetParameter
from minidnn.schema.document import DEPTH, Document, InvalidFile, Mark, Path_, quote
from minidnn.schema.solver import SolverParameter
from minidnn.schema.table import FieldType, fields

DIGITS = 100  # of a number at most
_TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\r\n\f\v]+|\#[^\n]*)+)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>-?(?:0[xX][0-9a-fA-F]+|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?[fF]?)(?![A-Za-z0-9_.]))
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<mark>[{}<>\[\]:;,-])""",
    re.VERBOSE,
)
_BYTE = re.compile("[\udc80-\udcff]")  # a byte that is no UTF-8, as `surrogateescape` gives it
_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|[xX](?P<hex>[0-9a-fA-F]{1,2})"
    r"|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8})|(?P<one>[abfnrtv\\'\"?]))"
)
_ONE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_CLOSES = {"{": "}", "<": ">"}
_TRUE, _FALSE = ("true", "True", "t"), ("false", "False", "f")


@dataclass(frozen=True)
class Token:
    kind: str  # word, number, text, mark; "end" after the last one
    text: str
    at: int  # its first character in the text


@dataclass(frozen=True)
class Value:
    """A scalar as the text has it: a word, a number or a text (in quotes)."""

    kind: str
    value: Any
    mark: Mark


@dataclass(frozen=True)
class Block:
    entries: list[Entry]
    mark: Mark


@dataclass(frozen=True)
class Entry:
    """`name: value`, or one value of `name: [value, ...]`."""

    name: str
    mark: Mark
    value: Value | Block


def parse(text: str, source: str) -> Document:
    """The document of a net's or a solver's text; `source` is its name in errors.

    Raises InvalidFile for a bad syntax. A field given twice, and a value of a wrong form, become errors of the
    document."""
    document = Document(None, source)
    entries = _Parser(text, source).entries("", 0)
    names = [entry.name for entry in entries]
    known = {model: sum(name in fields(model) for name in names) for model in (NetParameter, SolverParameter)}
    document.marks[()] = (1, 1)
    document.data = _values(document, entries, max(known, key=lambda model: known[model]), ())
    return document


# -- from text to entries ------------------------------------------------------------------------------------


class _Parser:
    def __init__(self, text: str, source: str) -> None:
        self.text, self.source = text, source
        self._tokens = self._scanned()
        self._last = (0, 0, 0)  # the place that was found last: its line, from 0, the line's first character, itself
        self.next = next(self._tokens)

    def _scanned(self) -> Iterator[Token]:
        at = 1 if self.text.startswith("\ufeff") else 0
        while at < len(self.text):
            result = _TOKEN.match(self.text, at)
            if result is None:
                self._strange(at)
            assert result.lastgroup is not None
            if result.lastgroup != "space":
                if (byte := _BYTE.search(result[0])) is not None:
                    self._no_text(at + byte.start())
                yield Token(result.lastgroup, result[0], at)
            at = result.end()
        yield Token("end", "", at)

    def _no_text(self, at: int) -> NoReturn:
        line, column = self.mark(at)
        byte = ord(self.text[at]) - 0xDC00
        raise InvalidFile([f"{self.source}:{line}:{column}: expected UTF-8 text, got byte {byte:#x}"])

    def _strange(self, at: int) -> NoReturn:
        character = self.text[at]
        if _BYTE.match(character):
            self._no_text(at)
        if character in "\"'":
            self.fail(at, "a text that does not end on its line")
        if character.isdigit() or character == ".":
            self.fail(at, f"{quote(self.text[at : at + 20].split()[0])} is not a number")
        self.fail(at, f"the character {character!r} is not allowed here")

    def mark(self, at: int) -> Mark:
        """Line and column; the places that are asked for mostly ascend."""
        line, begin, last = self._last
        if at < last:
            line, begin, last = 0, 0, 0
        line += self.text.count("\n", last, at)
        begin = max(begin, self.text.rfind("\n", last, at) + 1)
        self._last = line, begin, at
        return line + 1, at - begin + 1

    def fail(self, at: int, what: str) -> NoReturn:
        line, column = self.mark(at)
        raise InvalidFile([f"{self.source}:{line}:{column}: not valid prototxt: {what}"])

    def take(self) -> Token:
        token = self.next
        if token.kind != "end":
            self.next = next(self._tokens)
        return token

    def took(self, *marks: str) -> str:
        """The next token if it is one of these marks, else an empty text."""
        return self.take().text if self.next.kind == "mark" and self.next.text in marks else ""

    def fail_expected(self, what: str) -> NoReturn:
        got = "the end of the file" if self.next.kind == "end" else quote(self.next.text)
        self.fail(self.next.at, f"expected {what}, got {got}")

    def entries(self, close: str, depth: int) -> list[Entry]:
        """The fields up to the mark that closes their message; an empty one stands for the file's end."""
        if depth > DEPTH:
            self.fail(self.next.at, f"messages are nested too deeply: more than {DEPTH}")
        result: list[Entry] = []
        while not (self.next.kind == "end" and not close):
            if close and self.took(close):
                return result
            if self.next.kind != "word":
                self.fail_expected(f"a field's name or {close!r}" if close else "a field's name")
            name = self.take()
            at = self.mark(name.at)
            colon = self.took(":")
            if self.took("["):
                if not colon:
                    self.fail(name.at, f"expected ':' after {name.text} and before its list")
                result += [Entry(name.text, at, value) for value in self.listed(depth)]
            elif not colon and self.next.text not in _CLOSES:
                self.fail_expected(f"':' or '{{' after {name.text}")
            else:
                result.append(Entry(name.text, at, self.value(depth)))
            self.took(",", ";")
        return result

    def listed(self, depth: int) -> Iterator[Value | Block]:
        if self.took("]"):
            return
        while True:
            yield self.value(depth)
            if self.took("]"):
                return
            if not self.took(","):
                self.fail_expected("',' or ']'")

    def value(self, depth: int) -> Value | Block:
        at = self.next.at
        mark = self.mark(at)
        if opening := self.took(*_CLOSES):
            return Block(self.entries(_CLOSES[opening], depth + 1), mark)
        if self.next.kind == "text":
            return Value("text", self.joined(), mark)
        minus = self.took("-")
        token = self.next
        if token.kind == "number" and not (minus and token.text.startswith("-")):
            return Value("number", self.number(self.take(), minus), mark)
        if token.kind == "word":
            word = self.take().text
            if not minus:
                return Value("word", word, mark)
            if (number := _not_finite(word)) is not None:
                return Value("number", -number, mark)
        self.fail_expected("a value")

    def number(self, token: Token, minus: str) -> int | float:
        text = minus + token.text
        if len(text) > DIGITS:
            self.fail(token.at, f"a number of {len(text)} characters")
        digits = text.lstrip("-").lower()
        sign = -1 if text.startswith("-") else 1
        if digits.startswith("0x"):
            return sign * int(digits, 16)
        if digits.isdigit():
            if digits.startswith("0") and not set(digits) <= set("01234567"):
                self.fail(token.at, f"{quote(text)} begins with 0, so it is octal, and has other digits than 0 to 7")
            return sign * int(digits, 8 if digits.startswith("0") else 10)
        return sign * float(digits.removesuffix("f"))

    def joined(self) -> str:
        """Texts that stand side by side, as one; escapes stand for bytes, which together are UTF-8."""
        at, parts = self.next.at, b""
        while self.next.kind == "text":
            token = self.take()
            parts += self.unescaped(token.text[1:-1], token.at + 1)
        try:
            text = parts.decode("utf-8")
        except UnicodeDecodeError as error:
            self.fail(at, f"a text that is not UTF-8: {error.reason}")
        if "\0" in text:
            self.fail(at, "the character '\\x00' is not allowed in a text")
        return text

    def unescaped(self, text: str, at: int) -> bytes:
        done, result = 0, b""
        while (slash := text.find("\\", done)) >= 0:
            escape = _ESCAPE.match(text, slash)
            if escape is None:
                self.fail(at + slash, f"the escape {quote(text[slash : slash + 2])} does not exist")
            result += text[done:slash].encode("utf-8", "surrogatepass") + self.escaped(escape, at + slash)
            done = escape.end()
        return result + text[done:].encode("utf-8", "surrogatepass")

    def escaped(self, escape: re.Match[str], at: int) -> bytes:
        if escape["one"]:
            return _ONE.get(escape["one"], escape["one"]).encode()
        if escape["octal"] or escape["hex"]:
            number = int(escape["octal"], 8) if escape["octal"] else int(escape["hex"], 16)
            if number > 255:
                self.fail(at, f"the escape {quote(escape[0])} is not a byte")
            return bytes([number])
        number = int(escape["short"] or escape["long"], 16)
        if number > 0x10FFFF or 0xD800 <= number < 0xE000:
            self.fail(at, f"the escape {quote(escape[0])} is not a character")
        return chr(number).encode()


def _not_finite(word: str) -> float | None:
    return {"inf": float("inf"), "infinity": float("inf"), "nan": float("nan")}.get(word.lower())


# -- from entries to values ----------------------------------------------------------------------------------


def _values(document: Document, entries: list[Entry], model: type[BaseModel] | None, path: Path_) -> dict[str, Any]:
    """The plain values of a message's fields; of fields that the schema does not know, as they seem to be meant."""
    counts: dict[str, int] = {}
    for entry in entries:
        counts[entry.name] = counts.get(entry.name, 0) + 1
    result: dict[str, Any] = {}
    first: dict[str, int] = {}
    for entry in entries:
        known = fields(model).get(entry.name) if model else None
        at: Path_ = (*path, entry.name)
        value: Path_ = (*at, "=")
        several = known.repeated if known else counts[entry.name] > 1
        if entry.name in first and not several:
            document.error_at(entry.mark, at, f"given twice; first on line {first[entry.name]}")
            continue
        if entry.name not in first:
            first[entry.name] = entry.mark[0]
            document.marks[at] = entry.mark
            document.marks[value] = entry.value.mark
        if not several:
            result[entry.name] = _value(document, entry, known, at)
            continue
        made = result.setdefault(entry.name, [])
        item: Path_ = (*at, len(made))
        document.marks[item] = entry.mark if isinstance(entry.value, Block) else entry.value.mark
        made.append(_value(document, entry, known, item))
    return result


def _value(document: Document, entry: Entry, field_type: FieldType | None, at: Path_) -> Any:
    value = entry.value
    if isinstance(value, Block):
        return _values(document, value.entries, field_type.model if field_type else None, at)
    kind = field_type.kind if field_type else None
    if value.kind == "text":
        if kind == "enum":
            document.error(at, f"expected a word without quotes, got the text {quote(value.value)}")
        return value.value
    if value.kind == "number":
        if kind == "bool" and value.value in (0, 1):
            return bool(value.value)
        if field_type and kind == "enum" and isinstance(value.value, int):
            index = value.value - field_type.first
            return field_type.words[index] if 0 <= index < len(field_type.words) else value.value
        return value.value
    word = value.value
    if kind == "string":
        document.error(at, f"expected a text in quotes, got the word {word}")
    elif kind in ("bool", None) and word in _TRUE + _FALSE[:2]:
        return word in _TRUE
    elif kind == "bool" and word == "f":
        return False
    elif kind == "float" and (number := _not_finite(word)) is not None:
        return number
    return word


# -- from messages to text -----------------------------------------------------------------------------------


def dump(message: BaseModel) -> str:
    """The text of a message: the fields that were given, in the order of the schema."""
    return "".join(f"{line}\n" for line in _lines(message))


def _lines(message: BaseModel) -> Iterator[str]:
    known = fields(type(message))
    order = {name: i for i, name in enumerate(known)}
    for name in sorted(message.model_fields_set, key=lambda name: (order.get(name, len(order)), name)):
        value = getattr(message, name)
        for item in value if isinstance(value, list | tuple) else () if value is None else (value,):
            if isinstance(item, BaseModel):
                yield f"{name} {{"
                yield from (f"  {line}" for line in _lines(item))
                yield "}"
            else:
                yield f"{name}: {_text(item, name in known and known[name].kind == 'enum')}"


def _text(value: Any, word: bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value if word else '"' + "".join(map(_quoted, value)) + '"'
    return repr(value)


def _quoted(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogatepass"))
