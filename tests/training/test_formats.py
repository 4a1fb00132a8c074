"""Networks in 16 bits with float32 master weights: what is stored as what, that training stays near float32's, and that
policies change no bit. (The kernels in these formats: test_half.py of the cpu backend, test_formats.py of cuda's.)"""

from __future__ import annotations

import json
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import minidnn
from minidnn import formats
from minidnn.backends.cpu import CpuDevice
from minidnn.backends.reference import KERNELS, ReferenceDevice, bound
from minidnn.cli.main import main
from minidnn.costs import estimate
from minidnn.formats import InvalidFormat
from minidnn.layers import LAYERS
from minidnn.layers.base import Layer, Parameter, ShapeError
from minidnn.memory.policies import find
from minidnn.optimizers import SGD
from minidnn.program import Op, Pass, Role, Tensor
from minidnn.programs.autodiff import differentiate
from minidnn.programs.spec import TrainSpec
from tests.support.cpu_step import feed, machine, persistent
from tests.support.cuda.host import COMPILER, HostCuda
from tests.support.op_examples import Maker, attrs, run, summed
from tests.support.paths import NET_FILES, SMALL_NETS
from tests.support.policies import FEW
from tests.support.slow import quick_are, usual_are, usual_pairs

HALF = [
    pytest.param("bfloat16", marks=pytest.mark.skipif(find_spec("ml_dtypes") is None, reason="no ml_dtypes")),
    "float16",
]
SPEC = TrainSpec(SGD(momentum=0.9, weight_decay=5e-4))
HALVED = (Role.INPUT, Role.COPY, Role.PARAM_GRADIENT, Role.ACTIVATION, Role.GRADIENT)
STEPS = 4


def program(net: str, format: str, phase: str = "TRAIN", train: TrainSpec | None = SPEC):
    graph = minidnn.load(NET_FILES / f"{net}.yaml").graph(phase, format=format)
    return differentiate(graph, train=train if phase == "TRAIN" else None)


# ---- names


def test_names():
    assert formats.named("float16") == "float16"
    with pytest.raises(InvalidFormat, match=r"no number format 'bfloat' \(did you mean 'bfloat16'\?"):
        formats.named("bfloat")
    with pytest.raises(InvalidFormat, match="no number format 'half'"):
        minidnn.load(NET_FILES / "lenet.yaml").graph("TRAIN", format="half")


