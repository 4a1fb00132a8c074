"""The planning verbs on a module: what they answer, at which batches, and what users read who ask what cannot be."""

from __future__ import annotations

import json

import pytest

from minidnn.cli.main import main
from minidnn.errors import InvalidInput
from tests.support import peers

pytestmark = pytest.mark.peer("torch")

FILE = """
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return F.gelu(self.linear(x))


class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width) for _ in range(3)))

    def forward(self, x):
        return self.blocks(x)


class Masked(Net):
    def __init__(self):
        super().__init__()
        self.mask = torch.ones(64)

    def forward(self, x):
        return self.blocks(x) * self.mask


class Branching(Net):
    def forward(self, x):
        return self.blocks(x) if x.sum() > 0 else x * self.blocks[0].linear.bias


def make(batch=32):
    net, x = Net(), torch.zeros(batch, 64)
    return net, (x, x), F.mse_loss, torch.optim.AdamW(net.parameters())


def named():
    x = torch.zeros(8, 64)
    return {"module": Net(), "args": (x, x), "loss": F.mse_loss, "optimizer": "sgd"}


def masked():
    return Masked(), (torch.zeros(8, 64), torch.zeros(8, 64)), F.mse_loss


def flat():
    x = torch.zeros(8, 64)
    return Net(), (x, torch.zeros(512)), lambda y, t: F.mse_loss(y.flatten(), t)


def branching():
    return Branching(), (torch.zeros(8, 64), torch.zeros(8, 64)), F.mse_loss


def lossless():
    return Net(), (torch.zeros(8, 64),)


def number():
    return 3


def misspelled():
    return {"modul": Net(), "args": ()}


def asking(width):
    return Net(width), (torch.zeros(8, width),)


def failing():
    return Net()(torch.zeros(8, 65))
"""
STATE = 2 * 4 * 3 * (64 * 64 + 64)  # bytes of AdamW's moments
FORMS = "(module, args), (module, args, loss)"


