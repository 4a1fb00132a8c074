"""benchmarks/cpu.py: the two sides compute the same, PyTorch's peak is counted to the byte, and what is told of it."""

from __future__ import annotations

import json
import os
import signal
import time
from itertools import accumulate, product
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks import budgets, cpu, nets, report, turns
from benchmarks.roof import Level, Roof
from benchmarks.turns import Failed, Side, Turn
from minidnn import L, Net, zoo
from minidnn.backends.cpu import CpuDevice
from minidnn.costs import measurements
from minidnn.optimizers import SGD
from minidnn.programs.build import programs
from minidnn.programs.spec import TrainSpec
from minidnn.report.plot import LEFT
from minidnn.training.session import Session

FIELDS = {
    "network", "batch", "policy", "seconds", "peer_seconds", "seconds_ratio", "peak_bytes", "peer_peak_bytes",
    "memory_ratio",
}  # fmt: skip


@pytest.fixture
def torch():
    import torch

    torch.set_num_threads(1)
    return torch


# ---- PyTorch's bytes, by hand


class Classifier(Net):
    """One inner product, and the loss."""

    def define(self, batch: int, inputs: int, outputs: int) -> None:
        x, label = L.Data(name="data", source=f"synthetic:{inputs}:classes={outputs}", batch_size=batch)
        L.SoftmaxWithLoss(L.InnerProduct(x, name="ip", num_output=outputs, bias_term=False), label, name="loss")


def peak(net: Net, layout: str = "contiguous") -> int:
    from benchmarks.peer import Peer, Trainer, first_weights

    batch = nets.batch_of(programs(net, nets.TRAIN, ("TRAIN",))["TRAIN"])
    peer = Peer(net.graph("TRAIN"), first_weights(net), "cpu", layout=layout)
    return Trainer(peer, {t.name: v for t, v in batch.items()}, nets.TRAIN, 1e-3).cpu_peak()


SCALARS = 64  # bytes: losses, sums of weights, counts


@pytest.mark.peer("torch")
def test_its_peak_where_weights_are_most(torch):
    """At the update: the weight, its momentum and gradient, and the gradient with the decay added to it."""
    batch, inputs, outputs = 4, 5000, 30
    weight, data, labels = 4 * inputs * outputs, 4 * batch * inputs, 8 * batch
    found = peak(Classifier(batch, inputs, outputs)) - (4 * weight + data + labels)
    assert 0 <= found <= SCALARS


@pytest.mark.peer("torch")
def test_its_peak_where_activations_are_most(torch):
    """At the softmax's backward: what it made forward, its gradient, and that of the scores, which are gone."""
    batch, inputs, outputs = 2048, 8, 64
    weight, data, labels, scores = 4 * inputs * outputs, 4 * batch * inputs, 8 * batch, 4 * batch * outputs
    found = peak(Classifier(batch, inputs, outputs)) - (2 * weight + data + labels + 3 * scores)
    assert 0 <= found <= SCALARS


# ---- PyTorch's numbers


class Norms(Net):
    """Norms of groups of images and of tokens."""

    def define(self, batch: int = 2) -> None:
        x, label = L.Data(name="data", source="synthetic:6x8x8:classes=5", batch_size=batch)
        x = L.InstanceNorm(L.GroupNorm(x, num_groups=3), eps=0.1)
        x = L.GroupNorm(L.Reshape(x, shape={"dim": [0, 0, -1]}), num_groups=2, affine=False)
        L.SoftmaxWithLoss(L.InnerProduct(x, num_output=5, weight_filler={"type": "xavier"}), label, name="loss")


