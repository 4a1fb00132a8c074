"""Finds and loads what the CUDA backend needs: the driver, CuPy, cuDNN and its frontend, cublasLt, NVRTC.

The libraries may already be in this process (PyTorch loads its own). Else they are looked for in pip's wheels (also
those that PyTorch brought), in conda's folder, in a CUDA toolkit, and where the dynamic loader looks. All are loaded
here by their full path, before anything asks for them by name. There are two reasons:
  - cuDNN aborts the process if it cannot find libcublasLt.
  - NVRTC does not find libnvrtc-builtins in a wheel's folder, and then each runtime-compiled plan fails.
If something is missing, one CudaUnavailable names it, says why it is needed, and gives the command that installs it.
Nothing is imported or loaded before `load` is called, and nothing here touches the memory of a GPU.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import site
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from types import ModuleType

from minidnn.errors import BadInput
from minidnn.spoken import option

CUPY = 14  # the major version that is needed
FRONTEND = "1.23"  # later versions have another API, and bring half a gigabyte along
CUDNN = 9
MAJORS = (13, 12)  # of CUDA, newest first
# For each major version of CUDA: its oldest driver; the lowest compute capability that it compiles for, and for which a
# cuDNN of it has kernels.
DRIVERS = {13: "580", 12: "525"}
OLDEST_CARD = {13: (7, 5), 12: (5, 0)}
# From this version on cuDNN has kernels for TURING and later only, also where it is built for CUDA 12: its wheel 9.10.2
# has machine code for sm_50 to sm_121, and that of 9.11.0 none below sm_75 in libcudnn_cnn and libcudnn_ops.
SINCE_TURING, TURING = (9, 11), (7, 5)
# The parts that libcudnn.so.9 loads by itself, from its own folder.
CUDNN_PARTS = ("graph", "heuristic", "engines_precompiled", "engines_runtime_compiled")


class CudaUnavailable(BadInput, ImportError):
    """The CUDA backend cannot run here. The message is one line: the missing part, why it is needed, and the remedy."""


@dataclass(frozen=True)
class Card:
    """A GPU as the driver describes it. `number` counts only the GPUs that CUDA_VISIBLE_DEVICES leaves visible."""

    number: int
    name: str
    capability: tuple[int, int]


@dataclass(frozen=True)
class Driver:
    cuda: tuple[int, int]  # the newest CUDA it can run
    cards: tuple[Card, ...]


@dataclass(frozen=True, eq=False)
class Packages:
    """The loaded packages, checked to fit together."""

    cuda: int  # the major version of all of them
    driver: Driver | None  # None: loaded without a GPU
    cupy: ModuleType | None
    cudnn: ModuleType  # the frontend
    cudnn_version: str  # of the library: "9.19.0"
    paths: dict[str, str]  # library -> file: cudnn, cublasLt, nvrtc, nvrtc-builtins
    include: tuple[str, ...]  # folders with CUDA's headers, perhaps none

    @property
    def description(self) -> str:
        cupy = f"CuPy {self.cupy.__version__}, " if self.cupy else ""
        return f"CUDA {self.cuda}, {cupy}cuDNN {self.cudnn_version}"


_loaded: dict[bool, Packages] = {}


def load(gpu: bool = True) -> Packages:
    """All packages that the backend needs, loaded once. `gpu=False` does without driver, GPU and CuPy: then plans can
    be made, but not run.

    Raises CudaUnavailable if something is missing or does not fit.
    """
    if gpu not in _loaded:
        _loaded[gpu] = _load(gpu)
    return _loaded[gpu]


def _load(gpu: bool) -> Packages:
    if not sys.platform.startswith("linux"):
        raise CudaUnavailable(
            f"the CUDA backend runs on Linux only, this is {sys.platform}; use {option('device', 'cpu')}"
        )
    driver = find_driver() if gpu else None
    cuda = installed_cuda(driver)
    if driver:
        _check_driver(driver, cuda)
    _check_frontend(cuda)
    libraries = load_libraries(cuda)
    version = _check_cudnn(libraries["cudnn"], cuda)
    cupy = _start_cupy(cuda) if gpu else None
    paths = {name: library.path for name, library in libraries.items()}
    return Packages(cuda, driver, cupy, _import_frontend(libraries["cudnn"], cuda), version, paths, headers(cuda))


def install(cuda: int) -> str:
    return f"`pip install 'minidnn[cuda{cuda}]'`"


# ---- the driver ------------------------------------------------------------------------------------------------

# cuda.h: CUresult, CUdevice_attribute
_SUCCESS, _STUB, _NO_DEVICE, _INVALID_DEVICE, _MISMATCH = 0, 34, 100, 101, 803
_CAPABILITY = (75, 76)


def find_driver() -> Driver:
    """The driver and the GPUs that it shows. Raises CudaUnavailable if there are none. The driver is initialised, which
    makes no context and takes no memory of a GPU."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        if Path("/proc/driver/nvidia/version").exists():
            raise CudaUnavailable(
                f"an NVIDIA driver runs, but its library libcuda.so.1 cannot be loaded ({error}): in a container, "
                "start it with `--gpus all`; otherwise install the driver's user libraries"
            ) from None
        raise CudaUnavailable(
            "this machine has no NVIDIA driver (no libcuda.so.1): the CUDA backend needs an NVIDIA GPU and its "
            "driver; where there is one, install it from https://www.nvidia.com/drivers (in a container: `--gpus all`);"
            f" otherwise use {option('device', 'cpu')}"
        ) from None
    number = ctypes.c_int()
    status = cuda.cuInit(0)
    if status != _SUCCESS:
        raise CudaUnavailable(_why_not(status))
    call(cuda.cuDriverGetVersion, ctypes.byref(number))
    version = divmod(number.value, 1000)[0], number.value % 1000 // 10
    call(cuda.cuDeviceGetCount, ctypes.byref(number))
    if not number.value:
        raise CudaUnavailable(_why_not(_NO_DEVICE))
    return Driver(version, tuple(_card(cuda, i) for i in range(number.value)))


