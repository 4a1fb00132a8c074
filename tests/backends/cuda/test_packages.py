"""What the CUDA backend says where something is missing: one line with what, why, and the command that puts it right.

A driver is played by tests/support/cuda/driver.c, the libraries by files of a few lines; each case runs in a process
of its own, as libraries stay loaded. The real ones, where they are installed, are tried by test_cudnn.py.
"""

from __future__ import annotations

import ctypes.util
import json
import os
import re
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from minidnn.backends.cuda import packages
from tests.support.paths import ROOT, SUPPORT

pytestmark = pytest.mark.slow  # each asks a process of its own
gcc = shutil.which("gcc")
needs_gcc = pytest.mark.skipif(gcc is None, reason="no gcc to make a driver of")
no_driver = pytest.mark.skipif(
    ctypes.util.find_library("cuda") is not None, reason="there is a driver, which a process takes before ours"
)

# Runs with {"versions": {package: version}, "folders": [where libraries lie] or null, "gpu": bool, "before": [files]}.
ASK = """
import ctypes, json, sys
from minidnn.backends.cuda import packages
given = json.loads(sys.argv[1])
packages._version = given["versions"].get
for path in given["before"]:
    ctypes.CDLL(path)
if given["folders"] is not None:
    packages.folders = lambda cuda: given["folders"]
try:
    print("loaded", packages.load(given["gpu"]))
except packages.CudaUnavailable as error:
    assert isinstance(error, ImportError)
    print(error)
"""

CUPY13, CUPY12 = {"cupy-cuda13x": "14.2.0"}, {"cupy-cuda12x": "14.2.0"}
FRONTEND = {"nvidia-cudnn-frontend": "1.23.0"}


@pytest.fixture(scope="module")
def driver(tmp_path_factory) -> Path:
    """A folder with the tests' libcuda.so.1."""
    folder = tmp_path_factory.mktemp("driver")
    build(folder / "libcuda.so.1", (SUPPORT / "cuda" / "driver.c").read_text())
    return folder


def build(library: Path, source: str) -> None:
    command = [gcc, "-shared", "-fPIC", "-x", "c", "-", f"-Wl,-soname,{library.name}", "-o", library]
    subprocess.run(command, input=source, text=True, check=True)


def ask(driver=None, state="", versions=None, folders=None, gpu=True, path=None, before=(), **environment) -> str:
    env = {k: v for k, v in os.environ.items() if k not in ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "PYTHONPATH")}
    env |= {"LD_LIBRARY_PATH": str(driver)} if driver else {}
    env |= {"FAKE_CUDA": state} if state else {}
    env["PYTHONPATH"] = f"{ROOT}{os.pathsep}{path}" if path else str(ROOT)
    given = json.dumps({"versions": versions or {}, "folders": folders, "gpu": gpu, "before": before})
    done = subprocess.run(
        [sys.executable, "-c", ASK, given], env=env | environment, capture_output=True, text=True, cwd="/"
    )
    assert done.returncode == 0, (done.returncode, done.stderr)  # never a signal, never a traceback
    (line,) = done.stdout.splitlines()
    return line


@no_driver
def test_no_driver():
    said = ask()
    assert "no NVIDIA driver" in said and "--gpus all" in said and 'device="cpu"' in said


@pytest.mark.slow
@needs_gcc
@no_driver
@pytest.mark.parametrize(
    "state, environment, words",
    [
        ("100,13000,0,0", {}, ["shows no GPU", "nvidia-smi"]),
        ("0,13000,0,0", {}, ["shows no GPU", "nvidia-smi"]),
        ("100,13000,0,0", {"CUDA_VISIBLE_DEVICES": ""}, ["shows no GPU", "CUDA_VISIBLE_DEVICES=''", "unset it"]),
        ("101,13000,0,0", {"CUDA_VISIBLE_DEVICES": "7"}, ["CUDA_VISIBLE_DEVICES='7'"]),
        ("34,0,0,0", {}, ["stub", "LD_LIBRARY_PATH"]),
        ("803,0,0,0", {}, ["different versions", "restart"]),
        ("999,0,0,0", {}, ["cuInit says 999"]),
    ],
)
def test_a_driver_without_a_gpu(driver, state, environment, words):
    said = ask(driver, state, **environment)
    assert all(word in said for word in words), said


