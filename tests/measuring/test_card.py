"""A GPU's profile is measured: on a card that is imitated by another profile the measured one is that, and the ops are
ones that the CUDA backend runs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from minidnn import costs
from minidnn.backends.cuda import at_hand
from minidnn.cli.main import main
from minidnn.costs import profiles
from minidnn.costs.roofline import GPU, Number
from minidnn.errors import InvalidInput
from minidnn.measuring import card
from minidnn.measuring.link import Link
from minidnn.memory.execution.device import Device, KernelFailed
from tests.support.cuda.fake import fake_device

SMALL = card.Probes(1 << 10, (32, 32, 16), (8, 8, 8), (4, 4, 64), (1, 4, 6))
TRUE = {
    "bandwidth": 0.91, "gemm": 0.81, "implicit_gemm": 0.44, "fast": 0.7, "launch_latency": 1.75e-6, "link_out": 4e10,
    "link_in": 3e10, "link_latency": 9e-6, "duplex_out": 0.8, "duplex_in": 0.6, "tensor": 0.4, "tile": 12000.0,
    "split": 3000.0, "workspace_maps": 0.75, "workspace_filters": 0.75,
}  # fmt: skip


class Imitated(Device):
    """A card on which ops take what a profile says."""

    name, description, memory = "cuda", "a card that a test imitates", 1 << 34

    def __init__(self, gpu: GPU) -> None:
        self.gpu = gpu

    def algorithms(self, op):
        return tuple(c.algorithm for c in self.gpu.choices(op))

    def timed(self, device, ops):
        for name, (op, algorithm) in ops.items():
            yield name, next(c.seconds for c in device.gpu.choices(op) if c.algorithm == algorithm)

    def link(self, device):
        g = self.gpu
        out, back = g.link_out.value, g.link_in.value
        return Link(out, back, out * g.duplex_out.value, back * g.duplex_in.value, g.link_latency.value)


def imitated(name: str, **numbers: float) -> GPU:
    return replace(costs.gpu(name), **{field: Number(value, "of the test") for field, value in numbers.items()})


def measured(base: GPU, true: GPU) -> GPU:
    full = Imitated(replace(true, tf32=False))
    tensor = None if true.tensor is None else Imitated(replace(true, tf32=True))
    return card.card(base, full, tensor, "the test", timed=full.timed, copies=full.link)


@pytest.mark.parametrize("name", ["h100", "rtx3060"])
def test_all_numbers_of_a_card_are_found(name):
    base = costs.gpu(name)
    found = measured(base, imitated(name, **TRUE))
    rows = card.changes(base, found)
    assert rows.keys() == TRUE.keys()
    assert {field: after for field, (_, after) in rows.items()} == {
        field: pytest.approx(value, rel=0.01) for field, value in TRUE.items()
    }
    assert all(before == vars(base)[field].value for field, (before, _) in rows.items())


def test_a_card_without_tensor_cores_and_with_workspaces_of_its_own_form():
    """Its convolutions' workspace is no part of their tensors, so that stays as it was."""
    numbers = {name: TRUE[name] for name in ("bandwidth", "gemm", "implicit_gemm", "fast", "tile", "split")}
    base = costs.gpu("titan_x")
    found = measured(base, imitated("titan_x", **numbers))
    assert {field: vars(found)[field].value for field in numbers} == {
        field: pytest.approx(value, rel=0.01) for field, value in numbers.items()
    }
    assert found.tensor is None and found.workspace_maps == base.workspace_maps


def test_the_file_is_a_profile(tmp_path):
    """Whatever a profile that comes with the package has; and each number keeps its source."""
    for name in ("h100", "titan_x", "orin"):
        file = tmp_path / f"{name}.yaml"
        file.write_text(profiles.text(costs.gpu(name)))
        again = costs.gpu(str(file))
        assert again.called == costs.gpu(name).called
        for field, value in vars(costs.gpu(name)).items():
            if isinstance(value, Number):
                assert vars(again)[field].value == pytest.approx(value.value, rel=1e-4)
                assert vars(again)[field].source == value.source
            else:
                assert vars(again)[field] == value


def test_the_cuda_backend_runs_what_is_timed():
    """On CUDA in the host's memory, in small; no number is asked for but that each is there."""
    device = fake_device()
    base = costs.gpu("h100")
    copies = Link(1.0, 1.0, 2.0, 1.0, 1e-6)
    found = card.card(base, device, device, "the test", SMALL, copies=lambda device: copies)
    surely = {"bandwidth", "gemm", "implicit_gemm", "fast", "launch_latency", "link_out", "duplex_in"}
    assert card.changes(base, found).keys() >= surely
    assert found.duplex_out.value == 1, "noise makes no copy quicker"


def test_an_algorithm_that_is_refused_is_left_out_and_none_is_an_error():
    true = imitated("h100", **TRUE)
    device = Imitated(replace(true, tf32=False))

    def refusing(all_of_them):
        def timed(device, ops):
            for name, (op, algorithm) in ops.items():
                if all_of_them or algorithm.name == "fast":
                    yield name, KernelFailed("no")
                else:
                    yield from device.timed(device, {name: (op, algorithm)})

        return timed

    found = card.card(costs.gpu("h100"), device, None, "the test", timed=refusing(False), copies=device.link)
    assert found.fast.value == pytest.approx(found.implicit_gemm.value)
    with pytest.raises(InvalidInput, match="cuda runs no algorithm of gradient"):
        card.card(costs.gpu("h100"), device, None, "the test", timed=refusing(True), copies=device.link)


def test_the_command(tmp_path, monkeypatch, capsys):
    base, true = costs.gpu("h100"), imitated("h100", **TRUE)
    opened = []

    def open_device(name, tf32):
        opened.append((name, tf32))
        return Imitated(replace(true, tf32=tf32))

    monkeypatch.setattr("minidnn.backends.open_device", open_device)
    monkeypatch.setattr(at_hand, "at_hand", lambda number: base)
    imitation, measure = Imitated(true), card.card
    monkeypatch.setattr(card, "card", lambda *args: measure(*args, timed=imitation.timed, copies=imitation.link))
    file = tmp_path / "card.yaml"
    assert main(["devices", "cuda:1", "--profile", str(file)]) == 0
    assert opened == [("cuda:1", False), ("cuda:1", True)]
    out = capsys.readouterr().out
    assert "launch_latency" in out and "2.5e-06" in out and "1.75e-06" in out and "--gpu" in out
    assert costs.profile(str(file)).duplex == (0.8, 0.6)
    assert "measured by `minidnn devices --profile` on a card that a test imitates" in file.read_text()
    assert main(["devices", "--profile", str(file), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "card" and len(document["rows"]) == len(TRUE)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--profile", "card.txt"], "--profile card.txt: "),
        (["cpu", "--profile", "card.yaml"], "only GPUs have a profile, and cpu is none"),
    ],
)
def test_what_has_no_profile_is_refused(args, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["devices", *args]) == 2
    assert message in capsys.readouterr().err
