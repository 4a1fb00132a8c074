"""What the documents say is so: their listings are printed, a layer of one's own works, their links lead somewhere.

`make docs` runs what they show (tests/site)."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from minidnn.cli.verbs import VERBS
from minidnn.memory.policies import names
from tests.support.paths import ROOT

DOCUMENTS = [ROOT / name for name in ("README.md", "DESIGN.md", "CONTRIBUTING.md", "CHANGELOG.md")]
DOCUMENTS += [ROOT / folder / "README.md" for folder in ("tests", "benchmarks", "release")]
DOCUMENTS += sorted((ROOT / "docs").rglob("*.md"))


def blocks(path, language):
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), re.DOTALL)


def python(code, folder):
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_each_verb_has_a_question_that_it_answers():
    text = (ROOT / "docs" / "which-command.md").read_text()
    assert [verb for verb in VERBS if f"`minidnn {verb}" not in text] == []


def test_design_s_listing_is_what_the_program_prints():
    text = (ROOT / "DESIGN.md").read_text()
    (command,) = re.findall(r"`minidnn (plan [^`]*--listing)`", text)
    words = [sys.executable, "-m", "minidnn", *shlex.split(command)]
    printed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    shown = [
        line for block in blocks(ROOT / "DESIGN.md", "") for line in block.splitlines() if re.match(r" +\d+ \w", line)
    ]
    assert len(shown) > 10 and [line for line in shown if line not in printed] == []


@pytest.mark.slow
def test_a_layer_of_ones_own_trains(tmp_path):
    (code,) = blocks(ROOT / "CONTRIBUTING.md", "python")
    code += """
class Mine(minidnn.Net):
    def define(self, batch=16):
        x, label = L.Data(source="digits", batch_size=batch, scale=0.0625)
        x = L.InnerProduct(x, num_output=20, weight_filler={"type": "xavier"})
        x = L.InnerProduct(L.Cube(x, factor=0.5), num_output=10, weight_filler={"type": "xavier"})
        L.SoftmaxWithLoss(x, label)

for device in ("reference", "cpu"):
    with minidnn.Solver(Mine(), base_lr=0.003, momentum=0.9, max_iter=301, device=device, seed=1) as solver:
        first = solver.step(1).loss
        assert solver.step(300).loss < first / 3
"""
    python(code, tmp_path)


@pytest.mark.slow
def test_a_layer_of_ones_own_on_the_command_line(tmp_path):
    (code,) = blocks(ROOT / "CONTRIBUTING.md", "python")
    (tmp_path / "cube.py").write_text(code)
    layer = "{name: %s, type: %s, bottom: %s, top: %s, %s}"
    layers = [
        "{name: data, type: Input, top: [data, label], input_param: {shape: [{dim: [4, 3]}, {dim: 4}]}}",
        layer % ("cube", "Cube", "data", "cube", "cube_param: {factor: 2}"),
        layer % ("ip", "InnerProduct", "cube", "ip", "inner_product_param: {num_output: 2}"),
        "{name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}",
    ]
    (tmp_path / "net.yaml").write_text("name: n\nlayer:\n" + "".join(f"- {line}\n" for line in layers))
    text = (ROOT / "CONTRIBUTING.md").read_text()
    (option,) = re.findall(r"^minidnn train cube_solver.yaml (.*)$", text, re.MULTILINE)
    words = [sys.executable, "-m", "minidnn", "plan", "net.yaml", "--listing", *option.split()]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "cube.forward" in done.stdout, done.stderr


def test_every_policy_is_explained():
    text = (ROOT / "docs" / "policies.md").read_text()
    assert [name for name in names() if f"`{name}`" not in text] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    text = path.read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in target:
            assert (path.parent / target).exists(), target