@pytest.mark.slow
@needs_gcc
@no_driver
@pytest.mark.parametrize(
    "state, versions, words",
    [
        # nothing installed: the newest CUDA that driver and card can run
        ("0,13000,1,90", {}, ["CuPy is not installed", "pip install 'minidnn[cuda13]'"]),
        ("0,12040,1,90", {}, ["CuPy is not installed", "pip install 'minidnn[cuda12]'"]),
        ("0,13000,1,70", {}, ["CuPy is not installed", "pip install 'minidnn[cuda12]'"]),
        # installed, but not for this driver or card
        ("0,12040,1,90", CUPY13, ["too old", "CUDA 12.4", "driver 580", "pip install 'minidnn[cuda12]'"]),
        ("0,11080,1,80", CUPY12, ["too old", "CUDA 11.8", "driver 525"]),
        ("0,13000,1,70", CUPY13, ["Fake card 0", "capability 7.0", "7.5", "pip install 'minidnn[cuda12]'"]),
        ("0,12040,1,35", CUPY12, ["capability 3.5", 'device="cpu"']),
        # versions
        ("", {"cupy-cuda13x": "13.6.0"}, ["CuPy 13.6.0", "version 14", "pip install 'minidnn[cuda13]'"]),
        ("", {**CUPY13, **CUPY12}, ["cupy-cuda13x and cupy-cuda12x", "pip uninstall cupy-cuda13x cupy-cuda12x"]),
        ("", CUPY13, ["nvidia-cudnn-frontend is not installed", "pip install 'minidnn[cuda13]'"]),
        ("", {**CUPY13, "nvidia-cudnn-frontend": "1.32.0"}, ["frontend 1.32.0", "1.23", "'minidnn[cuda13]'"]),
        ("", {**CUPY12, "nvidia-cudnn-frontend": "1.2.3"}, ["frontend 1.2.3", "1.23", "'minidnn[cuda12]'"]),
    ],
)
def test_packages_that_are_missing_or_do_not_fit(driver, state, versions, words):
    said = ask(driver, state, versions)
    assert all(word in said for word in words), said


LIBRARIES = {
    "libcublasLt.so.13": "",
    "libnvrtc.so.13": "int nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 0, 0; }\n",
    "libnvrtc-builtins.so.13.0": "",
    "libcudnn.so.9": "#include <stddef.h>\nsize_t cudnnGetVersion(void) { return 91900; }\n"
    "size_t cudnnGetCudartVersion(void) { return 13000; }\n",
}
CUPY = """
from types import SimpleNamespace
__version__ = "14.2.0"
cuda = SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=lambda: 1))
"""
PARTS = ("graph", "heuristic", "engines_precompiled", "engines_runtime_compiled")


@pytest.fixture
def libraries(tmp_path) -> Path:
    """A folder with all the libraries, which hold nothing but cuDNN's versions."""
    for name, source in LIBRARIES.items():
        build(tmp_path / name, source)
    for part in PARTS:
        (tmp_path / f"libcudnn_{part}.so.9").touch()
    return tmp_path


@pytest.mark.slow
@needs_gcc
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_that_is_missing(libraries, name):
    (libraries / name).unlink()
    said = ask(versions=FRONTEND, folders=[str(libraries)], gpu=False)
    assert name.split(".")[0].removeprefix("lib") in said and "is not installed" in said
    assert "pip install 'minidnn[cuda13]'" in said and "`pip install nvidia-" in said


@pytest.mark.slow
@needs_gcc
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_that_is_broken(libraries, name):
    (libraries / name).write_text("no library")
    said = ask(versions=FRONTEND, folders=[str(libraries)], gpu=False)
    assert name in said and "cannot be loaded" in said and "pip install --force-reinstall nvidia-" in said


@pytest.mark.slow
@needs_gcc
@pytest.mark.parametrize("part", PARTS)
def test_a_cudnn_that_is_not_whole(libraries, part):
    (libraries / f"libcudnn_{part}.so.9").unlink()
    said = ask(versions=FRONTEND, folders=[str(libraries)], gpu=False)
    assert "cuDNN is not whole" in said and part in said


