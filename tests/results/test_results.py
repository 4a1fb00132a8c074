"""The family of results: one word, one thing, wherever it stands."""

import inspect
from typing import get_args

import pytest
from pydantic import ValidationError

from minidnn.report.results_page import _inner, results_page
from minidnn.results import VERSION, Record, documents
from minidnn.results.policies import SavedPlan
from minidnn.results.words import WORDS, meaning
from minidnn_papers import records

DOCUMENTS = {**documents.DOCUMENTS, **records.DOCUMENTS}
MODELS = [*DOCUMENTS.values(), *{inner for model in DOCUMENTS.values() for inner in _inner(model)}]
NUMBERS = {"int", "float", "dict[str, int]"}
PER = {"price", "drag_out", "drag_in", "net_drag"}  # seconds for each byte, or for each second


def annotation(model: type[Record], name: str) -> str:
    """The type of a field without its None, as text."""
    kind = model.model_fields[name].annotation
    parts = [one for one in get_args(kind) if one is not type(None)] if type(None) in get_args(kind) else [kind]
    return " | ".join(inspect.formatannotation(one) for one in parts)


def test_each_word_has_a_meaning_and_no_meaning_is_idle():
    """It stands beside the field, or in the table where several records have the name."""
    beside, shared = {}, set()
    for model in MODELS:
        for name, field in model.model_fields.items():
            if field.description is None:
                shared.add(name)
            else:
                beside.setdefault(name, set()).add(field.description)
    assert shared == set(WORDS) and not shared & set(beside)
    assert all(len(meanings) == 1 for meanings in beside.values())


def test_a_word_has_one_type():
    types: dict[str, set[str]] = {}
    for model in MODELS:
        for name in model.model_fields:
            types.setdefault(name, set()).add(annotation(model, name))
    several = {name for name, found in types.items() if len(found) > 1}
    assert several == {"kind", "rows"}


def test_units_are_in_the_names():
    for model in MODELS:
        for name in model.model_fields:
            kind, words = annotation(model, name), meaning(model, name)
            if name.endswith(("_bytes", "_seconds")):
                assert kind in NUMBERS, name
            if words.startswith("bytes ") and not words.startswith("bytes per second"):
                assert name.endswith("_bytes"), name
            if words.startswith("seconds "):
                assert "_seconds" in name or name in PER, name


def test_a_document_says_its_version_and_kind_and_reads_as_a_mapping():
    saved = SavedPlan(file="a.plan", policy="best", peak_bytes=3)
    assert saved.plain() == dict(saved) == {
        "version": VERSION, "kind": "saved_plan", "file": "a.plan", "policy": "best", "peak_bytes": 3,
    }  # fmt: skip
    assert saved["peak_bytes"] == saved.peak_bytes == 3 and saved.get("nothing") is None and len(saved) == 5
    with pytest.raises(KeyError, match="model_fields"):
        saved["model_fields"]
    with pytest.raises(ValidationError):
        SavedPlan(file="a.plan", policy="best", peak_bytes=3, other=1)
    with pytest.raises(ValidationError):
        saved.peak_bytes = 4


def test_the_page_has_every_document_and_every_word():
    page = results_page(DOCUMENTS)
    assert all(f"\n## {kind}\n" in page for kind in DOCUMENTS)
    assert all(
        f"| `{name}` |" in page for model in MODELS for name in model.model_fields if name not in ("version", "kind")
    )
