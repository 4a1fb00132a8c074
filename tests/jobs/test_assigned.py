"""Solver fields as texts, FIELD=VALUE, as --set has them."""

from __future__ import annotations

import pytest

from minidnn.cli.main import main
from minidnn.errors import InvalidInput
from minidnn.jobs.assigned import assigned, field_names, values_of
from minidnn.jobs.solver_file import understand
from minidnn.schema import SolverParameter
from minidnn.schema.table import fields

NET = """
layer:
- {name: data, type: Data, top: [x, t], data_param: {source: "synthetic:1x4x4:classes=3:count=8", batch_size: 4}}
- {name: ip, type: InnerProduct, bottom: x, top: ip, inner_product_param: {num_output: 3}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, t], top: loss}
"""
SOLVER = "net: net.yaml\nbase_lr: 0.5\nlr_policy: fixed\nmax_iter: 4\nrandom_seed: 3\n"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.yaml").write_text(NET)
    (tmp_path / "solver.yaml").write_text(SOLVER)
    (tmp_path / "solver.prototxt").write_text(
        'net: "net.yaml" base_lr: 0.5 lr_policy: "fixed" random_seed: 3 minidnn { budget: 9999 epochs: 1 }'
    )
    return tmp_path


def parameters(*texts: str, file: str = "solver.yaml") -> SolverParameter:
    p = understand(file, assigned(texts)).solver
    assert p is not None
    return p


def test_values_of_each_kind():
    p = parameters(
        "base_lr=1e-3", "lr_policy=multistep", "stepvalue=1", "stepvalue=[2, 3]", "type=Adam", "momentum=0.8",
        'snapshot_prefix="out/a b"', "test_initialization=false", "minidnn.budget=2MiB", "minidnn.log=[a.csv]",
        "minidnn.log=b.jsonl", "train_state.stage=[x, y]", "gamma=.5", " max_iter = 7",
    )  # fmt: skip
    assert (p.base_lr, p.lr_policy, p.stepvalue, p.type, p.momentum) == (0.001, "multistep", (1, 2, 3), "Adam", 0.8)
    assert (p.snapshot_prefix, p.test_initialization, p.minidnn.budget) == ("out/a b", False, 2 << 20)
    assert (p.minidnn.log, p.train_state.stage, p.max_iter) == (("a.csv", "b.jsonl"), ("x", "y"), 7)


def test_messages_keep_their_other_fields():
    p = parameters("minidnn.state=host", file="solver.prototxt")
    assert (p.minidnn.state, p.minidnn.budget, p.minidnn.epochs) == ("host", 9999, 1)


def test_iterations_and_epochs_take_each_others_place():
    assert parameters("max_iter=3", file="solver.prototxt").minidnn.epochs is None
    p = parameters("minidnn.epochs=2")
    assert p.minidnn.epochs == 2 and not p.has("max_iter")


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["base_lr"], "--set base_lr: expected FIELD=VALUE"),
        (["bas_lr=1"], "a solver has no field 'bas_lr' (did you mean 'base_lr'?)"),
        (["epochs=1"], "a solver has no field 'epochs' (did you mean 'minidnn.epochs'?)"),
        (["base_lr.x=1"], "a solver has no field 'base_lr.x'"),
        (["base_lr=x"], "--set base_lr=x: base_lr: expected a number, got 'x'"),
        (["base_lr="], "--set base_lr=: base_lr: expected a number, got nothing"),
        (["base_lr=-1"], "--set base_lr=-1: base_lr: expected at least 0"),
        (["max_iter=1.5"], "--set max_iter=1.5: max_iter: expected an integer"),
        (["test_initialization=2"], "--set test_initialization=2: test_initialization: expected true or false"),
        (["lr_policy=stepp"], "(did you mean 'step'?)"),
        (["stepvalue=[1,"], "--set stepvalue=[1,: stepvalue takes a value as in YAML: expected"),
        (["stepvalue=1", "stepvalue=x"], "--set stepvalue=1 --set stepvalue=x: stepvalue[1]: expected an integer"),
        (["base_lr=1", "base_lr=2"], "--set base_lr=1 and --set base_lr=2: base_lr takes one value"),
        (
            ["minidnn.budget=1", "minidnn={seed: 1}"],
            "--set minidnn={seed: 1} and --set minidnn.budget=1: give",
        ),
        (["minidnn.budget=12XB"], "--set minidnn.budget=12XB: minidnn.budget: '12XB' is not a size"),
        (["minidnn.policy=bst"], "--set minidnn.policy=bst: minidnn.policy: there is no policy"),
        (["test_state.stage=x"], "test_state is repeated: give it whole"),
        (["lr_policy=step"], "stepsize"),
        (["net=nets.yaml"], "--set net=nets.yaml: net: there is no net nets.yaml"),
        (["momentum2=0.5"], "--set momentum2=0.5: momentum2: is not for type SGD"),
    ],
)
@pytest.mark.parametrize("file", ["solver.yaml", "net.yaml"])
def test_what_is_wrong_is_told_with_its_text(texts, told, file, capsys):
    if file == "net.yaml" and texts[0].startswith("net="):
        pytest.skip("a net has no `net:`")
    words = [word for text in texts for word in ("--set", text)]
    assert main(["plan", file, *words, "--device", "reference"]) == 2
    message = capsys.readouterr().err
    assert told in message and "solver.yaml" not in message.replace("(looked for", "")