@pytest.fixture
def file(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return "train.py"


def document(capsys, *words):
    code = main([*words, "--torch", "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out)


def test_a_plan_has_bytes_by_role_lines_of_the_source_and_what_pytorch_takes(file, capsys):
    got = document(capsys, "plan", f"{file}:make", "--gpu", "rtx4090", "--policies", "liveness,sqrt_n")
    assert (got["net"], got["batch"], got["device"], got["format"]) == ("Net", 32, "rtx4090", "float32")
    plain, thrifty = got["rows"]
    roles = plain["role_bytes"]
    assert sum(roles.values()) == plain["live_peak_bytes"]
    parameters = 4 * 3 * (64 * 64 + 64)
    assert (roles["weights"], roles["optimizer_state"]) == (parameters, STATE)
    assert thrifty["peak_bytes"] <= plain["peak_bytes"]
    (peak, _) = got["peaks"]
    assert peak["policy"] == "liveness" and peak["live_bytes"] == plain["live_peak_bytes"]
    places = {r["name"]: r["place"] for r in peak["residents"]}
    assert any(name.startswith("blocks.") and place == "train.py:13" for name, place in places.items() if place)
    eager, checkpoint = got["pytorch"]
    assert (eager["pytorch_way"], checkpoint["pytorch_way"]) == ("eager", "checkpoint")
    assert eager["reserved_bytes"] >= eager["most_bytes"] >= parameters + STATE
    assert checkpoint["blocks"] == ["blocks.0", "blocks.1", "blocks.2"]


def test_people_read_the_peak_by_role_with_lines(file, capsys):
    assert main(["plan", f"{file}:named", "--torch"]) == 0
    out = capsys.readouterr().out
    assert "Net, batch 8" in out and "SGD has 0 B of state" in out
    assert "parameters 48.8 KiB" in out and "train.py:13" in out
    assert "PyTorch itself, predicted" in out and "checkpoint of each of 3 blocks (blocks.0, ...)" in out


def test_in_python_the_answer_shows_the_same_and_pictures_name_pytorch(capsys):
    import minidnn.torch

    net, x = peers.torch.nn.Sequential(peers.torch.nn.Linear(8, 8), peers.torch.nn.GELU()), peers.torch.zeros(4, 8)
    loss = peers.torch.nn.functional.mse_loss
    plans = minidnn.torch.plan(net, (x, x), loss=loss, optimizer="adamw", gpu="rtx4090")
    plans.show()
    out = capsys.readouterr().out
    assert "liveness: live bytes peak at" in out and "PyTorch itself, predicted" in out
    for drawn in (plans.picture(), plans.page()):
        assert "PyTorch itself, predicted" in drawn


def test_a_refusal_says_what_would_fit(file, capsys):
    words = ["plan", f"{file}:make", "--gpu", "rtx4090", "--policy", "liveness", "--budget", "12MiB"]
    assert main([*words, "--batch", "4096", "--torch", "--json"]) == 2
    text = json.loads(capsys.readouterr().out)["refused"]
    assert "train.py:13" in {r["place"] for r in text["worst"]["residents"]} and text["carried_stays"]
    assert any("--batch" in r["options"] for r in text["remedies"])
    assert {"format", "state", "no_fusion"}.isdisjoint(key for r in text["remedies"] for key in r["change"])


@pytest.mark.parametrize(("function", "largest"), [("make", True), ("named", True), ("flat", False)])
def test_the_largest_batch_is_searched_where_it_can_be_varied(function, largest, file, capsys):
    words = ["search", "--max", "batch", f"{file}:{function}", "--budget", "2MiB", "--policies", "liveness"]
    if largest:
        (row,) = document(capsys, *words)["rows"]
        assert row["batch"] > 64 and row["peak_bytes"] <= 2 << 20 < row["next_peak_bytes"]
        return
    assert main([*words, "--torch"]) == 2
    assert "train.py:flat: the batch cannot be changed" in capsys.readouterr().err


def test_both_ways_to_vary_the_batch_give_the_same_plan(file, capsys):
    made = document(capsys, "plan", f"{file}:make", "--batch", "16")
    assert made["batch"] == 16
    import minidnn.torch

    x = peers.torch.zeros(8, 64)
    blocks = [peers.torch.nn.Sequential(peers.torch.nn.Linear(64, 64), peers.torch.nn.GELU()) for _ in range(3)]
    net = peers.torch.nn.Sequential(*blocks)
    ours = minidnn.torch.plan(net, (x, x), loss=peers.torch.nn.functional.mse_loss, optimizer="adamw", batch=16)
    assert ours[0].peak_bytes == made["rows"][0]["peak_bytes"]


def test_cards_frontier_compare_and_board_take_modules(file, capsys):
    rows = document(capsys, "cards", f"{file}:make", "--gpus", "rtx3060,h100")["rows"]
    assert [r["gpu"] for r in rows] == ["rtx3060", "h100"] and all(r["fits"] and r["lossless"] for r in rows)
    points = document(capsys, "frontier", f"{file}:make", "--gpu", "h100", "--points", "2")["rows"]
    assert {r["policy"] for r in points} == {"best"}
    rows = document(capsys, "compare", f"{file}:make", "--gpu", "h100", "--policies", "baseline,liveness")["rows"]
    assert rows[0]["slowdown"] == 1.0
    words = ["board", f"{file}:make:64", "--gpus", "h100", "--budgets", "100%", "--policies", "liveness", "--jobs", "1"]
    (cell,) = document(capsys, *words)["rows"]
    assert (cell["net"], cell["batch"], cell["fits"]) == ("Net", 64, True)


def test_a_policy_that_finds_nothing_is_left_out_of_a_comparison_and_named(file, capsys):
    words = ["compare", f"{file}:make", "--gpu", "h100", "--torch", "--json", "--policies"]
    assert main([*words, "liveness,selective"]) == 0
    out, err = capsys.readouterr()
    assert [row["policy"] for row in json.loads(out)["rows"]] == ["liveness"]
    assert "minidnn: left out: selective runs the core of attention again, and TRAIN has none" in err
    assert main([*words, "selective"]) == 2
    assert "selective runs the core of attention again" in capsys.readouterr().err


def test_cards_and_board_count_what_the_libraries_of_each_gpu_keep(file, capsys):
    cards = {
        r["gpu"]: r["peak_bytes"] for r in document(capsys, "cards", f"{file}:make", "--gpus", "rtx3060,h100")["rows"]
    }
    plans = {gpu: document(capsys, "plan", f"{file}:make", "--gpu", gpu)["rows"][0]["arena_bytes"] for gpu in cards}
    assert cards == plans and cards["h100"] > cards["rtx3060"]
    words = ["--gpus", "rtx3060,h100", "--budgets", "100%", "--policies", "liveness", "--jobs", "1"]
    whole = {c["gpu"]: c["whole_bytes"] for c in document(capsys, "board", f"{file}:make", *words)["contests"]}
    assert whole == plans


def test_a_module_that_needs_numbers_is_allocated_and_says_so(file, capsys):
    assert main(["plan", f"{file}:masked", "--torch"]) == 0
    assert 'train.py:masked does not work on the device "meta"' in capsys.readouterr().err
    assert main(["plan", f"{file}:make", "--torch"]) == 0
    assert "meta" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("train.py:mak", "train.py: there is no function 'mak' (did you mean 'make'?)"),
        ("nowhere.py:make", "nowhere.py: there is no such file"),
        ("resnet50", "resnet50: with --torch, FILE names a Python file and a function in it"),
        ("train.py:Net", f"train.py:Net is not a function; expected a function that returns {FORMS}"),
        ("train.py:number", f"train.py:number returned int; expected {FORMS}"),
        ("train.py:misspelled", "train.py:misspelled returned 'modul' (did you mean 'module'?)"),
        ("train.py:asking", "train.py:asking takes width: give defaults"),
        ("train.py:failing", "train.py: RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
        ("train.py:lossless", "Net gives a tensor of shape (8, 64), where one number"),
        ("train.py:branching", "train.py:36 (Branching): the values of a tensor decide"),
    ],
)
def test_what_cannot_be_planned_is_named(source, says, file, capsys):
    assert main(["plan", source, "--torch"]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["plan", "--format", "float16"], "format is not for a module of PyTorch"),
        (["plan", "--state", "all"], "state is not for a module of PyTorch"),
        (["plan", "--ranks", "2,4"], "--ranks is for minidnn's own nets"),
        (["plan", "--loss"], "--loss is for minidnn's own nets"),
        (["plan", "--device", "cuda"], "planned for the cpu, or for a GPU's profile"),
        (["plan", "--policies", "liveness@2"], "these ops cannot run in parts: leave out @2"),
        (["search", "--max", "size"], "--max size is for minidnn's own nets"),
    ],
)
def test_options_that_a_module_has_no_use_for_are_refused(words, says, file, capsys):
    verb, *options = words
    assert main([verb, f"{file}:make", "--torch", *options]) == 2
    assert says in capsys.readouterr().err


def test_without_torch_a_file_that_makes_a_module_is_told_from_a_net(file, capsys):
    assert main(["plan", f"{file}:make"]) == 2
    assert "a function that returns a PyTorch module needs --torch" in capsys.readouterr().err


def test_values_of_python_are_checked():
    import minidnn.torch

    linear, x = peers.torch.nn.Linear(3, 3), peers.torch.zeros(2, 3)
    for given, says in [
        (dict(module=3, args=(x,)), "expected a torch.nn.Module, got int"),
        (dict(module=linear, args=(x,), loss=3), "or None if the module returns the loss, got int"),
        (dict(module=linear, args=(x,), loss=abs), "inputs and behind them the target, two or more; got 1"),
    ]:
        with pytest.raises(InvalidInput, match=says.replace("(", r"\(")):
            minidnn.torch.plan(**given)
