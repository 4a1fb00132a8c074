"""No test needs a package that a user need not have, unless its mark says so (tests/support/peers.py)."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest

from tests.support.peers import refused

try:
    import torch  # noqa: F401
except pytest.fail.Exception as failure:
    AT_COLLECTION = str(failure)
else:
    AT_COLLECTION = "imported"

SAYS = r"imports torch, .* marked peer\('torch'\)"


def test_no_test_module_imports_a_peer():
    assert AT_COLLECTION.startswith("imports torch, ")


def test_a_test_without_the_mark_imports_no_peer():
    with pytest.raises(pytest.fail.Exception, match=SAYS):
        import torch.nn.functional  # noqa: F401


@pytest.mark.parametrize("ask", [pytest.importorskip, find_spec])
def test_nor_does_it_ask_for_one(ask):
    with pytest.raises(pytest.fail.Exception, match=SAYS):
        ask("torch")


def test_an_installed_package_finds_none():
    """As scikit-learn looks for pandas, and works without it."""
    with pytest.raises(ModuleNotFoundError, match="No module named 'pandas'"):
        exec(compile("import pandas", "lib/site-packages/other/optional.py", "exec"))


def test_one_that_was_imported_comes_back(monkeypatch):
    mine = object()
    monkeypatch.setitem(sys.modules, "torch", mine)
    with refused():
        assert "torch" not in sys.modules
    assert sys.modules["torch"] is mine
