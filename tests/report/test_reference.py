"""The pages of layers and solvers and the JSON Schemas say what the schema's table says, and are what docs/ has."""

from __future__ import annotations

import json

import pytest

from minidnn import zoo
from minidnn.layers import LAYERS
from minidnn.report.reference import files, json_schema, layers_page
from minidnn.schema import NetParameter, SolverParameter, read
from minidnn.schema.refused import TYPES_NOT_DONE
from tests.support.paths import ROOT

TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": int | float, "boolean": bool}
NET, SOLVER = json_schema(NetParameter), json_schema(SolverParameter)


def problems(value, schema, root, at="") -> list[str]:
    """What JSON Schema has against the value, of those of its words that ours use."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return problems(value, root["$defs"][name], root, at)
    if "anyOf" in schema:
        each = [problems(value, part, root, at) for part in schema["anyOf"]]
        return [] if [] in each else each[-1] if isinstance(value, list) else each[0]
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{at}: {value!r} is none of {schema['enum']}"]
    kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    if not any(isinstance(value, TYPES[k]) and (k == "boolean" or not isinstance(value, bool)) for k in kinds):
        return [f"{at}: {value!r} is no {' or '.join(kinds)}"]
    if isinstance(value, dict):
        found = [f"{at}: no {name}" for name in schema["required"] if name not in value]
        for name, inner in value.items():
            known = schema["properties"].get(name)
            found += problems(inner, known, root, f"{at}.{name}") if known else [f"{at}: what is {name}?"]
        return found
    if isinstance(value, list):
        return [p for i, item in enumerate(value) for p in problems(item, schema["items"], root, f"{at}[{i}]")]
    low, high = schema.get("minimum"), schema.get("maximum")
    wrong = not isinstance(value, str) and ((low is not None and value < low) or (high is not None and value > high))
    return [f"{at}: {value} is out of range"] if wrong else []


@pytest.mark.parametrize("name", ["net.schema.json", "solver.schema.json", "layers.md", "solver.md"])
def test_docs_have_what_make_reference_writes(name):
    assert (ROOT / "docs" / name).read_text() == files()[name], "make reference"


@pytest.mark.parametrize("name", zoo.names())
def test_our_files_are_valid(name):
    schema = SOLVER if name.endswith("_solver") else NET
    assert problems(read(zoo.folder() / f"{name}.yaml").data, schema, schema) == []


@pytest.mark.parametrize(
    ("schema", "data", "expected"),
    [
        (NET, {"layer": [{"name": "a", "type": "ReLU", "bottm": "x"}]}, ".layer[0]: what is bottm?"),
        (NET, {"layer": {"type": "ReLU"}}, ".layer: no name"),
        (NET, {"layer": [{"name": "a", "type": "ReLU", "pooling_param": {"pool": "MIN"}}]}, "'MIN' is none of"),
        (NET, {"layers": []}, "what is layers?"),
        (SOLVER, {"base_lr": 0.1, "lr_policy": "stp"}, "'stp' is none of"),
        (SOLVER, {"base_lr": True, "lr_policy": "fixed"}, "True is no number"),
        (SOLVER, {"base_lr": 1, "lr_policy": "fixed", "iter_size": 0}, ".iter_size: 0 is out of range"),
    ],
)
def test_mistakes_are_found(schema, data, expected):
    assert any(expected in problem for problem in problems(data, schema, schema))


def test_sizes_may_be_texts():
    for budget in (2**20, "12GiB"):
        data = {"base_lr": 1, "lr_policy": "fixed", "minidnn": {"budget": budget}}
        assert problems(data, SOLVER, SOLVER) == []


def test_the_page_has_every_layer_and_every_refused_one():
    lines = layers_page().splitlines()
    assert all(f"## {name}" in lines or f"## {name} \\*" in lines for name in LAYERS)
    assert all(any(line.startswith(f"| {name} |") for line in lines) for name in TYPES_NOT_DONE)
    text = "\n".join(lines)
    assert "| `kernel_size` | repeated int, at least 1 |  |" in text and "read, but not obeyed" in text
    assert "concat_dim" not in text, "a form of old files"


def test_what_editors_read_is_json():
    for name, text in files().items():
        if name.endswith(".json"):
            json.loads(text)
