"""CUDA by the command line where there is no GPU: one message that says what is missing and what to do, exit code 2."""

from __future__ import annotations

import json

import pytest

from minidnn.backends import cuda
from minidnn.backends.cuda import packages
from minidnn.cli.exit_codes import exit_code, message
from minidnn.cli.main import main
from minidnn.measuring import link
from minidnn.spoken import on_command_line
from tests.support.cuda import host
from tests.support.cuda.fake import fake_device
from tests.support.paths import MODELS

MODELS = MODELS
DIGITS, LENET = str(MODELS / "digits_solver.yaml"), str(MODELS / "digits_lenet.yaml")


@pytest.fixture
def without():
    """What the driver's absence is called on the command line."""
    with on_command_line():
        try:
            packages.find_driver()
        except packages.CudaUnavailable as error:
            return str(error)
    pytest.skip("this machine has a GPU")


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["train", DIGITS], ["train", DIGITS, "--no-graph"], ["plan", LENET], ["compare", LENET], ["time", LENET],
        ["profile", LENET, "--no-tf32"], ["test", DIGITS, "--weights", "w"],
    ],
)  # fmt: skip
def test_every_command_says_what_is_missing(command, capsys, without):
    assert main([*command, "--device", "cuda"]) == 2
    captured = capsys.readouterr()
    assert captured.err == f"minidnn: {without}\n" and not captured.out
    assert "NVIDIA" in without and "--device cpu" in without


@pytest.mark.slow
def test_devices_says_it_too(capsys, without, small_copies):
    assert main(["devices", "cuda", "--json"]) == 2
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    known = {name: value for name, value in device.items() if value is not None}
    assert known == {"name": "cuda", "available": False, "why": without}
    assert main(["devices", "--json"]) == 0
    names = [d["name"] for d in json.loads(capsys.readouterr().out)["devices"]]
    assert names == ["cpu", "reference", "cuda"]


def test_cudas_options_are_cudas(capsys):
    assert main(["train", DIGITS, "--no-graph"]) == 2
    assert "--no-graph is for --device cuda" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "want"),
    [
        ([], {"number": 1}),
        (["--no-tf32"], {"number": 1, "tf32": False, "graphs": True, "nvtx": False, "avoid": ()}),
        (
            ["--nvtx", "--avoid", "eng34", "--avoid", "eng7_k2=1"],
            {"number": 1, "tf32": True, "graphs": True, "nvtx": True, "avoid": ("eng34", "eng7_k2=1")},
        ),
    ],
)
def test_which_gpu_and_which_plans(flags, want, monkeypatch, capsys):
    asked = []

    def open_gpu(**options):
        asked.append(options)
        raise packages.CudaUnavailable("none here")

    monkeypatch.setattr(cuda, "open_gpu", open_gpu)
    assert main(["train", DIGITS, "--device", "cuda:1", *flags]) == 2
    assert main(["devices", "cuda:1"]) == 2
    assert asked == [want, {"number": 1}]
    assert "cuda:1" in capsys.readouterr().out


@pytest.mark.parametrize("flags", [["--nvtx"], ["--avoid", "eng34"], ["--no-graph"]])
def test_they_are_refused_for_another_device(flags, capsys):
    assert main(["train", DIGITS, "--device", "cpu", *flags]) == 2
    assert f"{flags[0]} is for --device cuda" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(host.COMPILER is None, reason="no g++ to run CUDA sources with")
def test_what_the_card_holds_beside_the_arena_is_told_apart(monkeypatch, capsys, tmp_path):
    device = fake_device()
    device.api.taken = 321 << 20
    monkeypatch.setattr(cuda, "open_gpu", lambda **options: device)
    rates = link.Link(1e9, 1e9, 1e9, 1e9, 1e-6)
    monkeypatch.setattr(link, "link", lambda device: rates)
    line = "Card: 321 MiB are in use outside the arena (CUDA's context, cuDNN, kernels, graphs, other programs)"
    train = ["train", DIGITS, "--device", "cuda", "--batch", "4", "--max-iter", "1"]
    train += ["--snapshot-prefix", str(tmp_path / "run")]
    assert main(train) == 0
    said = capsys.readouterr()
    log = said.out + said.err
    assert f"{line} before the first step" in log and f"{line} after the last step" in log
    assert main([*train, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["beside_arena_bytes"] == 321 << 20
    small = [LENET, "--device", "cuda", "--batch", "4"]
    assert main(["plan", *small]) == 0
    assert line in capsys.readouterr().out
    assert main(["plan", *small[:1], "--gpu", "titan_x"]) == 0
    assert "Card:" not in capsys.readouterr().out, "a profile has no card"
    compare = ["compare", *small, "--policies", "liveness:m", "--steps", "2"]
    assert main(compare) == 0
    assert f"{line} after the steps" in capsys.readouterr().out
    assert main([*compare, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["beside_arena_bytes"] == 321 << 20
    assert main(["devices", "cuda"]) == 0
    assert "cuda: 321 MiB are in use outside any arena" in capsys.readouterr().out


def test_a_gpus_number_is_a_number(capsys):
    with pytest.raises(SystemExit):
        main(["train", DIGITS, "--device", "cuda:one"])
    assert "as in cuda:1" in capsys.readouterr().err


def test_an_error_of_cudas_is_no_internal_error():
    class CUDARuntimeError(RuntimeError):
        """As CuPy calls it."""

        __module__ = "cupy_backends.cuda.api.runtime"

    error = CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")
    assert message(error).startswith("CUDA failed while the step ran: cudaErrorIllegalAddress")
    assert exit_code(error) == 1