@pytest.mark.parametrize(
    "make",
    [
        lambda: zoo.MADE["vit_b"](batch=2, size=32, width=24, blocks=2, heads=2),
        lambda: zoo.MADE["convnext_tiny"](batch=2, size=64, depths=(1, 1, 2, 1), width=8),
        lambda: zoo.MADE["swin_t"](batch=2, size=32, depths=(2, 2), width=8, heads=(2, 4), window=4),
        Norms,
        lambda: zoo.MADE["gpt2"](batch=2, seq=6, width=24, blocks=2, heads=2, vocabulary=31),
    ],
    ids=["vit", "convnext", "swin", "norms", "gpt2"],
)
@pytest.mark.peer("torch")
def test_loss_and_gradients_are_its(torch, make):
    """Our gradients are what a step of rate 1 takes from the weights."""
    from benchmarks.peer import Peer, first_weights

    net = nets.without_dropout(make())
    random = np.random.default_rng(0)
    weights = {  # ones and zeros say little
        k: (v + 0.1 * random.standard_normal(v.shape)).astype(np.float32) for k, v in first_weights(net).items()
    }
    shared: dict[str, np.ndarray] = {}
    for node in net.graph("TRAIN").layers:
        for key, p in ((f"{node.name}/{p.name}", p) for p in node.parameters if p.tensor):
            weights[key] = shared.setdefault(p.tensor, weights[key])
    keys = [(key, *key.rsplit("/", 1)) for key in weights]
    with Session(net, TrainSpec(SGD(momentum=0.0, weight_decay=0.0)), ("TRAIN",), device="cpu") as session:
        for key, layer, blob in keys:
            session.params[layer][blob] = weights[key]
        batch = nets.batch_of(session.programs["TRAIN"], 1.0)
        for tensor, value in batch.items():
            session.machine.write(tensor, value, "TRAIN")
        loss = turns.train(session)
        ours = {key: weights[key] - session.params[layer][blob] for key, layer, blob in keys}
    peer = Peer(net.graph("TRAIN"), weights, "cpu", drop=False)
    given = {t.name: torch.from_numpy(np.ascontiguousarray(value)) for t, value in batch.items()}
    theirs = peer(*(v.long() if (v := given[b.name]).dtype == torch.int32 else v for b in peer.inputs))
    theirs.backward()
    assert loss == pytest.approx(float(theirs.detach()), rel=1e-5)
    for name, parameter in peer.named_parameters():
        wanted = parameter.grad.numpy()
        np.testing.assert_allclose(
            ours[name], wanted, rtol=1e-3, atol=1e-4 * max(1, np.abs(wanted).max()), err_msg=name
        )


def lenet(nn):
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.MaxPool2d(2, 2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2, 2), nn.Flatten(),
        nn.Linear(800, 500), nn.ReLU(True), nn.Linear(500, 10),
    )  # fmt: skip


def cifar10_quick(nn):
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2), nn.MaxPool2d(3, 2, ceil_mode=True), nn.ReLU(),
        nn.Conv2d(32, 32, 5, padding=2), nn.ReLU(True), nn.AvgPool2d(3, 2, ceil_mode=True),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(True), nn.AvgPool2d(3, 2, ceil_mode=True),
        nn.Flatten(), nn.Linear(1024, 64), nn.Linear(64, 10),
    )  # fmt: skip


