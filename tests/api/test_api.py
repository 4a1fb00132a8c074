"""The functions do what the commands do, and their values come as rows, tables, pictures and files."""

import csv
import html
import json
import re
import sys
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

import minidnn
from minidnn import L, sizes
from minidnn.cli.main import main
from minidnn.errors import InvalidInput
from minidnn.report import raster

NET = """name: small
layer:
- {name: data, type: Input, top: [data, label], input_param: {shape: [{dim: [4, 3, 12, 12]}, {dim: [4]}]}}
- {name: conv1, type: Convolution, bottom: data, top: conv1, convolution_param: {num_output: 8, kernel_size: 3, pad: 1}}
- {name: relu1, type: ReLU, bottom: conv1, top: conv1}
- {name: pool, type: Pooling, bottom: conv1, top: pool, pooling_param: {pool: MAX, kernel_size: 2, stride: 2}}
- {name: fc, type: InnerProduct, bottom: pool, top: fc, inner_product_param: {num_output: 5}}
- {name: loss, type: SoftmaxWithLoss, bottom: [fc, label], top: loss}
"""
TIMES = ("search_seconds",)  # what differs from one call to the next


@pytest.fixture
def folder(tmp_path, own_cache, monkeypatch):
    (tmp_path / "small.yaml").write_text(NET)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def net():
    return minidnn.Net.from_text(NET)


CALLS = {
    "plan": (("--policies", "baseline:m,vdnn_all:m"), {"policies": ["baseline:m", "vdnn_all:m"]}),
    "compare": (("--policies", "baseline:m,best"), {"policies": "baseline:m,best"}),
    "frontier": (("--points", "2"), {"points": 2}),
    "search": (("--max", "batch", "--policy", "liveness:m"), {"max": "batch", "policy": "liveness:m"}),
    "tune": (("--grid", "64", "--policy", "liveness:m"), {"grid": 64, "policy": "liveness:m"}),
    "time": ((), {}),
}