def _card(cuda: ctypes.CDLL, number: int) -> Card:
    device, value, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
    call(cuda.cuDeviceGet, ctypes.byref(device), number)
    call(cuda.cuDeviceGetName, name, len(name), device)
    capability = []
    for attribute in _CAPABILITY:
        call(cuda.cuDeviceGetAttribute, ctypes.byref(value), attribute, device)
        capability.append(value.value)
    return Card(number, name.value.decode(errors="replace"), (capability[0], capability[1]))


def call(function, *arguments) -> None:
    """Call a function of the driver. Raises CudaUnavailable if it answers with an error."""
    if status := function(*arguments):
        raise CudaUnavailable(f"the NVIDIA driver answers {function.__name__} with error {status}: restart the machine")


def _why_not(status: int) -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if status in (_NO_DEVICE, _INVALID_DEVICE):
        if visible is not None:
            return (
                f"the NVIDIA driver shows no GPU, and CUDA_VISIBLE_DEVICES={visible!r} limits which ones it may: "
                "unset it, or set it to 0"
            )
        return (
            "the NVIDIA driver shows no GPU: `nvidia-smi` says what it sees (in a container, start it with "
            f"`--gpus all`); use {option('device', 'cpu')} to do without"
        )
    if status == _STUB:
        return (
            "libcuda.so.1 is the stub that CUDA's toolkit brings for linking, not a driver: take its folder (stubs) "
            "out of LD_LIBRARY_PATH, and install the NVIDIA driver where there is none"
        )
    if status == _MISMATCH:
        return (
            "the NVIDIA driver's library and its kernel module are of different versions (the driver was updated): "
            "restart the machine"
        )
    return f"the NVIDIA driver cannot be started (cuInit says {status}): `nvidia-smi` may say more; restart the machine"


def _check_driver(driver: Driver, cuda: int) -> None:
    if driver.cuda[0] < cuda:
        has = ".".join(map(str, driver.cuda))
        older = next((m for m in MAJORS if m <= driver.cuda[0]), None)
        instead = f", or use packages for CUDA {older}: {_replace(cuda, older)}" if older else ""
        raise CudaUnavailable(
            f"the NVIDIA driver is too old: it runs CUDA {has}, and the installed packages are for CUDA {cuda}; "
            f"install driver {DRIVERS[cuda]} or later from https://www.nvidia.com/drivers{instead}"
        )
    if driver.cards and all(card.capability < OLDEST_CARD[cuda] for card in driver.cards):
        card = driver.cards[0]
        others = [m for m in MAJORS if card.capability >= OLDEST_CARD[m]]
        instead = (
            f"use packages for CUDA {others[0]}: {_replace(cuda, others[0])}"
            if others
            else f"use {option('device', 'cpu')}"
        )
        raise CudaUnavailable(f"{_too_old(card, f'CUDA {cuda}', OLDEST_CARD[cuda])}; {instead}")


