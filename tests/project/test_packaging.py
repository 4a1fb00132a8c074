"""What an installation must keep: light imports, data files, one version, a command that starts fast."""

from __future__ import annotations

import ast
import configparser
import re
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import minidnn
from minidnn.compiled import NotCompiled, Sources, find_compiler
from release import check, wheels
from tests.support.paths import ROOT

HEAVY = "cupy numba torch pydantic ruamel rich sklearn safetensors"


def modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print('\\n'.join(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_importing_minidnn_imports_nothing_heavy():
    loaded = modules_after("import minidnn")
    assert not {name.split(".")[0] for name in loaded} & set(HEAVY.split())
    assert not [name for name in loaded if name.startswith("minidnn.backends")]


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["nosuch"]])
def test_the_command_s_own_words_take_nothing_heavy(words):
    run = (
        "import contextlib, io; from minidnn.cli.main import main\n"
        f"with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): main({words})"
    )
    loaded = modules_after(f"exec({run!r})")
    assert "minidnn.cli.main" in loaded
    assert not {name.split(".")[0] for name in loaded} & {"numpy", *HEAVY.split()}


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
    for path in tracked("minidnn", "minidnn_papers", "models"):
        if path.suffix == ".py" or path == Path("minidnn/models"):
            continue
        inside = path.relative_to("minidnn") if path.parts[0] == "minidnn" else path
        assert any(inside.match(pattern) and len(inside.parts) == pattern.count("/") + 1 for pattern in patterns), path
        assert (package / inside).is_file()


def test_every_pattern_of_data_files_matches_one(setup_cfg):
    package = ROOT / "minidnn"
    patterns = setup_cfg["options.package_data"]["minidnn"].split()
    assert [pattern for pattern in patterns if not any(package.glob(pattern))] == []


def test_what_an_index_shows_of_the_package(setup_cfg):
    about = setup_cfg["metadata"]
    assert f"{about['license']}." in (ROOT / "README.md").read_text()
    assert all((ROOT / name).is_file() for name in about["license_files"].split())
    least = setup_cfg["options"]["python_requires"].removeprefix(">=")
    assert f"Programming Language :: Python :: {least}" in about["classifiers"].split("\n")
    assert len(about["description"]) < 100 and about["keywords"]


def test_the_pythons_that_are_named_are_those_that_the_wheel_is_checked_on(setup_cfg):
    shown = re.findall(r"Python :: 3\.(\d+)$", setup_cfg["metadata"]["classifiers"], re.MULTILINE)
    assert [f"3.{number}" for number in shown] == list(check.PYTHONS)


@pytest.fixture(scope="module")
def of_setup():
    return runpy.run_path(str(ROOT / "setup.py"), run_name="setup")


@pytest.fixture(scope="module")
def page(of_setup):
    return of_setup["page"]


def test_the_page_of_an_index_has_no_link_into_files_that_are_not_there(page):
    readme = (ROOT / "README.md").read_text()
    shown = page(readme, None, "0.1.0")
    assert re.findall(r"\]\((?!https?:|#)[^)]*\)", readme) and not re.findall(r"\]\((?!https?:|#)", shown)
    assert "*(ResNet-50 and GPT-2 in PyTorch: the time of a step" in shown
    assert "| DESIGN.md, CONTRIBUTING.md | how it is built" in shown
    assert [line for line in shown.splitlines() if line.startswith("#")] == re.findall(r"^#.*$", readme, re.MULTILINE)


def test_the_page_of_an_index_links_to_the_files_of_its_version(page):
    text = "See [this](docs/a.md#b), [that](https://x.org/y), [here](#words).\n![drawn](docs/c.svg)\n"
    assert page(text, "https://x.org/us/minidnn", "0.2.0") == (
        "See [this](https://x.org/us/minidnn/blob/v0.2.0/docs/a.md#b), [that](https://x.org/y), [here](#words).\n"
        "![drawn](https://x.org/us/minidnn/raw/v0.2.0/docs/c.svg)\n"
    )


def test_links_stand_beside_the_page_where_the_repository_is_stated(of_setup):
    assert of_setup["links"](None, "0.2.0") == {}
    found = of_setup["links"]("https://x.org/us/minidnn", "0.2.0")
    assert list(found) == ["Source", "Documentation", "Changelog", "Issues"]
    for name in ("Documentation", "Changelog"):
        assert (ROOT / found[name].partition("/v0.2.0/")[2]).is_file()


def test_the_citation_is_of_this_version(setup_cfg):
    cited = YAML(typ="safe").load((ROOT / "CITATION.cff").read_text())
    about = setup_cfg["metadata"]
    assert (cited["version"], cited["license"]) == (minidnn.__version__, about["license"])
    assert ", ".join(cited["keywords"]) == about["keywords"]
    assert [author["name"] for author in cited["authors"]] == [about["author"]]


def tracked(*folders: str) -> list[Path]:
    files = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True)
    if files.returncode or not files.stdout:
        pytest.skip("not a git checkout")
    return [Path(name) for name in files.stdout.split()]


def test_the_sources_have_every_file_of_the_repository():
    """The packages' own files are there without MANIFEST.in, and so are those that pip and setuptools read."""
    lines = [line.split() for line in (ROOT / "MANIFEST.in").read_text().splitlines() if not line.startswith("#")]
    grafted = {name for word, *names in lines if word == "graft" for name in names}
    grafted |= {"minidnn", "minidnn_papers"}
    included = [name for word, *names in lines if word == "include" for name in names]
    included += ["LICENSE", "MANIFEST.in", "NOTICE", "pyproject.toml", "setup.cfg", "setup.py"]
    for path in tracked():
        there = path.parts[0] in grafted if len(path.parts) > 1 else any(path.match(name) for name in included)
        assert there or path == Path("minidnn/models"), path


def test_a_wheel_for_linux_brings_every_folder_of_c():
    assert {sources.folder for sources in wheels.COMPILED} == {path.parent for path in (ROOT / "minidnn").rglob("*.c")}


def test_a_wheel_for_linux_says_so_and_has_a_library_for_each_level(tmp_path, monkeypatch):
    try:
        find_compiler()
    except NotCompiled as reason:
        pytest.skip(str(reason))
    one = Sources(tmp_path / "minidnn" / "c", "a file", lambda level: ("-fPIC",), lambda: ("x86-64-v3", "x86-64"))
    monkeypatch.setattr(wheels, "ROOT", tmp_path)
    monkeypatch.setattr(wheels, "COMPILED", (one,))
    content = tmp_path / "opened"
    (content / "minidnn" / "c").mkdir(parents=True)
    (content / "minidnn" / "c" / "seven.c").write_text("int seven(void) { return 7; }\n")
    about = content / "minidnn-0.1.0.dist-info" / "WHEEL"
    about.parent.mkdir()
    about.write_text("Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheels.bring(content)
    assert about.read_text() == "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-linux_x86_64\n"
    inside = replace(one, folder=content / "minidnn" / "c")
    assert set(inside.folder.glob("*.so")) == {inside.shipped(level) for level in one.levels()}


def test_pyproject_holds_only_what_setup_cfg_cannot():
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    assert [line for line in lines if line.startswith("[")] == ["[build-system]", "[tool.ruff]", "[tool.ruff.lint]"]


def test_one_version():
    assert f"## {minidnn.__version__}" in (ROOT / "CHANGELOG.md").read_text()
