"""What editors and type checkers know of minidnn: errors for what is wrong, none for what is right."""

import os
import re
from pathlib import Path

import pytest

import minidnn

ROOT = Path(minidnn.__file__).parents[1]

RIGHT = """
import minidnn
from minidnn import L, Net, Session, Solver


class Small(Net):
    def define(self, batch: int = 8) -> None:
        x, label = L.Data(source="digits", batch_size=batch)
        x = L.InnerProduct(x, num_output=10)
        L.SoftmaxWithLoss(x, label)


plans = minidnn.plan(Small(), ["vdnn_all", "best"], budget="64MiB", gpu="titan_x")
peak: int = plans[0].peak_bytes
seconds: list[float] = [row.step_seconds for row in plans]
best: int | None = minidnn.tune("lenet", budget=1 << 20).document.best
layers = minidnn.show(minidnn.load("lenet")).rows[0].parameters + peak
found = minidnn.search("resnet50", "batch", "vdnn_all", budget="12GB")
next_batch: int | None = found[0].next
share: float = minidnn.time("lenet", device="cpu").rows[0].share
with Solver(Small(), base_lr=0.01, budget="64MiB", max_iter=10) as s:
    s.step(3)
with Session("digits_lenet", budget="1GiB") as session:
    print(session.params)
"""
WRONG = {
    'minidnn.Solverr("a.yaml")': 'Module has no attribute "Solverr"',
    'minidnn.Solver("a.yaml").stepp(3)': '"Solver" has no attribute "stepp"',
    'minidnn.Solver("a.yaml", budget=[])': 'Argument "budget" to "Solver" has incompatible type',
    'minidnn.plan("lenet", budget=[])': 'Argument "budget" to "plan" has incompatible type',
    'minidnn.plan("lenet")[0].peek_bytes': '"PolicyRow" has no attribute "peek_bytes"',
    'minidnn.search("lenet", "width")': 'Argument 2 to "search" has incompatible type',
    'minidnn.compare("lenet", batsh=3)': 'Unexpected keyword argument "batsh" for "compare"',
    "minidnn.frontier(3)": 'Argument 1 to "frontier" has incompatible type',
}


@pytest.mark.slow
def test_mypy_strict_of_a_user_s_files(tmp_path, monkeypatch):
    api = pytest.importorskip("mypy.api")
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text("import minidnn\n\n" + "\n".join(WRONG) + "\n")
    (tmp_path / "mypy.ini").write_text("[mypy]\n")
    options = ["--strict", "--follow-imports=silent", "--cache-dir", os.devnull]
    out, err, code = api.run([*options, "right.py", "wrong.py"])
    assert code == 1 and not err and "right.py" not in out, out
    told = dict(re.findall(r"^wrong\.py:(\d+): error: (.*?)(?:  \[|$)", out, re.M))
    assert sorted(map(int, told)) == [3 + number for number in range(len(WRONG))]
    for number, words in enumerate(WRONG.values()):
        assert words in told[str(3 + number)]


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Solverr'"):
        minidnn.Solverr  # noqa: B018
    assert {"plan", "compare", "search", "tune", "frontier", "time", "show", "Solver"} <= set(dir(minidnn))