def _too_old(card: Card, what: str, least: tuple[int, int]) -> str:
    has, least_ = (".".join(map(str, pair)) for pair in (card.capability, least))
    return f"{card.name} has compute capability {has}, and {what} has kernels for {least_} and later only"


def card(driver: Driver, number: int, cuda: int, cudnn: str) -> Card:
    """The GPU of that number. `cudnn` is its library's version: "9.10.2". Raises CudaUnavailable, which lists the GPUs,
    if there is none, if it is too old, or if that cuDNN has no kernels for it."""
    listed = ", ".join(f"cuda:{c.number} ({c.name})" for c in driver.cards)
    result = next((c for c in driver.cards if c.number == number), None)
    if result is None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        why = f"; CUDA_VISIBLE_DEVICES={visible!r} says which GPUs are seen" if visible is not None else ""
        raise CudaUnavailable(f"there is no GPU cuda:{number}: there are {listed}{why}")
    called = replace(result, name=f"cuda:{number} ({result.name})")
    if result.capability < OLDEST_CARD[cuda]:
        raise CudaUnavailable(f"{_too_old(called, f'CUDA {cuda}', OLDEST_CARD[cuda])}: there are {listed}")
    if result.capability < TURING and tuple(map(int, cudnn.split("."))) >= SINCE_TURING:
        raise CudaUnavailable(
            f"{_too_old(called, f'cuDNN {cudnn}', TURING)}: `pip install {_pip('cudnn', cuda)}` installs one that has "
            f"them; there are {listed}"
        )
    return result


def _replace(old: int, new: int) -> str:
    return f"`pip uninstall cupy-cuda{old}x nvidia-cudnn-cu{old}` and then {install(new)}"


def suggested_cuda(driver: Driver | None) -> int:
    """The newest CUDA that the driver and a GPU can run: the one to install if none is installed."""
    for major in MAJORS:
        if driver and driver.cuda[0] >= major and any(c.capability >= OLDEST_CARD[major] for c in driver.cards):
            return major
    return MAJORS[-1] if driver else MAJORS[0]


# ---- Python packages -------------------------------------------------------------------------------------------


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def installed_cuda(driver: Driver | None) -> int:
    """The major version of CUDA that the installed packages are for: that of CuPy, or of cuDNN if there is no CuPy and
    no driver. Raises CudaUnavailable if CuPy is unfit, or if there is a driver and no CuPy."""
    of_cupy = [m for m in MAJORS if _version(f"cupy-cuda{m}x")]
    if len(of_cupy) > 1:
        names = " ".join(f"cupy-cuda{m}x" for m in of_cupy)
        raise CudaUnavailable(
            f"{names.replace(' ', ' and ')} are installed in the same folder and spoil each other: "
            f"`pip uninstall {names}`, then {install(suggested_cuda(driver))}"
        )
    if of_cupy:
        _check_cupy(str(_version(f"cupy-cuda{of_cupy[0]}x")), of_cupy[0])
        return of_cupy[0]
    if plain := _version("cupy"):  # from conda, or compiled here
        _check_cupy(plain, suggested_cuda(driver))
        return _import_cupy(suggested_cuda(driver)).cuda.runtime.runtimeGetVersion() // 1000
    if driver:
        raise CudaUnavailable(
            "CuPy is not installed: the CUDA backend moves bytes and launches kernels through it; "
            f"{install(suggested_cuda(driver))} installs all that is needed"
        )
    of_cudnn = [m for m in MAJORS if _version(f"nvidia-cudnn-cu{m}")]
    return of_cudnn[0] if of_cudnn else MAJORS[0]


def _check_cupy(version: str, cuda: int) -> None:
    if version.split(".")[0] != str(CUPY):
        raise CudaUnavailable(
            f"CuPy {version} is installed, and the CUDA backend is written for version {CUPY}: it moves bytes and "
            f"launches kernels through it; {install(cuda)} installs the right one"
        )


def _import_cupy(cuda: int) -> ModuleType:
    try:
        return importlib.import_module("cupy")
    except Exception as error:  # a broken installation may raise anything
        raise CudaUnavailable(
            f"CuPy is installed but cannot be imported ({_line(error)}): the CUDA backend moves bytes and launches "
            f"kernels through it; `pip install --force-reinstall 'minidnn[cuda{cuda}]'` puts it right"
        ) from error