def test_without_ml_dtypes_one_may_plan_but_not_run(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    assert Tensor("x", (3, 5), "bfloat16").nbytes == 30
    with pytest.raises(InvalidFormat, match=r"pip install 'minidnn\[bfloat16\]'; or use float16 or float32"):
        minidnn.Session(minidnn.load(NET_FILES / "lenet.yaml"), device="reference", format="bfloat16")


# ---- what is stored as what


@pytest.mark.parametrize("format", HALF)
@pytest.mark.parametrize("net", ["lenet", "residual", "inception"])
def test_activations_and_gradients_are_of_the_format_and_what_lives_on_is_not(net, format):
    p = program(net, format, train=TrainSpec(SGD(momentum=0.9), iter_size=2))
    assert {t.dtype for t in p.persistent} == {"float32"}
    losses = {t for op in p.ops if op.during is Pass.LOSS for t in (*op.reads, *op.writes)}
    of_losses = losses | {t for op in p.ops if op.kind == "cast.backward" for t in op.reads}
    of_scales = {t for t in p.tensors if t.name.endswith((".gamma.grad", ".beta.grad"))}
    assert bool(of_scales) == (net == "residual") and {t.dtype for t in of_scales} <= {"float32"}
    totals = {t for op in p.ops if op.kind == "gradient.total" for t in op.writes}
    assert totals and {t.dtype for t in totals} == {"float32"}
    for t in p.tensors:
        if t.role in HALVED and t not in of_losses | of_scales | totals and t not in p.persistent:
            assert t.dtype == format, t
    backward = [op for op in p.ops if op.kind == "softmax_loss.backward"]
    assert backward and {t.dtype for op in backward for t in op.writes} == {"float32"}
    for op in p.ops:
        for read, write in op.inplace:
            assert read.dtype == write.dtype


def test_float32_has_no_casts():
    assert not [op for op in program("residual", "float32").ops if op.kind.startswith("cast.")]


def test_every_learned_parameter_but_scale_s_has_one_copy_and_its_update_follows_its_last_reader():
    p = program("residual", "float16")
    parameters = {t for t in p.persistent if t.role is Role.PARAM}
    learned = {t for t in parameters if not t.name.endswith((".gamma", ".beta"))}
    assert len(learned) < len(parameters)
    casts = [op for op in p.ops if op.kind == "cast.forward" and op.reads[0] in learned]
    assert {op.reads[0] for op in casts} == learned and len(casts) == len(learned)
    position = {op.name: i for i, op in enumerate(p.ops)}
    for cast in casts:
        (copy,) = cast.writes
        last = max(position[op.name] for op in p.ops if copy in op.reads)
        (update,) = (op for op in p.ops if op.kind == "sgd.update" and cast.reads[0] in op.writes)
        assert position[cast.name] < last < position[update.name]


def test_the_batch_and_what_is_kept_of_it_take_half_the_bytes():
    whole, half = (program("lenet", format) for format in ("float32", "float16"))
    for a, b in zip(whole.inputs, half.inputs, strict=True):
        assert b.nbytes == (a.nbytes // 2 if a.role is Role.INPUT else a.nbytes)
    maps = [sum(t.nbytes for t in p.tensors if t.role is Role.ACTIVATION and t.size > 100) for p in (whole, half)]
    assert maps[0] == 2 * maps[1]


def test_vdnn_sees_the_same_convolutions_in_every_format():
    device, gone = ReferenceDevice(), []
    for format in ("float32", "float16"):
        p = program("chain", format)
        gone.append([t.tensor.name for t in find("vdnn_conv:m")(p, estimate(device), 1 << 40).offloads])
    assert gone[0] and gone[0] == gone[1]


def test_bottoms_of_two_formats_are_refused():
    text = """
name: two
layer: [{name: d, type: Input, top: [x, label], input_param: {shape: [{dim: [4, 6]}, {dim: [4]}]}},
  {name: l, type: SoftmaxWithLoss, bottom: [x, label], top: [loss, prob]},
  {name: e, type: Eltwise, bottom: [x, prob], top: [y]}]
"""
    net = minidnn.Net.from_text(text)
    net.graph("TEST")
    with pytest.raises(ShapeError, match=r"its bottoms are float16 and float32, and a layer takes .* of one format"):
        net.graph("TEST", format="float16")


# ---- the reference


@pytest.mark.parametrize("format", HALF)
def test_the_reference_computes_in_float32_and_rounds_once(format):
    random = np.random.default_rng(0)
    formats.usable(format)
    x, w = (random.standard_normal(s).astype(format) for s in ((3, 700), (5, 700)))
    y = np.zeros((3, 5), format)
    op = Op("ip", "inner_product.forward", "ip", Pass.FORWARD, (), ())
    bound(op, [x, w], [y])()
    want = np.zeros((3, 5), np.float32)
    KERNELS["inner_product.forward"](None, [x.astype(np.float32), w.astype(np.float32)], [want])
    assert y.tobytes() == want.astype(format).tobytes()


@cache
def trained(net: str, format: str, policy: str = "baseline:m", debug: bool = False) -> dict[str, np.ndarray]:
    formats.usable(format)
    delays = 1e-3 if debug else 0.0
    with machine(net, ReferenceDevice(), policy, format=format, debug=debug, delays=delays) as m:
        for k in range(STEPS):
            feed(m, k)
            m.step("TRAIN")
        return persistent(m)


@pytest.mark.parametrize(("net", "policy", "format"), usual_pairs(quick_are(["lenet"], SMALL_NETS), FEW, HALF))
def test_bit_identical_to_baseline(net, policy, format):
    want, got = trained(net, format), trained(net, format, policy, debug=True)
    assert [name for name in want if want[name].tobytes() != got[name].tobytes()] == []


@pytest.mark.slow
@pytest.mark.parametrize("device", usual_are(["reference"], ["reference", "cpu"]))
@pytest.mark.parametrize(("net", "format"), usual_pairs(["chain", "residual", "inception", "lenet"], HALF))
def test_trains_nearly_as_float32_does(net, format, device):
    random = np.random.default_rng(7)
    data = random.standard_normal((24, 3, 12, 12)).astype(np.float32), random.integers(0, 5, 24).astype(np.int32)

    def losses(format: str) -> list[float]:
        with minidnn.Solver(
            minidnn.load(NET_FILES / f"{net}.yaml"), device=device, format=format, seed=3, data=data, base_lr=0.01,
            momentum=0.9, weight_decay=5e-4, iter_size=2, clip_gradients=5.0, minidnn={"loss_scale": 256},
        ) as solver:  # fmt: skip
            found = [solver.step().loss for _ in range(6)]
            assert all(v.dtype == np.float32 for v in solver.values().values())
            return found

    whole, half = losses("float32"), losses(format)
    assert whole != half
    np.testing.assert_allclose(half, whole, rtol={"bfloat16": 0.05, "float16": 0.02}[format], atol=0.02)


@pytest.mark.parametrize("format", HALF)
def test_a_loss_that_learns_has_its_gradients_scaled_like_all_others(format, monkeypatch):
    """A user's loss with a parameter: sum((x - w)^2) / 2, in float32 whatever the format."""

    class Centre(Layer):
        type, bottoms, loss = "Centre", (1, 1), True

        def shapes(self, bottoms):
            return [(1,)]

        def parameters(self, bottoms):
            return [Parameter("w", bottoms[0][1:])]

        def forward(self, s):
            assert {t.dtype for t in (*s.x, *s.p.values())} == {"float32"}
            yield s.op("centre.forward", [*s.x, s.p["w"]], s.y, during=Pass.LOSS)

        def backward(self, s):
            yield s.op("centre.backward", [*s.x, s.p["w"]], [s.dx[0], s.dp["w"]])

    def forward(a, reads, writes):
        writes[0][...] = ((reads[0] - reads[1]) ** 2).sum() / 2

    def backward(a, reads, writes):
        writes[0][...] = reads[0] - reads[1]
        writes[1][...] = (reads[1] - reads[0]).sum(0)

    monkeypatch.setitem(LAYERS, "Centre", Centre)
    monkeypatch.setitem(KERNELS, "centre.forward", forward)
    monkeypatch.setitem(KERNELS, "centre.backward", backward)
    net = minidnn.Net.from_text("""
name: centred
layer:
- {name: d, type: Input, top: [x, label], input_param: {shape: [{dim: [4, 6]}, {dim: [4]}]}}
- {name: ip, type: InnerProduct, bottom: x, top: ip, inner_product_param: {num_output: 3}}
- {name: c, type: Centre, bottom: ip, top: c}
- {name: l, type: SoftmaxWithLoss, bottom: [ip, label], top: l}
""")
    random = np.random.default_rng(0)
    data = random.standard_normal((8, 6)).astype(np.float32), (np.arange(8) % 3).astype(np.int32)
    ends = []
    for each in ("float32", format):
        options = {"base_lr": 0.05, "device": "reference", "seed": 1, "minidnn": {"loss_scale": 512}}
        with minidnn.Solver(net, format=each, data=data, **options) as s:
            dtypes = {t.dtype for t in s.session.programs["TRAIN"].tensors if t.name.endswith((".w.grad", ".b.grad"))}
            assert dtypes == {each}
            s.step(5)
            ends.append(s.params["c"]["w"])
    assert np.abs(ends[0]).max() > 0.01 and np.abs(ends[1] - ends[0]).max() < 0.02 * np.abs(ends[0]).max()


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("format", HALF)
def test_what_a_session_says_is_float32(format, device):
    x = np.random.default_rng(0).standard_normal((5, 3, 12, 12)).astype(np.float32)
    net = minidnn.load(NET_FILES / "lenet.yaml")
    with minidnn.Session(net, device=device, format=format, keep=["conv1"]) as session:
        got = session.forward(x)["ip2"]
        assert session.read("conv1", "TEST").dtype == np.float32
    with minidnn.Session(net, device=device) as session:
        want = session.forward(x)["ip2"]
    assert got.dtype == np.float32
    assert 0 < np.abs(got - want).max() < 0.05 * np.abs(want).max()


# ---- the scale of the loss


def unscaled(state, gradients, objective=1.0, threshold=-1.0, period=3, least=2.0**-24):
    """(the next state, the factor) by the reference, the cpu, and the cuda backend's kernel where g++ can run it."""
    blocks, sums = summed([np.asarray(g, np.float16) for g in gradients])
    a = attrs(threshold=threshold, blocks=blocks, period=period, most=2.0**24, least=least)
    reads = [np.float32(state), np.float32([objective]), sums]
    e = Maker(0).example("gradient.unscale", reads, [0, (1,)], a)
    devices = [ReferenceDevice(), CpuDevice(), *([HostCuda()] if COMPILER else [])]
    found = [run(device, e, device.algorithms(e.op)[0]) for device in devices]
    for other in found[1:]:
        assert np.array_equal(other[0], found[0][0]), "the state is exact"
        np.testing.assert_allclose(other[1], found[0][1], 1e-6)
    return found[0][0].tolist(), float(found[0][1][0])


def test_good_steps_are_counted_and_then_the_scale_is_doubled():
    assert unscaled([8, 0], [[3.0, 4.0]]) == ([8, 1], 1 / 8)
    assert unscaled([8, 2], [[3.0, 4.0]]) == ([16, 0], 1 / 8), "this step has been scaled by 8"
    assert unscaled([2.0**24, 2], [[3.0, 4.0]]) == ([2.0**24, 0], 2.0**-24)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_halves_the_scale_and_does_not_count(bad):
    state, factor = unscaled([8, 2], [np.ones(700), [1.0, bad], np.ones(3)])
    assert state == [4, 0] and np.isnan(factor)
    state, factor = unscaled([8, 2], [[bad]], least=8)
    assert state == [8, 2] and factor == 1 / 8, "at the least the gradients count, and the loss shall tell"


def test_the_norm_that_is_clipped_is_the_real_gradients():
    assert unscaled([8, 0], [[24.0], [32.0]], threshold=2.5) == ([8, 1], 0.5 / 8)
    assert unscaled([8, 0], [[24.0], [32.0]], threshold=5.0) == ([8, 1], 1 / 8)
    assert unscaled([8, 0], [[24.0], [32.0]], threshold=0.0) == ([8, 1], 0)


def test_a_step_whose_objective_is_not_finite_changes_no_state():
    assert unscaled([8, 2], [[np.nan]], objective=np.nan)[0] == [8, 2]


def test_only_float16_is_scaled_and_only_where_it_trains():
    for format, train, scaled in (("float16", SPEC, True), ("bfloat16", SPEC, False), ("float32", SPEC, False),
                                  ("float16", None, False)):  # fmt: skip
        p = program("lenet", format, train=train)
        assert ("loss_scale" in {t.name for t in p.persistent}) == scaled
        assert [op.kind for op in p.ops].count("gradient.unscale") == scaled
    assert "loss_scale" not in {t.name for t in program("lenet", "float16", "TEST").tensors}


def solver(net: str, format: str = "float16", **options) -> minidnn.Solver:
    random = np.random.default_rng(7)
    data = random.standard_normal((24, 3, 12, 12)).astype(np.float32), random.integers(0, 5, 24).astype(np.int32)
    given = dict(base_lr=0.02, momentum=0.9, weight_decay=5e-4, device="reference", seed=3) | options
    net = minidnn.load(NET_FILES / f"{net}.yaml") if isinstance(net, str) else net
    return minidnn.Solver(net, format=format, data=data, **given)


def test_a_large_scale_is_not_doubled_after_the_first_good_step():
    with solver("lenet", minidnn={"loss_scale": 2048}) as s:
        assert s.values()["loss_scale"].tolist() == [2048, 0]
        s.step()
        assert s.values()["loss_scale"].tolist() == [2048, 1]


def test_too_large_a_scale_skips_steps_and_recovers():
    with solver("lenet", minidnn={"loss_scale": 2.0**24}) as s:
        scales, losses, kept = [], [], 0
        for _ in range(24):
            before = s.values()
            losses.append(s.step().loss)
            after = s.values()
            scales.append(float(after["loss_scale"][0]))
            if scales[-1] < before["loss_scale"][0]:
                kept += 1
                assert all(np.array_equal(before[n], after[n]) for n in before if n != "loss_scale")
    assert 3 <= kept <= 16 and scales[0] == 2.0**23 and scales[-1] == 2.0 ** (24 - kept)
    assert np.isfinite(losses).all() and np.mean(losses[-3:]) < 0.7 * losses[0]


def test_gradients_too_small_for_float16_are_kept_by_the_scale():
    """With a loss of which a hundred-thousandth counts, all gradients lie below what float16 can tell from zero."""
    text = (NET_FILES / "lenet.yaml").read_text()
    assert text.count("top: loss}") == 1
    net = minidnn.Net.from_text(text.replace("top: loss}", "top: loss, loss_weight: 1.0e-6}"))
    changes = []
    for format, scale in (("float32", 1.0), ("float16", 2.0**24), ("float16", 1.0)):
        options = {"base_lr": 1e4, "weight_decay": 0.0, "minidnn": {"loss_scale": scale}}
        with solver(net, format, **options) as s:
            before = s.params["conv1"]["w"]
            s.step()
            changes.append(s.params["conv1"]["w"] - before)
    want, scaled, lost = changes
    size = np.abs(want).max()
    assert size > 0 and np.abs(scaled - want).max() < 0.01 * size < np.abs(lost - want).max()


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_a_run_resumed_is_the_run(device, tmp_path):
    options = {"device": device, "snapshot_prefix": str(tmp_path / "run"), "iter_size": 2, "clip_gradients": 5.0}
    options |= {"minidnn": {"loss_scale": 2.0**22}}
    with solver("lenet", **options) as s:
        s.step(3)
        path = s.save().path
        s.step(3)
        want = s.values()
    with solver("lenet", resume=path, **options) as s:
        assert s.values()["loss_scale"][0] < 2.0**22
        s.step(3)
        got = s.values()
    assert want.keys() == got.keys() and all(want[n].tobytes() == got[n].tobytes() for n in want)


@pytest.mark.slow
@pytest.mark.parametrize("device", usual_are(["cpu"], ["reference", "cpu"]))
def test_policies_change_no_bit_where_all_updates_come_last(device):
    options = {"device": device, "iter_size": 2, "clip_gradients": 1.0}
    values = []
    for policy in ("baseline:m", "vdnn_all:m", "liveness:m"):
        with solver("residual", policy=policy, debug=policy != "baseline:m", **options) as s:
            s.step(3)
            values.append(s.values())
    for other in values[1:]:
        assert all(values[0][n].tobytes() == other[n].tobytes() for n in values[0])


# ---- the command line


DIGITS = str(Path(minidnn.__file__).parent / "models" / "digits_solver.yaml")
LENET = str(Path(minidnn.__file__).parent / "models" / "digits_lenet.yaml")


def test_plans_say_the_format_and_what_it_saves(capsys):
    peaks = {}
    for format in formats.FORMATS:
        assert main(["plan", "vgg16", "--gpu", "h200", "--format", format, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["format"] == format
        peaks[format] = document["rows"][0]["peak_bytes"]
    assert peaks["float16"] == peaks["bfloat16"] < 0.75 * peaks["float32"]
    assert main(["plan", LENET, "--gpu", "h200", "--format", "bfloat16"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "bfloat16" in text and "arithmetic is assumed" not in text and "TF32" not in text
    assert main(["plan", LENET, "--gpu", "titan_x", "--format", "bfloat16"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "bfloat16." in text and "arithmetic is assumed to be as fast as in float32" in text
    for gpu, said in (("h200", "TF32 is allowed (--gpu NAME:fp32 forbids it)."), ("h200:fp32", "TF32 is forbidden.")):
        assert main(["plan", LENET, "--gpu", gpu]) == 0
        assert said in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("format", HALF)
def test_every_verb_takes_it(format, capsys, tmp_path):
    solver = tmp_path / "solver.yaml"
    data = np.random.default_rng(0).standard_normal((8, 1, 6, 6)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=data, y=np.arange(8) % 3)
    net = """
name: small
layer:
- {name: data, type: Data, top: [data, label], data_param: {source: "%s", batch_size: 4}}
- {name: conv, type: Convolution, bottom: data, top: conv, convolution_param: {num_output: 4, kernel_size: 3}}
- {name: ip, type: InnerProduct, bottom: conv, top: ip, inner_product_param: {num_output: 3}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
"""
    (tmp_path / "net.yaml").write_text(net % (tmp_path / "data.npz"))
    solver.write_text(
        "net: net.yaml\nbase_lr: 0.01\nlr_policy: fixed\nmomentum: 0.9\nmax_iter: 3\ntest_iter: [2]\ntest_interval: 3\n"
        f"random_seed: 1\nsnapshot_prefix: {tmp_path}/run\nminidnn: {{device: reference, format: {format}}}\n"
    )
    assert main(["train", str(solver)]) == 0
    assert f"Numbers: {format}, weights float32" in capsys.readouterr().out
    weights = str(tmp_path / "run_iter_3.safetensors")
    on = ["--device", "reference"]
    assert main(["train", str(solver), "--resume", "latest", "--max-iter", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == format
    assert main(["test", str(solver), "--weights", weights, *on, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == format
    np.save(tmp_path / "x.npy", data)
    given = [str(tmp_path / "x.npy"), "--weights", weights, *on, "--format", format]
    assert main(["predict", str(tmp_path / "net.yaml"), *given]) == 0
    capsys.readouterr()
    assert main(["compare", str(solver), "--steps", "2", "--policies", "baseline:m,vdnn_all:m", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["device"] == "reference" and document["description"].startswith("NumPy")
    assert document["format"] == format and [row["identical"] for row in document["rows"]] == [True, True]
    assert main(["compare", str(tmp_path / "net.yaml"), "--steps", "2", *on, "--format", format, "--json"]) == 0
    assert all(row["identical"] for row in json.loads(capsys.readouterr().out)["rows"])
    assert main(["time", str(solver), "--iterations", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == format


def test_the_cpu_plans_and_compares_in_16_bits(capsys):
    """Under a budget that float32 could not keep."""
    on = ["--device", "cpu", "--costs", "estimated", "--json"]
    assert main(["plan", LENET, "--policy", "liveness:m", *on]) == 0
    peak = json.loads(capsys.readouterr().out)["rows"][0]["peak_bytes"]
    given = ["--format", "float16", "--budget", str(int(0.8 * peak)), "--steps", "2"]
    assert main(["compare", LENET, *given, "--policies", "liveness:m,vdnn_all:m@4", *on]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["format"] == "float16" and [row["identical"] for row in document["rows"]] == [True] * 2


@pytest.mark.slow
def test_profile_measures_in_the_format(capsys, own_cache):
    assert main(["profile", LENET, "--device", "reference", "--format", "float16", "--batch", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["format"] == "float16" and any("cast.forward" in row["key"] for row in document["rows"])


def test_a_solver_file_with_another_format_is_refused(tmp_path, capsys):
    text = Path(DIGITS).read_text()
    (tmp_path / "s.yaml").write_text(text + "\nminidnn: {format: half, loss_scale: 0}\n")
    assert main(["train", str(tmp_path / "s.yaml")]) == 2
    said = capsys.readouterr().err
    assert "minidnn.format" in said and "float32" in said and "bfloat16" in said and "minidnn.loss_scale" in said