def test_every_verb_that_reads_a_solver_takes_it(capsys):
    for verb in ("train", "plan", "compare", "time", "frontier", "search --max batch", "tune", "cards", "show",
                 "profile", "test"):  # fmt: skip
        assert main([*verb.split(), "solver.yaml", "--set", "base_lr=x"]) == 2
        assert "--set base_lr=x: base_lr: expected a number" in capsys.readouterr().err


def test_training_ends_as_with_the_value_in_the_file(here):
    (here / "changed.yaml").write_text(SOLVER.replace("0.5", "0.25") + "momentum: 0.9\nsnapshot_prefix: b\n")
    device = ["--device", "reference"]
    fields = ["--set", "base_lr=0.25", "--set", "momentum=0.9", "--set", "snapshot_prefix=a"]
    assert main(["train", "solver.yaml", *device, *fields]) == 0
    assert main(["train", "changed.yaml", *device]) == 0
    assert (here / "a_iter_4.safetensors").read_bytes() == (here / "b_iter_4.safetensors").read_bytes()
    more = ["--resume", "latest", "--max-iter", "6"]
    assert main(["train", "solver.yaml", *device, *fields, *more]) == 0
    assert main(["train", "changed.yaml", *device, *more]) == 0
    assert (here / "a_iter_6.safetensors").read_bytes() == (here / "b_iter_6.safetensors").read_bytes()


def test_an_option_and_a_text_for_one_field(capsys):
    for option, text in (("--max-iter=3", "max_iter=2"), ("--epochs=3", "minidnn.epochs=2")):
        assert main(["train", "solver.yaml", option, "--set", text]) == 2
        assert f"--set {text} and {option.partition('=')[0]}: give one" in capsys.readouterr().err


def test_a_refusal_repeats_them(capsys):
    assert main(["train", "solver.yaml", "--device", "reference", "--budget", "100B", "--set", "type=Adam"]) == 2
    assert "`minidnn plan solver.yaml --policy best" not in (told := capsys.readouterr().err)
    assert "--set type=Adam` says what would fit" in told


def test_names_and_words_are_the_schemas():
    names = set(field_names())
    assert names >= {name for name, field in fields(SolverParameter).items() if field.model is None and not field.old}
    assert {"minidnn.budget", "train_state.stage"} <= names and not any(name.startswith("net_param.") for name in names)
    assert "cosine" in values_of("lr_policy") and values_of("test_initialization") == ("true", "false")
    assert "bfloat16" in values_of("minidnn.format") and values_of("nothing") == values_of("base_lr") == ()
    with pytest.raises(InvalidInput):
        assigned(["=1"])