def _start_cupy(cuda: int) -> ModuleType:
    """CuPy, after a check that its CUDA runtime works with the driver. This makes no context yet."""
    cupy = _import_cupy(cuda)
    try:
        cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        raise CudaUnavailable(
            f"the NVIDIA driver answers, but CuPy's CUDA {cuda} cannot work with it ({_line(error)}): install driver "
            f"{DRIVERS[cuda]} or later from https://www.nvidia.com/drivers, and restart the machine after an update"
        ) from error
    return cupy


def nccl(cuda: int) -> ModuleType:
    """CuPy's module of NCCL, which moves bytes between the GPUs of several ranks. Raises CudaUnavailable."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy's advice, which the message below has
        result = importlib.import_module("cupy.cuda.nccl")
    if not result.available:
        raise CudaUnavailable(
            f"NCCL for CUDA {cuda} is not installed (CuPy finds no libnccl.so.2): it moves bytes between the GPUs of "
            f"several ranks; `pip install 'minidnn[cuda{cuda},nccl{cuda}]'` installs all that is needed"
        )
    return result


def _check_frontend(cuda: int) -> None:
    version = _version("nvidia-cudnn-frontend")
    why = "through it the CUDA backend asks cuDNN for its convolutions and products"
    if version is None:
        raise CudaUnavailable(f"nvidia-cudnn-frontend is not installed: {why}; {install(cuda)} installs it")
    if not f"{version}.".startswith(f"{FRONTEND}."):
        raise CudaUnavailable(
            f"nvidia-cudnn-frontend {version} is installed, and {FRONTEND} is needed (its API changes between minor "
            f"versions): {why}; {install(cuda)} installs it"
        )


def _import_frontend(library: Library, cuda: int) -> ModuleType:
    try:
        cudnn = importlib.import_module("cudnn")
        cudnn._pybind_module._set_dlhandle_cudnn(library.cdll._handle)  # not one that the frontend finds by itself
        cudnn.create_device_properties  # noqa: B018  (some other package may be called cudnn)
    except Exception as error:
        raise CudaUnavailable(
            f"nvidia-cudnn-frontend is installed but cannot be used ({_line(error)}): through it the CUDA backend asks "
            f"cuDNN for its convolutions; `pip install --force-reinstall 'minidnn[cuda{cuda}]'` puts it right"
        ) from error
    return cudnn


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


# ---- libraries -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Library:
    cdll: ctypes.CDLL
    path: str


_WHY = {
    "cublasLt": "cuDNN computes products with it, and would end the process where it is missing",
    "nvrtc": "the CUDA backend compiles its own kernels with it",
    "nvrtc-builtins": "NVRTC cannot compile without it",
    "cudnn": "it computes convolutions and products",
}
_WHEEL = {  # pip's package of each library, without the suffix for a CUDA version
    "cublasLt": "nvidia-cublas",
    "nvrtc": "nvidia-cuda-nvrtc",
    "nvrtc-builtins": "nvidia-cuda-nvrtc",
    "cudnn": "nvidia-cudnn",
}


def load_libraries(cuda: int) -> dict[str, Library]:
    """The libraries for that CUDA, loaded in an order in which each finds the libraries that it needs. Raises
    CudaUnavailable if one is missing."""
    result = {"cublasLt": _open("cublasLt", f"libcublasLt.so.{cuda}", cuda)}
    nvrtc = result["nvrtc"] = _open("nvrtc", f"libnvrtc.so.{cuda}", cuda)
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc.cdll.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    builtins = os.path.join(os.path.dirname(nvrtc.path), f"libnvrtc-builtins.so.{major.value}.{minor.value}")
    if not os.path.exists(builtins):
        raise _missing("nvrtc-builtins", builtins, cuda)
    result["nvrtc-builtins"] = Library(_dlopen(builtins, "nvrtc-builtins", cuda), builtins)
    cudnn = result["cudnn"] = _open("cudnn", f"libcudnn.so.{CUDNN}", cuda)
    for part in CUDNN_PARTS:
        name = f"libcudnn_{part}.so.{CUDNN}"
        if not os.path.exists(os.path.join(os.path.dirname(cudnn.path), name)):
            raise CudaUnavailable(
                f"cuDNN is not whole: {cudnn.path} has no {name} beside it, and without that it computes no "
                f"convolution; `pip install --force-reinstall {_pip('cudnn', cuda)}` installs all of it"
            )
    return result


def _open(name: str, soname: str, cuda: int) -> Library:
    try:  # others in this process may use the library already: a second copy would be another library
        cdll = ctypes.CDLL(soname, mode=os.RTLD_NOLOAD | os.RTLD_NOW | os.RTLD_GLOBAL)
        return Library(cdll, _mapped(soname))
    except OSError:
        pass
    for folder in folders(cuda):
        path = os.path.join(folder, soname)
        if os.path.exists(path):
            return Library(_dlopen(path, name, cuda), os.path.realpath(path))
    try:
        cdll = ctypes.CDLL(soname, mode=ctypes.RTLD_GLOBAL)  # wherever the dynamic loader looks
    except OSError:
        raise _missing(name, soname, cuda) from None
    return Library(cdll, _mapped(soname))


def _dlopen(path: str, name: str, cuda: int) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise CudaUnavailable(
            f"{path} cannot be loaded ({error}): {_WHY[name]}; `pip install --force-reinstall {_pip(name, cuda)}` "
            "reinstalls it"
        ) from None


def _missing(name: str, what: str, cuda: int) -> CudaUnavailable:
    also = f" (of it alone: `pip install {_pip(name, cuda)}`)"
    return CudaUnavailable(
        f"{name} for CUDA {cuda} is not installed ({what} cannot be found): {_WHY[name]}; {install(cuda)} installs "
        f"all that is needed{also}"
    )


def _pip(name: str, cuda: int) -> str:
    """The requirement by which pip installs the library. From CUDA 13 on its wheel has no suffix, except cuDNN's; CUDA
    12's cuDNN has to serve old cards, too."""
    wheel = _WHEEL[name] if cuda >= 13 and name != "cudnn" else f"{_WHEEL[name]}-cu{cuda}"
    old = name == "cudnn" and OLDEST_CARD[cuda] < TURING
    return f"'{wheel}<{'.'.join(map(str, SINCE_TURING))}'" if old else wheel