@pytest.mark.parametrize("layout", cpu.LAYOUTS)
@pytest.mark.parametrize("make, shape", [(lenet, (8, 1, 28, 28)), (cifar10_quick, (8, 3, 32, 32))])
@pytest.mark.peer("torch")
def test_its_peak_is_that_of_a_module_written_by_hand(torch, make, shape, layout):
    """Nothing that Peer itself holds on to is counted against PyTorch, and every convolution has its layout, also
    behind an image of one channel (for which a tensor is contiguous in both: PyTorch then goes by strides)."""
    from benchmarks.peer import LAYOUTS

    module = make(torch.nn).to(memory_format=LAYOUTS[layout])
    optimizer = torch.optim.SGD(module.parameters(), 1e-3, momentum=0.9, weight_decay=5e-4)
    x, y = torch.randn(shape).to(memory_format=LAYOUTS[layout]), torch.randint(0, 10, (8,))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()

    step()
    optimizer.zero_grad(set_to_none=True)
    with torch.profiler.profile(profile_memory=True) as seen:
        step()
    changes = [e.nbytes() for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    weights = 4 * sum(p.numel() for p in module.parameters())
    by_hand = 2 * weights + 4 * x.numel() + 8 * len(y) + max(accumulate(changes))
    assert peak(nets.found(make.__name__, 8), layout) == pytest.approx(by_hand, abs=SCALARS)


# ---- both, for real


@pytest.fixture
def cache(own_cache):
    """A cache of its own, in which kernels are compiled already and the copies' speed is known."""
    known = measurements(CpuDevice(threads=1))
    known.bandwidth_out = known.bandwidth_in = 1e10
    known.beside = [
        {
            "bound_by": kind, "op": "any", "bandwidth_out": 1e10, "bandwidth_in": 1e10, "slower": 1.0, "drag_out": 0.0,
            "drag_in": 0.0,
        }
        for kind in ("memory", "arithmetic")
    ]  # fmt: skip
    known.save()


@pytest.mark.peer("torch")
def test_a_small_net_beside_pytorch(torch, cache, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(cpu, "SIDES", (256,))
    (tmp_path / "results").mkdir()
    monkeypatch.setattr(cpu, "RESULTS", tmp_path / "results")
    argv = ["--networks", "lenet:4", "--policies", "liveness:p", "--rounds", "1", "--threads", "1", "--json", "--save"]
    assert cpu.main(argv) == 0
    out, err = capsys.readouterr()
    assert "lenet, 4, liveness:p" in err
    document = json.loads(out)
    (row,) = document["rows"]
    assert row.keys() > FIELDS and (row["network"], row["batch"], row["policy"]) == ("lenet", 4, "liveness:p")
    assert row["seconds"] > 0 and row["seconds_ratio"] == row["seconds"] / row["peer_seconds"]
    assert row["memory_ratio"] == row["peak_bytes"] / row["peer_peak_bytes"]
    weights = 4 * 431_080
    assert 2 * weights < row["peak_bytes"] < row["peer_peak_bytes"] and 3 * weights < row["peer_peak_bytes"]
    assert row["losses"] == pytest.approx(row["peer_losses"], rel=1e-5) and len(set(row["losses"])) == nets.COMPARED
    fastest = min(row["peers"], key=lambda peer: peer["seconds"])
    assert (row["peer_settings"], row["peer_layout"]) == (fastest["settings"], fastest["layout"])
    assert {(p["settings"], p["layout"]) for p in row["peers"]} == set(product(cpu.SETTINGS, cpu.LAYOUTS))
    assert row["default_seconds"] == min(p["seconds"] for p in row["peers"] if p["settings"] == "default")
    assert row["roof"]["flops"] == max(row["roof"]["rates"].values()) > 1e9 and 0 < row["roof_seconds"] < row["seconds"]
    written = {path.suffix: path.read_text() for path in cpu.RESULTS.iterdir()}
    assert json.loads(written[".json"]) == document and set(written) == {".json", ".md", ".svg"}
    assert "| lenet | 4 | liveness:p |" in written[".md"]


@pytest.mark.slow
def test_a_small_net_under_budgets(cache, capsys, monkeypatch, tmp_path):
    (tmp_path / "results").mkdir()
    monkeypatch.setattr(budgets, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(budgets, "TURN", 0)
    policies, few = "vdnn_all:m,vdnn_all:p,liveness:p", ["--points", "2", "--rounds", "1", "--threads", "1"]
    assert budgets.main(["--network", "lenet:4", "--policies", policies, *few, "--json", "--save"]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = {row["policy"]: row for row in document["rows"]}
    assert set(rows) == {"vdnn_all:m", "vdnn_all:p", "liveness:p"}
    for row in rows.values():
        assert row["peak_bytes"] <= row["budget_bytes"] and row["seconds"] > 0
        assert row["predicted_ratio"] > 0 and row["over_liveness"] > 0
    assert rows["vdnn_all:m"]["offload_bytes"] > rows["liveness:p"]["offload_bytes"] == 0
    assert rows["vdnn_all:m"]["peak_bytes"] < rows["liveness:p"]["peak_bytes"]
    written = {path.suffix: path for path in budgets.RESULTS.iterdir()}
    assert json.loads(written[".json"].read_text()) == document and set(written) == {".json", ".svg"}
    drawn = ElementTree.parse(written[".svg"]).getroot()
    dots = [float(e.get("cx", "nan")) for e in drawn.iter() if e.tag.endswith("circle")]
    assert len(dots) == 2 * len(document["rows"]) and min(dots) > LEFT and max(dots) < float(drawn.get("width"))


def test_a_small_net_within_parts_of_its_memory(cache, capsys, monkeypatch):
    monkeypatch.setattr(budgets, "TURN", 0)
    few = ["--parts", "110,20", "--rounds", "1", "--threads", "1"]
    assert budgets.main(["--network", "lenet:4", "--policies", "best,liveness:p", *few]) == 0
    said = capsys.readouterr().out.splitlines()
    assert sum(" is the quickest of 2, " in line for line in said) == 1
    assert sum(": no policy keeps it; the bound asks for " in line for line in said) == 1, "a fifth"


def test_who_is_the_quickest_within_a_budget():
    rows = [
        {"policy": "a", "budgets_bytes": [1 << 20], "rounds": [2.0, 2.2, 2.1], "liveness_rounds": [2.0, 2.0, 2.0]},
        {"policy": "b", "budgets_bytes": [1 << 20, 2 << 20], "rounds": [4.2, 4.6, 4.6], "liveness_rounds": [4.0] * 3},
        {"policy": "c", "budgets_bytes": [2 << 20], "rounds": [9.0, 9.0, 9.0], "liveness_rounds": [3.0] * 3},
    ]
    document = {"rows": rows, "budgets_bytes": [1 << 19, 1 << 20, 2 << 20], "least_bytes": 3 << 18}
    assert list(budgets.ranks(document)) == [
        "512 KiB: no policy keeps it; the bound asks for 768 KiB",
        "1.00 MiB: a is the quickest of 2, 1.050 of liveness; within the spread b",
        "2.00 MiB: b is the quickest of 2, 1.150 of liveness",
    ]


# ---- what is told


ROOF = Roof.of({"multiply-add in registers": 4e11, "our product": 3e11}, [Level(None, 2e10, 1e10, 3e10)])


def row(**values):
    """One of vgg16, as it might be."""
    found = {
        "network": "vgg16", "batch": 4, "policy": "liveness:p", "seconds": 1.1, "peer_seconds": 2.0,
        "seconds_ratio": 0.55, "peak_bytes": 17 << 20, "peer_peak_bytes": 20 << 20, "memory_ratio": 0.85,
        "peer_settings": "tuned", "peer_layout": "channels_last", "default_ratio": 0.4, "roof_seconds": 0.9,
        "roof": ROOF.document(), "others_share": 0.01, "device": "oneDNN", "peer": "PyTorch 2.13.0",
        "rounds": [1.0, 1.1, 1.3], "peer_rounds": [2.0, 2.0, 2.0],
    }  # fmt: skip
    return found | values


def document(*rows):
    machine = {"cpu": "Some <CPU> @ 2 GHz", "cores": 2, "memory_bytes": 24 << 30, "system": "Linux 6", "python": "3.11"}
    run = {"date": "2026-11-21", "commit": "abc", "threads": 2, "rounds": 7, "busy": 0.05, "avx2": False}
    return {"rows": rows, "machine": machine, **run}


def test_goals_are_the_issue_s():
    assert report.goals(row()) == (0.36, 0.85)
    assert report.goals(row(network="lenet", batch=64)) == (0.5, 1.0)
    assert report.goals(row(network="gpt2", batch=4, seq=512)) == (0.8, 0.7)
    assert report.goals(row(network="resnet50", batch=8, policy="recompute_cheap:p")) == (None, 0.65)
    assert report.goals(row(network="vgg19")) == report.goals(row(batch=8)) == (None, None)
    assert {":".join(map(str, net)) for net in report.LIVENESS} == set(cpu.NETWORKS.split(","))


def test_the_spread_of_the_rounds_is_shown():
    assert "| 0.55 | 0.50–0.65 | 0.36 |" in report.markdown(document(row()))


def test_the_roof_is_said():
    told = report.markdown(document(row()))
    assert "400 GFLOP/s (multiply-add in registers 400, our product 300); GB/s of memory: read 20" in told
    assert "| 1.10 s | 900 ms | 2.00 s |" in told


def test_a_busy_machine_is_said(capsys):
    report.show(document(row()))
    assert "not idle" not in capsys.readouterr().out
    report.show(document(row(), row(others_share=0.4)))
    assert "others took up to 40% of it" in capsys.readouterr().out
    report.show(document(row(others_share=None)))
    assert "not idle" not in capsys.readouterr().out


def test_results_of_avx2_alone_say_so_and_have_files_of_their_own(capsys):
    whole, held = document(row()), {**document(row()), "avx2": True}
    report.show(held)
    assert "Both are held to AVX2" in capsys.readouterr().out
    older = document({**row(), "device": "oneDNN 3.2.0 (OpenMP, 2 threads, AVX2)"})
    assert report.stem(held) == report.stem(older) == f"{report.stem(whole)}-avx2"


def test_the_picture_is_svg_and_keeps_within_it():
    drawn = ElementTree.fromstring(report.picture(document(row(), row(network="lenet", seconds_ratio=7.25))))
    words = " ".join("".join(e.itertext()) for e in drawn.iter())
    assert "7.25" in words and "Some <CPU>" in words and "vgg16, 4, liveness:p" in words
    width = float(drawn.get("width"))
    bars = [e for e in drawn.iter() if e.tag.endswith("rect")]
    assert max(float(e.get("x", 0)) + float(e.get("width", 0)) for e in bars) <= width


# ---- what goes wrong


@pytest.mark.parametrize(
    "argv, says",
    [
        (["--networks", "lenett:4"], "did you mean 'lenet'"),
        (["--networks", "lenet:0"], "expected NET, NET:BATCH or NET:BATCH:TOKENS"),
        (["--networks", "lenet:"], "expected NET, NET:BATCH or NET:BATCH:TOKENS"),
        (["--networks", "nothing_like_it:4"], "there are alexnet"),
        (["--networks", "lenet:4:8"], "net LeNet: no Data layer gives tokens"),
        (["--policies", "livenes:p"], "did you mean 'liveness'"),
    ],
)
def test_bad_arguments_say_what_there_is(argv, says, capsys, monkeypatch):
    monkeypatch.setattr(cpu.importlib.util, "find_spec", lambda name: object())
    assert cpu.main(argv) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1


def test_without_pytorch_it_says_how_to_get_it(capsys, monkeypatch):
    monkeypatch.setattr(cpu.importlib.util, "find_spec", lambda name: None)
    assert cpu.main([]) == 2
    assert "pip install 'minidnn[peer]'" in capsys.readouterr().err


def test_other_losses_are_no_comparison():
    cpu._agree("liveness:p", [2.3, 2.2], "contiguous", [2.3001, 2.2])
    for theirs in ([2.31, 2.2], [2.3, 2.3], [float("nan"), 2.2]):
        with pytest.raises(Failed, match="do not compute the same"):
            cpu._agree("liveness:p", [2.3, 2.2], "contiguous", theirs)


@pytest.mark.slow
def test_a_turn_leaves_the_first_short_step_out(monkeypatch):
    monkeypatch.setattr(turns, "SHORT", 3600)  # however slow the machine, a step is short
    taken = []
    turn = turns._timed(lambda: taken.append(time.sleep(0.06)) or 1.0)
    assert len(turn.seconds) == len(taken) - 1
    assert sum(turn.seconds[:-1]) < turns.TURN <= sum(turn.seconds)
    assert 0 <= turn.cpu * len(turn.seconds) <= turn.whole
    with pytest.raises(ArithmeticError, match="the loss has become nan"):
        turns._timed(lambda: time.sleep(turns.TURN) or float("nan"))


class Fake:
    """A side that does as it is told."""

    def __init__(self, tell):
        self.tell = tell

    def turn(self, case):
        self.tell(0, 1, case)
        return Turn([0.1, 0.3, 0.2], 0.2, 0.6)

    def variable(self, name):
        return os.environ.get(name)

    def fail(self):
        raise ValueError("of no use")

    def sleep(self):
        time.sleep(3600)  # longer than any test may take

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_sides_answer_fail_and_end():
    side, heard = Side(Fake), []
    try:
        turns, others = cpu._rounds([(side, ("a", "a")), (side, ("a", "b"))], 2, lambda *what: heard.append(what[2]))
        assert [len(taken) for taken in turns.values()] == [2, 2] and turns["a", "b"][0].seconds == [0.1, 0.3, 0.2]
        assert heard == ["round 1: a", "round 1: a, b", "round 2: a, b", "round 2: a"]  # the order alternates
        assert others is None or 0 <= others <= 1.5
        with pytest.raises(Failed, match="ValueError: of no use") as error:
            side.ask("fail")
        assert "in fail" in error.value.where
        with pytest.raises(Failed, match="killed, perhaps because memory ran out"):
            side.ask("die")
    finally:
        side.close()
    assert not side.process.is_alive()


@pytest.mark.slow
def test_a_side_has_variables_of_its_own(monkeypatch):
    monkeypatch.setenv("HERE", "as before")
    side = Side(Fake, environment={"HERE": "other", "THERE": "new"})
    try:
        assert [side.ask("variable", name) for name in ("HERE", "THERE")] == ["other", "new"]
        assert os.environ["HERE"] == "as before" and "THERE" not in os.environ
    finally:
        side.close()


@pytest.mark.slow
def test_a_side_that_is_at_work_is_interrupted(monkeypatch):
    monkeypatch.setattr(turns, "PATIENCE", None)
    side = Side(Fake)
    side.ask("turn", "warm")
    side.pipe.send(("sleep", ()))
    side.close()
    assert side.process.exitcode == 0  # it neither slept to its end nor had to be killed


def test_what_was_done_is_kept_when_it_is_interrupted(monkeypatch, capsys):
    def compared(net, *rest):
        if net.name == "vgg16":
            raise KeyboardInterrupt
        yield row(network=net.name)

    monkeypatch.setattr(cpu, "compared", compared)
    args = SimpleNamespace(policies=["liveness:p"], threads=2, rounds=1, again=False, traceback=False)
    rows, code = cpu._run([nets.Asked("lenet", 64), nets.Asked("vgg16", 4), nets.Asked("alexnet", 32)], args)
    assert code == 130 and [r["network"] for r in rows] == ["lenet"]
    assert "vgg16, 4: interrupted" in capsys.readouterr().err


def test_a_net_that_cannot_be_compared_does_not_end_the_others(monkeypatch, capsys):
    def compared(net, *rest):
        if net.name == "vgg16":
            raise Failed("they do not compute the same")
        yield row(network=net.name)

    monkeypatch.setattr(cpu, "compared", compared)
    args = SimpleNamespace(policies=["liveness:p"], threads=2, rounds=1, again=False, traceback=False)
    rows, code = cpu._run([nets.Asked("vgg16", 4), nets.Asked("lenet", 64)], args)
    assert code == 1 and [r["network"] for r in rows] == ["lenet"]
    assert "do not compute the same" in capsys.readouterr().err
