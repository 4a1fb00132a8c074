"""Files that are meant to do harm, or were typed badly: each is refused with its place, in little time and memory."""

from __future__ import annotations

import pytest

from minidnn.schema.document import DEPTH, LISTED, VALUES, InvalidFile
from minidnn.schema.yaml import dump, parse

PAIRS = list(zip("abcdefgh", "bcdefghi", strict=True))
BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
BOMB += "".join(f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in PAIRS)
MERGES = "a: &a {k: 1}\n"
MERGES += "".join(f"{new}: &{new} {{<<: [{', '.join([f'*{old}'] * 9)}]}}\n" for old, new in PAIRS)


@pytest.mark.parametrize("text", [BOMB, MERGES])
def test_aliases_that_repeat_each_other_are_refused_at_once(text):
    """Written out, the first would hold 9^9 numbers."""
    with pytest.raises(InvalidFile, match=r"^a.yaml:\d+:\d+: aliases repeat so much that .* more than \d+ values$"):
        parse(text, "a.yaml")


@pytest.mark.parametrize("brackets", ["[", "{a: ", "[{a: ", "- "])
def test_what_is_nested_deeply_is_refused_before_the_parser_reads_the_rest(brackets):
    """Its time grows with the square of the depth: 2000 brackets took ten seconds."""
    with pytest.raises(InvalidFile, match=rf"^a.yaml:2:\d+: not valid YAML: lists or .* deeply: more than {DEPTH}$"):
        parse(f"# c\n{brackets * 100_000}", "a.yaml")


def test_brackets_may_be_nested_to_a_depth():
    data = parse("a: " + "[" * (DEPTH - 1) + "]" * (DEPTH - 1), "a.yaml").data
    assert len(str(data["a"])) == 2 * (DEPTH - 1)


@pytest.mark.parametrize(
    "text", ["\x85", "a\u2028b", "? a", "?", "\x1b[2J", "\ufeff", "a\nb", "null", "- a", "yes", "1e5", ""]
)
def test_texts_are_the_same_once_they_were_written(text):
    data = {"name": text, text: [[text], {text: {text: [text]}}]}
    assert parse(dump(data), "a.yaml").data == data


def test_aliases_that_share_parameters_are_fine():
    text = "shared: &p {lr_mult: 1, decay_mult: 0}\n" + "".join(f"l{k}: [*p, *p]\n" for k in range(500))
    document = parse(text, "a.yaml")
    assert document.data["l499"] == [{"lr_mult": 1, "decay_mult": 0}] * 2 and VALUES * len(text) > 3500


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: !!int foo", "a.yaml:1:4: a: expected a number, as the tag .*int says, got 'foo'"),
        ("a: !!int ''", "a.yaml:1:4: a: expected a number"),
        ("a: !!float foo", "a.yaml:1:4: a: expected a number"),
        ("a: !!float ''", "a.yaml:1:4: a: expected a number"),
        ("a: !!int 0x_", "a.yaml:1:4: a: expected a number"),
        (r'a: "\UFFFFFFFF"', "a.yaml: not valid YAML: "),
        (r'a: "\U00110000"', "a.yaml: not valid YAML: "),
        (r'a: "\uD800"', "a.yaml:1:4: a: the character '.ud800' is not allowed in it"),
        ("%YAML 1.9\n---\na: 1", "a.yaml:1:1: YAML 1.9; minidnn reads YAML 1.2"),
        ("# c\n%YAML 1.1\n---\na: yes", "a.yaml:2:1: YAML 1.1; minidnn reads YAML 1.2"),
    ],
)
def test_what_the_parser_cannot_read_is_the_file_s_error(text, says):
    with pytest.raises(InvalidFile, match=says):
        parse(text, "a.yaml").check()


def test_words_that_look_like_directives_are_words():
    assert parse("%YAML 1.2\n---\na: 'on'\n", "a.yaml").data == {"a": "on"}
    assert parse("a: |\n  %YAML 1.1\n", "a.yaml").data == {"a": "%YAML 1.1\n"}


def test_anchors_of_one_name_count_from_where_they_are(recwarn):
    assert parse("a: &x 1\nb: *x\nc: &x 2\nd: *x\n", "a.yaml").data == {"a": 1, "b": 1, "c": 2, "d": 2}
    assert not recwarn.list


def test_errors_are_listed_up_to_a_number():
    document = parse("a: 1\n" * (LISTED + 11), "a.yaml")
    with pytest.raises(InvalidFile) as found:
        document.check()
    assert len(found.value.errors) == LISTED + 1 and found.value.errors[-1] == "and 10 more errors"