def folders(cuda: int) -> Iterator[str]:
    """The folders that may have the libraries. The wheels of this environment come first, because the frontend looks
    there, too."""
    for packages in _site_folders():
        nvidia = os.path.join(packages, "nvidia")
        for part in (f"cu{cuda}", "cudnn", "cublas", "cuda_nvrtc"):
            yield os.path.join(nvidia, part, "lib")
    yield os.path.join(sys.prefix, "lib")  # conda
    for toolkit in _toolkits(cuda):
        yield from (os.path.join(toolkit, "lib64"), os.path.join(toolkit, "lib"))


def headers(cuda: int) -> tuple[str, ...]:
    """The folders with headers of that CUDA, for NVRTC."""
    places = [
        os.path.join(packages, "nvidia", part, "include")
        for packages in _site_folders()
        for part in (f"cu{cuda}", "cuda_runtime")
    ]
    places += [os.path.join(toolkit, "include") for toolkit in _toolkits(cuda)]
    return tuple(p for p in dict.fromkeys(places) if _headers_of(p) == cuda)


def _headers_of(folder: str) -> int | None:
    """The major version of the CUDA whose headers the folder has; None if it has none."""
    try:
        text = Path(folder, "cuda.h").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    version = re.search(r"#define\s+CUDA_VERSION\s+(\d+)", text)
    return int(version[1]) // 1000 if version else None


def _site_folders() -> Iterator[str]:
    places = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        places.append(site.getusersitepackages())
    yield from dict.fromkeys(places + [p for p in sys.path if os.path.isdir(os.path.join(p, "nvidia"))])


def _toolkits(cuda: int) -> Iterator[str]:
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        if folder := os.environ.get(variable):
            yield folder
    yield from (f"/usr/local/cuda-{cuda}", "/usr/local/cuda")


def _mapped(soname: str) -> str:
    """The file that this process has mapped for a soname; the soname itself if there is none."""
    stem = re.escape(soname)
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            path = line.split(maxsplit=5)[-1].strip()
            if re.match(rf"{stem}(\.|$)", os.path.basename(path)):
                return path
    return soname


def _check_cudnn(library: Library, cuda: int) -> str:
    library.cdll.cudnnGetVersion.restype = library.cdll.cudnnGetCudartVersion.restype = ctypes.c_size_t
    number, built_for = library.cdll.cudnnGetVersion(), library.cdll.cudnnGetCudartVersion() // 1000
    if built_for != cuda:
        raise CudaUnavailable(
            f"{library.path} is built for CUDA {built_for}, and the other packages are for CUDA {cuda}: "
            f"`pip uninstall nvidia-cudnn-cu{built_for}`, then {install(cuda)}"
        )
    return f"{number // 10000}.{number % 10000 // 100}.{number % 100}"