@pytest.mark.parametrize("verb", CALLS)
def test_a_function_returns_what_its_command_prints(verb, folder, capsys):
    options, keywords = CALLS[verb]
    budget = () if verb in ("frontier", "time") else ("--budget", "500KiB")
    assert main([verb, "small.yaml", "--gpu", "titan_x", *options, *budget, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    given = {"budget": budget[1]} if budget else {}
    found = getattr(minidnn, verb)("small.yaml", gpu="titan_x", **keywords, **given)
    returned = json.loads(found.to_json())
    for document in (printed, returned):
        for row in document["rows"]:
            for name in TIMES:
                row.pop(name, None)
    assert returned == printed and printed["kind"] == verb
    assert [dict(row) for row in found] == [dict(found[i]) for i in range(len(found))] and len(found) > 0


def test_a_net_of_python_and_a_budget_that_is_refused(net):
    found = minidnn.plan(net, "baseline:m", gpu="titan_x", budget="20KiB")
    assert not found[0].fits and "the budget is 20.0 KiB" in found[0].why
    told = found.explain()
    assert told is found.document.refused and told.limit_bytes == 20 * 1024 and told.remedies
    needs = sizes.text(found[0].peak_bytes)
    assert repr(found) == f"<Plans: small, batch 4, in 20.0 KiB; 1 row\n baseline:m: {needs}, refused>"
    assert minidnn.plan(net, ["baseline:m", "best"], gpu="titan_x", budget="20KiB").explain() is None


def test_a_notebook_shows_tables_and_pictures(net):
    found = minidnn.plan(net, ["baseline:m", "vdnn_all:m"], gpu="titan_x")
    html = found._repr_html_()
    assert html.count("text-align:left") == 3 * html.count("<tr>") and html.count("text-align:right") > 9
    assert html.count("<tr>") == 3 and "vdnn_all:m" in html and "<script" not in html
    picture = ElementTree.fromstring(html[html.index("<svg") :])
    assert picture.tag.endswith("svg")
    assert repr(found.schedule("vdnn_all:m")).startswith("<schedule of TRAIN: ")
    assert "Convolution" in net._repr_html_() and "4×8×12×12" in net._repr_html_()
    assert len(repr(found.schedule("vdnn_all:m").plan)) < 80 and len(repr(found.results[0].arrangement)) < 80


def test_reprs_are_short_and_say_what_came_of_it(net):
    plans = minidnn.plan(net, ["baseline:m", "vdnn_all:m", "liveness:m", "best", "l2l"], gpu="titan_x")
    answers = [plans, minidnn.show(net), minidnn.time(net, gpu="k40"), minidnn.frontier(net, points=2, gpu="k40")]
    others = [net, net.graph("TRAIN"), minidnn.L, plans.results[0].arrangement.schedules["TRAIN"].program]
    for one in (*answers, *(a.document for a in answers), *(a[0] for a in answers), *others):
        lines = repr(one).splitlines()
        assert len(lines) <= 5 and len(repr(one)) < 450 and not re.search(r"object at 0x", repr(one))
    title, *told, more = repr(plans).splitlines()
    assert title == "<Plans: small, batch 4; 5 rows" and more == " and 2 more>"
    assert told[0].startswith(" baseline:m: ") and told[0].endswith("s") and len(told) == 3
    learned = sum(row.parameters for row in answers[1])
    assert repr(net) == f"<net 'small': 6 layers, {learned:,} parameters, inputs data 4x3x12x12, label 4>"


def test_every_answer_has_a_page_and_says_where_it_draws_nothing(net, tmp_path):
    for answer, draws in ((minidnn.show(net), False), (minidnn.frontier(net, points=2, gpu="k40"), True)):
        answer.save(tmp_path / "page.html")
        page = (tmp_path / "page.html").read_text()
        assert page.startswith("<!doctype html>") and ("<svg" in page) == draws
        assert all(html.escape(cell) in page for line in answer.cells()[1] for cell in line)
        assert page.count("<h1>") == 1 and all(
            html.escape(sentence) in page for sentence in answer.look.sentences(answer.document)
        )


def test_show_counts_what_the_layers_have(net):
    found = minidnn.show(net)
    by = {row.layer: row for row in found}
    assert (by["conv1"].parameters, by["fc"].parameters, by["pool"].parameters) == (8 * 27 + 8, 5 * 288 + 5, 0)
    assert by["conv1"].flops == 2 * 4 * 12 * 12 * 8 * 27 and by["pool"].shapes == [[4, 8, 6, 6]]
    assert by["conv1"].top_bytes == 4 * 4 * 8 * 12 * 12
    document = found.document
    assert document.parameters == sum(row.parameters for row in found) and document.batch == 4
    assert minidnn.show(net, batch=8).document.flops == 2 * document.flops


def test_show_needs_no_loss_and_counts_a_shared_parameter_once():
    class Twins(minidnn.Net):
        def define(self):
            x = L.Input(shape={"dim": [2, 3]})
            shared = {"num_output": 4, "param": [{"name": "w"}, {"name": "b"}]}
            L.InnerProduct(x, name="one", **shared)
            L.InnerProduct(x, name="two", **shared)

    assert [row.parameters for row in minidnn.show(Twins())] == [0, 16, 0]


def test_files_by_their_suffix(net, tmp_path):
    found = minidnn.plan(net, ["baseline:m", "vdnn_all:m"], gpu="titan_x")
    for suffix in (".csv", ".json", ".svg", ".html"):
        found.save(tmp_path / f"plan{suffix}")
    with open(tmp_path / "plan.csv", newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["policy"], int(second["peak_bytes"])) == ("baseline:m", found[1].peak_bytes)
    assert json.loads(second["role_bytes"]) == found[1].role_bytes and first["why"] == ""
    assert json.loads((tmp_path / "plan.json").read_text()) == found.document.plain()
    assert (tmp_path / "plan.svg").read_text().startswith("<svg")
    assert (tmp_path / "plan.html").read_text().startswith("<!doctype html>")
    with pytest.raises(InvalidInput, match=r"ends in \.html or \.svg or \.png or \.csv or \.json"):
        found.save(tmp_path / "plan.xlsx")
    with pytest.raises(
        InvalidInput, match=r"save .*: it is drawn as a table alone: expected a name that ends in \.html or"
    ):
        minidnn.show(net).save(tmp_path / "net.svg")


def test_a_picture_of_pixels_takes_a_package(net, tmp_path, monkeypatch):
    found = minidnn.plan(net, ["baseline:m", "vdnn_all:m"], gpu="titan_x")
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    with pytest.raises(InvalidInput, match=r"pip install 'minidnn\[png\]'"):
        found.save(tmp_path / "plan.png")
    seen = []
    fake = SimpleNamespace(svg2png=lambda bytestring, scale: seen.append(bytestring))
    monkeypatch.setitem(sys.modules, "cairosvg", fake)
    others = (
        minidnn.frontier(net, points=2, gpu="titan_x"),
        minidnn.tune(net, grid=1 << 20, gpu="titan_x", policy="liveness:m"),
    )
    for answer in (found, *others):
        raster.png(answer.picture())
        assert b"var(" not in seen[-1] and b"<svg" in seen[-1]
    assert b"fill: #fcfcfb" in seen[0], "the light page's paper"


@pytest.mark.peer("cairosvg")
def test_pixels_are_drawn(net, tmp_path):
    try:
        raster.library()
    except InvalidInput as without_cairo:
        pytest.skip(str(without_cairo))
    minidnn.plan(net, "vdnn_all:m", gpu="titan_x").save(tmp_path / "plan.png")
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_a_command_writes_the_same_files(folder, capsys):
    assert main(["show", "small.yaml", "--report", "layers.csv", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    with open("layers.csv", newline="") as file:
        assert [row["layer"] for row in csv.DictReader(file)] == [row["layer"] for row in shown["rows"]]
    assert main(["show", "small.yaml", "--report", "layers.txt"]) == 2
    assert "--report layers.txt: expected a name that ends in .html or .csv or .json" in capsys.readouterr().err


def test_a_data_frame_takes_a_package(net, monkeypatch):
    found = minidnn.plan(net, ["baseline:m", "vdnn_all:m"], gpu="titan_x")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InvalidInput, match=r"pip install 'minidnn\[pandas\]'"):
        found.to_pandas()


@pytest.mark.peer("pandas")
def test_a_data_frame(net):
    frame = minidnn.plan(net, ["baseline:m", "vdnn_all:m"], gpu="titan_x").to_pandas()
    assert list(frame["policy"]) == ["baseline:m", "vdnn_all:m"] and frame["peak_bytes"].dtype.kind == "i"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda net: minidnn.plan(net, budget="much", gpu="k40"), "budget: 'much' is not a size"),
        (lambda net: minidnn.plan(net, "bestt", gpu="k40"), "bestt"),
        (lambda net: minidnn.plan("lennet", gpu="k40"), "did you mean"),
        (lambda net: minidnn.search(net, "batsh", gpu="k40"), "max: one of batch, size, tokens, depth, not 'batsh'"),
        (lambda net: minidnn.search(net, "depth", gpu="k40"), "takes the name of a family"),
        (lambda net: minidnn.tune(net, ranks=2, link="fast", gpu="k40"), "no link is called 'fast'"),
        (lambda net: minidnn.frontier(net, step="1MiB", gpu="k40"), "step: needs a larger budget"),
    ],
)
def test_mistakes_are_told_in_words(net, call, says):
    with pytest.raises(minidnn.errors.BadInput, match=says.replace("(", r"\(")):
        call(net)


def test_a_session_takes_a_name(own_cache):
    with minidnn.Session("digits_lenet", device="reference") as session:
        assert "conv1_1" in session.params
