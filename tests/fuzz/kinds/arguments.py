"""Command lines: they end with 0, or with 2 and a readable reason; nothing is written but what they name.

A case is a JSON list of arguments, for a folder with good files and bad ones.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
from hypothesis import strategies as st

from minidnn.nets.net import Net
from minidnn.training.session import Session
from minidnn.training.snapshot import Snapshot, save
from tests.fuzz.kind import Kind, command
from tests.fuzz.pieces import TEXTS, pick
from tests.support.policies import PLANNED

NET = """name: small
layer:
- {name: data, type: Data, top: [data, label], data_param: {source: "synthetic:1x4x4:classes=3:count=8", batch_size: 2}}
- {name: c, type: Convolution, bottom: data, top: c, convolution_param: {num_output: 2, kernel_size: 3}}
- {name: r, type: ReLU, bottom: c, top: c}
- {name: ip, type: InnerProduct, bottom: c, top: ip, inner_product_param: {num_output: 3}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
- {name: accuracy, type: Accuracy, bottom: [ip, label], top: accuracy, include: {phase: TEST}}
"""
SOLVER = """net: net.yaml
base_lr: 0.01
lr_policy: fixed
max_iter: 2
test_iter: 1
test_interval: 1
random_seed: 1
"""
DIVERGES = "not finite|diverged|nothing is"  # a step whose loss is no number ends a command with 1

FILES = [
    "net.yaml", "net.yaml", "net.yaml", "solver.yaml", "solver.yaml", "w.safetensors", "x.npz", "x.npy", "torn.npz",
]  # fmt: skip
FILES += [
    "torn.safetensors",
    "a.plan",
    "torn.plan",
    "bad.yaml",
    "empty",
    "folder",
    "nothing",
    "absent/net.yaml",
    "-",
    "--",
]
MODEL = "resnet20"
FILES += ["digits_lenet", "digits_solver", "resnet7", "lenet9", "wrn_1_1", MODEL, *TEXTS]
NUMBERS = [
    "1", "2", "7", "0", "-1", "1.5", "1e3", "nan", "2147483647", "2147483648", "9" * 30, "\u0663", " 2", "0x2", "",
]  # fmt: skip
# A budget of gigabytes reserves so many addresses: the limit of memory would take it for a fault.
SIZES = [
    "1", "1000", "64KiB", "1MiB", "64MB", "0", "-1", "1e9", "9999999TiB", "1.5MiB", ".5GiB", "inf", "", "GB",
    "9" * 50,
]  # fmt: skip
POLICIES = [*PLANNED, "a.plan", "torn.plan", "absent.plan", "vdnn", "baseline:x", "liveness:p,vdnn_all:m", "", ","]
GPUS = ["titan_x", "h200:tf32", "titan_x:tf32", "h100:fp32", "k40", "net.yaml", "card.yaml", "titan", "", ":tf32"]
OUT = ["out.html", "out.svg", "out.plan", "out", "folder", "absent/out.html", ".html", "net.yaml", "", "\x1b[2J.svg"]

# Those that measure are not among them: they take minutes, and write to the user's cache.
OPTIONS: dict[str, list[str] | None] = {
    "--batch": NUMBERS, "--policy": POLICIES, "--policies": POLICIES, "--budget": SIZES, "--host-budget": SIZES,
    "--host-ring": SIZES, "--pin-on-demand": None, "--compress": None,
    "--peer": ["nvlink4:40GiB", "10GB,20us:1MiB", "8xnvlink4+ib100:1GiB", "nvlink4", ":1GiB", ""],
    "--placement": ["best", "first:two_ended", "worst:size", "best:best", "two", ""],
    "--device": ["cpu", "reference", "cuda", "gpu", ""],
    "--no-tf32": None, "--no-graph": None, "--no-fusion": None,
    "--format": ["float32", "bfloat16", "float16", "int8"], "--gpu": GPUS,
    "--facts": ["default", "layrub", "vdnn", "superneurons", "x"], "--seed": NUMBERS, "--json": None,
    "--listing": None, "--save": OUT, "--report": OUT, "--weights": FILES, "--top": NUMBERS,
    "--iterations": ["1", "2", "0", "x"], "--steps": ["1", "2", "0"], "--max": ["batch", "depth", "x"],
    "--step": NUMBERS, "--grid": NUMBERS, "--gpus": NUMBERS, "--link": SIZES, "--samples": NUMBERS,
    "--resume": [*FILES, "latest"], "--snapshot-prefix": ["out/a", "folder/", "", "b"],
    "--max-iter": ["1", "2", "0", "-1"], "--ram": ["4GiB", "1GiB", *SIZES], "--help": None, "--version": None,
    "--bud": SIZES, "-h": None, "--": None,
}  # fmt: skip
VERBS = ("plan", "train", "test", "predict", "compare", "time", "search", "tune")
# What else a verb needs so that a case takes little time.
ALWAYS = {
    "compare": ["--gpu", "titan_x"], "tune": ["--gpu", "titan_x", "--policy", "liveness:m"],
    "time": ["--iterations", "1"], "test": ["--weights", "w.safetensors"],
    "search": ["--gpu", "titan_x", "--max", "batch", "--step", "1000000", "--seconds", "1", "--policy", "liveness:m"],
    "predict": ["x.npz", "--weights", "w.safetensors"],
}  # fmt: skip


@lru_cache
def options_of(verb: str) -> list[str]:
    parser = argparse.ArgumentParser()
    importlib.import_module(f"minidnn.cli.{verb}").arguments(parser)
    return [option for option in OPTIONS if option in parser._option_string_actions]


@st.composite
def lines(draw: Any) -> bytes:
    if pick(draw, [True] + [False] * 15):
        return json.dumps(draw(st.lists(st.sampled_from([*VERBS, *OPTIONS, *TEXTS, *FILES]), max_size=4))).encode()
    verb = pick(draw, [*VERBS, "plan", "plan", "plan", "predict", "test", "train"])
    right = ["solver.yaml"] if verb == "train" else ["net.yaml", "solver.yaml"]
    words = [verb, pick(draw, right * 3 + [pick(draw, FILES)]), *ALWAYS.get(verb, [])]
    for _ in range(draw(st.integers(0, 4))):
        own = pick(draw, [True] * 9 + [False])
        option = pick(draw, options_of(verb) if own else list(OPTIONS))
        values = OPTIONS[option]
        some = [] if values is None else [pick(draw, values[:3] if pick(draw, [True, True, False]) else values)]
        words += (
            [f"{option}={some[0]}"]
            if some and some[0].startswith("-") and pick(draw, [True, False])
            else [option, *some]
        )
    if pick(draw, [True] + [False] * 9):
        words[draw(st.integers(0, len(words) - 1))] = pick(draw, [*TEXTS, *FILES])
    return json.dumps(words).encode()


@lru_cache
def shelf() -> Path:
    """A folder with the files that command lines name."""
    folder = Path(mkdtemp(prefix="minidnn-fuzz-"))
    (folder / "net.yaml").write_text(NET)
    (folder / "solver.yaml").write_text(SOLVER)
    net = Net.from_text(NET)
    with Session(net, device="reference", policy="liveness:m") as session:
        path = save(folder / "w", Snapshot(session.weight_rows(), {}, 1, 2, 3))
        path.rename(folder / "w.safetensors")
    np.savez(folder / "x.npz", x=np.ones((3, 1, 4, 4), np.float32), y=np.arange(3))
    np.save(folder / "x.npy", np.ones((3, 1, 4, 4), np.float32))
    command("plan", str(folder / "net.yaml"), "--save", str(folder / "a.plan"), "--policy", "vdnn_all:m")
    for name, torn in (("x.npz", "torn.npz"), ("w.safetensors", "torn.safetensors"), ("a.plan", "torn.plan")):
        (folder / torn).write_bytes((folder / name).read_bytes()[:200])
    (folder / "bad.yaml").write_text("layer: [{name: a, type: B}]\n")
    (folder / "card.yaml").write_text("title: none\n")
    (folder / "empty").write_text("")
    (folder / "folder").mkdir()
    return folder


def check(data: bytes, folder: Path) -> bool:
    argv = json.loads(data)
    if harmless(argv):
        return False
    shutil.copytree(shelf(), folder, dirs_exist_ok=True)
    failures = DIVERGES if "train" in argv or "test" in argv or "predict" in argv else "(?!)"
    return command(*argv, failures=failures).code == 0


def harmless(argv: list[str]) -> bool:
    """Whether a case would take minutes, or leave the folder: it is none of ours."""
    long = argv[:1] in (["tune"], ["search"]) and MODEL in argv  # plans hundreds of sizes of a real network
    return long or any(word in ("reproduce", "profile", "devices") or word.startswith("/") for word in argv)


KIND = Kind("arguments", lines(), check, 30)
