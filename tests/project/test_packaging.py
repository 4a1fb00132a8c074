"""What an installation must keep: light imports, data files, one version, a command that starts fast."""

from __future__ import annotations

import ast
import configparser
import subprocess
import sys
from pathlib import Path

import pytest

import minidnn
from tests.support.paths import ROOT

HEAVY = "cupy numba torch pydantic ruamel rich sklearn safetensors"


def modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print('\\n'.join(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_importing_minidnn_imports_nothing_heavy():
    loaded = modules_after("import minidnn")
    assert not {name.split(".")[0] for name in loaded} & set(HEAVY.split())
    assert not [name for name in loaded if name.startswith("minidnn.backends")]


def test_planning_imports_no_kernels():
    loaded = modules_after(
        "import minidnn.programs.autodiff, minidnn.memory.planning, minidnn.memory.execution.simulator, minidnn.zoo"
    )
    assert not {name.split(".")[0] for name in loaded} & {"cupy", "torch", "sklearn", "rich"}
    assert not [name for name in loaded if name.startswith("minidnn.backends")]


def test_what_type_checkers_see_is_what_there_is():
    """The names that `import minidnn` offers, each from the module that it is loaded from."""
    checked = next(n for n in ast.parse(Path(minidnn.__file__).read_text()).body if isinstance(n, ast.If))
    seen = {name.name: node.module for node in checked.body for name in node.names}
    assert seen == {name: f"minidnn.{module}" for name, module in minidnn._EXPORTS.items()}
    for name in minidnn._EXPORTS:
        assert getattr(minidnn, name) is not None and name in dir(minidnn)


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["plan", "--help"]])
def test_the_command_answers_without_the_framework(words):
    done = subprocess.run([sys.executable, "-m", "minidnn", *words], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout


@pytest.fixture(scope="module")
def setup_cfg():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return config


def test_every_data_file_is_declared(setup_cfg):
    """Each file of the package that is no Python is matched by setup.cfg's package_data."""
    patterns = setup_cfg["options.package_data"]["minidnn"].split()
    package = ROOT / "minidnn"
    files = subprocess.run(["git", "ls-files", "minidnn", "models"], cwd=ROOT, capture_output=True, text=True)
    if files.returncode or not files.stdout:
        pytest.skip("not a git checkout")
    for name in files.stdout.split():
        path = Path(name)
        if path.suffix == ".py" or name == "minidnn/models":
            continue
        inside = path.relative_to("minidnn") if path.parts[0] == "minidnn" else path
        assert any(inside.match(pattern) and len(inside.parts) == pattern.count("/") + 1 for pattern in patterns), name
        assert (package / inside).is_file()


def test_every_pattern_of_data_files_matches_one(setup_cfg):
    package = ROOT / "minidnn"
    patterns = setup_cfg["options.package_data"]["minidnn"].split()
    assert [pattern for pattern in patterns if not any(package.glob(pattern))] == []


def test_what_an_index_shows_of_the_package(setup_cfg):
    about = setup_cfg["metadata"]
    assert (ROOT / about["long_description"].removeprefix("file: ")).is_file()
    assert about["long_description_content_type"] == "text/markdown"
    assert f"{about['license']}." in (ROOT / "README.md").read_text() and (ROOT / about["license_files"]).is_file()
    least = setup_cfg["options"]["python_requires"].removeprefix(">=")
    assert f"Programming Language :: Python :: {least}" in about["classifiers"].split("\n")
    assert len(about["description"]) < 100 and about["keywords"]


def test_pyproject_holds_only_what_setup_cfg_cannot():
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    assert [line for line in lines if line.startswith("[")] == ["[build-system]", "[tool.ruff]", "[tool.ruff.lint]"]


def test_one_version():
    assert f"## {minidnn.__version__}" in (ROOT / "CHANGELOG.md").read_text()
