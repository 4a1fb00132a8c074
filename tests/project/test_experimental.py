"""What minidnn.torch takes of PyTorch beside its documented interface is in one file, minidnn/torch/experimental.py."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

FOLDER = ROOT / "minidnn" / "torch"
HOME = FOLDER / "experimental.py"
MODULES = re.compile(r"(torch\.)?(_C|_subclasses|_ops|fx\.experimental|utils\.(_python_dispatch|_pytree|weak))\b")
PRIVATE = re.compile(r"_[a-zA-Z]\w*|fake_mode|flop_registry|kineto_results")
PYTHONS = {"_replace", "_asdict", "_getframe"}  # of Python's own that begin so
OPERATORS = re.compile(r"\b(aten|ops)\b")  # whose names are no interface but a table's


def own_names(files: list[Path]) -> set[str]:
    """What these files define, or set as attributes."""
    found = set()
    for node in (node for file in files for node in ast.walk(ast.parse(file.read_text()))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return found


def taken(source: str, own: set[str]) -> Iterator[str]:
    """PyTorch's private and experimental names in a file: of modules, and of attributes."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{one.name}" for one in node.names]
            private = [one.name for one in node.names if PRIVATE.fullmatch(one.name)]
            yield from (f"{node.lineno}: {name}" for name in private if (node.module or "").startswith("torch"))
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
            others = PRIVATE.fullmatch(node.attr) and node.attr not in own | PYTHONS
            if others and not OPERATORS.search(ast.unparse(node.value)):
                yield f"{node.lineno}: {node.attr}"
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("torch_module", "getattr", "hasattr"):
            texts = [x.value for x in node.args if isinstance(x, ast.Constant) and isinstance(x.value, str)]
            yield from (f"{node.lineno}: {x}" for x in texts if PRIVATE.fullmatch(x) and x not in own | PYTHONS)
            names = texts
        yield from (f"{node.lineno}: {name}" for name in names if MODULES.match(name))


FILES = sorted(FOLDER.rglob("*.py"))


def test_one_file_names_what_is_experimental():
    own = own_names([file for file in FILES if file != HOME])
    found = {str(file.relative_to(ROOT)): list(taken(file.read_text(), own)) for file in FILES}
    assert found.pop(str(HOME.relative_to(ROOT)))
    assert {file: names for file, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "line",
    [
        "import torch._C",
        "from torch._subclasses.fake_tensor import FakeTensor",
        "from torch.utils import _pytree",
        "from torch.fx.experimental import proxy_tensor",
        "from torch.autograd import _profiler_enabled",
        "leaves = torch.utils._pytree.tree_leaves",
        "trees = torch_module('utils._pytree')",
        "at = x.untyped_storage()._cdata",
        "schema = getattr(op, '_schema', None)",
        "hasattr(x, 'fake_mode')",
    ],
)
def test_what_is_experimental_is_found(line):
    assert list(taken(line, set()))


@pytest.mark.parametrize(
    "line", ["x._own = 1", "torch.ops.aten._softmax", "layout._replace(offset=0)", "from minidnn.a import _b"]
)
def test_what_is_not_is_left_alone(line):
    assert list(taken(line, {"_own"})) == []