def test_the_extra_for_old_cards_brings_a_cudnn_that_has_kernels_for_them():
    """What setup.cfg's extras allow, what messages tell to install, and what `card` refuses, are one rule."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    extras = config["options.extras_require"]
    until = ".".join(map(str, packages.SINCE_TURING))
    assert packages.OLDEST_CARD[12] < packages.TURING <= packages.OLDEST_CARD[13]
    assert f"\nnvidia-cudnn-cu12>=9,<{until}\n" in extras["cuda12"]
    assert packages._pip("cudnn", 12) == f"'nvidia-cudnn-cu12<{until}'" and packages._pip("cudnn", 13)[-1] == "3"
    (tested,) = re.findall(r"nvidia-cudnn-cu12==(\d+)\.(\d+)", extras["cuda12-test"])
    assert tuple(map(int, tested)) < packages.SINCE_TURING, "what is tested is what is installed"


@needs_gcc
def test_a_cudnn_for_another_cuda(libraries):
    build(libraries / "libcudnn.so.9", LIBRARIES["libcudnn.so.9"].replace("13000", "12090"))
    said = ask(versions=FRONTEND, folders=[str(libraries)], gpu=False)
    assert "built for CUDA 12" in said and "pip uninstall nvidia-cudnn-cu12" in said


@pytest.mark.slow
@needs_gcc
@no_driver
@pytest.mark.parametrize(
    "module, said",
    [("cupy", "CuPy is installed but cannot be imported"), ("cudnn", "frontend is installed but cannot be used")],
)
def test_a_module_that_cannot_be_imported(driver, libraries, tmp_path_factory, module, said):
    modules = tmp_path_factory.mktemp("modules")
    (modules / "cupy.py").write_text(CUPY)
    (modules / f"{module}.py").write_text("raise OSError('half\\nof it')")
    found = ask(driver, versions={**CUPY13, **FRONTEND}, folders=[str(libraries)], path=modules)
    assert said in found and "OSError: half of it" in found and "--force-reinstall 'minidnn[cuda13]'" in found


@pytest.fixture(scope="module")
def modules(tmp_path_factory) -> Path:
    """A folder with a CuPy and a frontend that can be imported."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "cupy.py").write_text(CUPY)
    (folder / "cudnn.py").write_text(
        "class _pybind_module:\n    _set_dlhandle_cudnn = int\ncreate_device_properties = None\n"
    )
    return folder


@needs_gcc
@no_driver
def test_a_driver_that_cupy_cannot_work_with(driver, libraries, tmp_path):
    (tmp_path / "cupy.py").write_text(CUPY.replace("lambda: 1", "lambda: 1 / 0"))
    found = ask(driver, versions={**CUPY13, **FRONTEND}, folders=[str(libraries)], path=tmp_path)
    assert "CuPy's CUDA 13 cannot work with it (ZeroDivisionError" in found and "driver 580" in found


@needs_gcc
@no_driver
def test_all_is_there(driver, libraries, modules):
    found = ask(driver, "0,13000,2,80", {**CUPY13, **FRONTEND}, [str(libraries)], path=modules)
    assert found.startswith("loaded") and "Fake card 1" in found and "cudnn_version='9.19.0'" in found
    for name in LIBRARIES:
        assert f"'{libraries / name}'" in found


@needs_gcc
def test_what_the_process_has_loaded_is_what_is_used(libraries, modules, tmp_path_factory):
    """PyTorch's, for example: a second cuDNN or cuBLAS in one process would be another library."""
    others = tmp_path_factory.mktemp("others")
    for name in LIBRARIES:
        build(others / name, LIBRARIES[name])
    for part in PARTS:
        (others / f"libcudnn_{part}.so.9").touch()
    loaded = [str(others / name) for name in LIBRARIES if "builtins" not in name]
    found = ask(versions=FRONTEND, folders=[str(libraries)], gpu=False, path=modules, before=loaded)
    assert str(libraries) not in found
    for name in LIBRARIES:
        assert f"'{others / name}'" in found


def test_nothing_is_imported_before_it_is_asked_for():
    code = (
        "import sys, minidnn.backends.cuda.packages, minidnn.backends.cuda.cudnn, minidnn.backends.cuda.convolution, "
        "minidnn.backends.cuda.inner_product; print(sorted({'cupy', 'cudnn', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
