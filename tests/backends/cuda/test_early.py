"""Batches that travel as they are, and early, on a CUDA of the host's memory: the same bytes as the host's way makes,
copies that run beside the step before, and no race."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import minidnn
from minidnn.backends.cuda.runtime import LAND, CudaRuntime
from minidnn.costs import estimate
from minidnn.data import DataError
from minidnn.formats import usable
from minidnn.memory.execution.machine import Machine
from minidnn.memory.planning import arrange
from minidnn.optimizers import SGD
from minidnn.programs.build import programs
from minidnn.programs.raw import KIND
from minidnn.programs.spec import TrainSpec
from minidnn.training.divergence import Diverged
from minidnn.training.feeds import Feeds
from minidnn.training.session import Session
from minidnn.zoo import load
from tests.backends.cuda.test_ahead import files, told
from tests.support.cuda import host as cuda_host
from tests.support.cuda.fake import Illegal, fake_device
from tests.support.cuda.races import Race, arranged, check_life
from tests.support.cuda.recorder import lived, recording_device
from tests.support.paths import NET_FILES, SMALL_NETS
from tests.support.policies import FEW
from tests.support.slow import quick_are

pytestmark = pytest.mark.extended
compiled = pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++ to run CUDA sources with")

NET = """\
name: fed
layer:
- {{name: data, type: Data, top: [data, label], data_param: {{source: "{source}", batch_size: 5}}, transform_param: {{{transform}}}}}
- {{name: ip, type: InnerProduct, bottom: data, top: ip, inner_product_param: {{num_output: 4, weight_filler: {{type: xavier}}}}}}
- {{name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}}
"""  # noqa: E501
SHAPES = {"colour": (3, 9, 8), "grey": (1, 8, 8), "many": (6, 5, 7), "vector": (11,)}
TRANSFORMS = {
    "plain": "",
    "scale": "scale: 0.017",
    "crop": "crop_size: 5",
    "mirror": "mirror: true",
    "mean": "mean_value: [117.3]",
    "all": "crop_size: 5, mirror: true, mean_value: [104.1], scale: 0.0078125",
    "channels": "crop_size: 4, mirror: true, mean_value: [104.1, 117.2, 123.3], scale: 0.3",
}
FITS = {  # shapes -> the transforms that fit them
    "colour": list(TRANSFORMS), "grey": list(TRANSFORMS)[:-1], "many": list(TRANSFORMS)[:-1],
    "vector": ["plain", "scale", "mean"],
}  # fmt: skip
FORMATS = "float32", "bfloat16", "float16"
FITTING = [(shape, how) for shape in SHAPES for how in FITS[shape]]
CASES = [(*fits, dtype, format) for fits in FITTING for dtype in ("uint8", "float32") for format in FORMATS]
# The host makes float32 of these, and so one format each will do.
CASES += [(*fits, dtype, FORMATS[i % 3]) for i, fits in enumerate(FITTING) for dtype in ("float64", "int16")]
QUICK = [c for c in CASES if c[:2] in {("colour", "channels"), ("vector", "mean")} and c[2] in ("uint8", "float32")]


def net(folder: Path, shape: str, how: str, dtype: str) -> minidnn.Net:
    random = np.random.default_rng(7)
    x = (
        random.integers(0, 256, (13, *SHAPES[shape]))
        if dtype != "float32"
        else random.normal(90, 60, (13, *SHAPES[shape]))
    )
    path = folder / "samples.npz"
    np.savez(path, x=x.astype(dtype), y=np.arange(13) % 4)
    file = folder / "net.yaml"
    file.write_text(NET.format(source=path, transform=TRANSFORMS[how]))
    return load(file)


def inputs(found: minidnn.Net, early: bool, format: str) -> tuple[list[bytes], Session]:
    """The bytes of `data` on the device in steps at several positions, in the program's format and layout."""
    session = Session(
        found, TrainSpec(SGD()), ("TRAIN",), fed=True, early=early, device=fake_device(1), policy="baseline:m",
        format=format,
    )  # fmt: skip
    feeds, seen = Feeds(found.graph("TRAIN"), seed=3), []
    with session:
        schedule = session.arrangement.schedules["TRAIN"]
        (residency,) = (s for b in schedule.buffers for s in b.residencies if s.tensor.name == "data")
        for position in (0, 5, 10, 35):
            feeds.write(session.machine, session.programs["TRAIN"], position)
            session.step("TRAIN")
            at = session.machine.binder.on_device(schedule, residency, session.machine._turn)
            seen.append(session.machine.runtime.read(at[: residency.tensor.nbytes]).tobytes())
    feeds.close()
    return seen, session


@compiled
@pytest.mark.filterwarnings("ignore:overflow")  # of gradients in float16, which are not looked at
@pytest.mark.parametrize("case", quick_are(QUICK, CASES), ids="-".join)
def test_the_device_makes_the_bytes_that_the_host_makes(tmp_path, case):
    shape, how, dtype, format = case
    usable(format)
    found = net(tmp_path, shape, how, dtype)
    mine, session = inputs(found, True, format)
    theirs, _ = inputs(found, False, format)
    assert mine == theirs and len(set(mine)) == 4
    first, program = session.programs["TRAIN"].ops[0], session.programs["TRAIN"]
    assert first.kind == KIND and first.reads[0].dtype == ("uint8" if dtype == "uint8" else "float32")
    assert program.double_buffered == set(program.inputs) and "data" not in {t.name for t in program.inputs}


@compiled
def test_more_means_than_the_kernels_take_leave_the_transform_to_the_host(tmp_path):
    net(tmp_path, "many", "plain", "uint8")
    text = (tmp_path / "net.yaml").read_text()
    (tmp_path / "net.yaml").write_text(
        text.replace("param: {}", "param: {mean_value: [1, 2, 3, 4, 5, 6], mirror: true}")
    )
    found = load(tmp_path / "net.yaml")
    mine, session = inputs(found, True, "float32")
    assert mine == inputs(found, False, "float32")[0]
    program = session.programs["TRAIN"]
    assert [t.name for t in program.inputs][:2] == ["data", "label"] and program.double_buffered == set(program.inputs)


def solver(folder: Path, device, early: bool, **options) -> minidnn.Solver:
    folder.mkdir(exist_ok=True)
    found = net(folder.parent, "colour", "channels", "uint8")
    options = {"max_iter": 9, "snapshot": 4, "test_interval": 3, "test_iter": 2, "policy": "vdnn_all:m"} | options
    return minidnn.Solver(
        found, device=device, seed=3, early=early, base_lr=1e-4, momentum=0.9, snapshot_prefix=str(folder / "net"),
        **options,
    )  # fmt: skip


@compiled
@pytest.mark.parametrize("iter_size", [1, 3])
def test_a_run_ends_with_the_same_files_and_so_does_one_that_goes_on(tmp_path, iter_size):
    runs = {}
    for early in (True, False):
        device = fake_device(3)
        with solver(tmp_path / str(early), device, early, iter_size=iter_size) as s:
            runs[early] = told(s.run())
            assert any(p.double_buffered for p in s.session.programs.values()) == early
    assert runs[True] == runs[False]
    assert files(tmp_path / "True") == files(tmp_path / "False") and len(files(tmp_path / "True")) == 3
    half = tmp_path / "False" / "net_iter_4.safetensors"
    with solver(tmp_path / "on", fake_device(9), True, iter_size=iter_size, resume=half) as s:
        assert told(s.run())[-1] == runs[True][-1]
    last = "net_iter_9.safetensors"
    assert files(tmp_path / "on")[last] == files(tmp_path / "False")[last]


@compiled
def test_the_next_batch_comes_on_a_stream_of_its_own_while_the_step_runs(tmp_path, monkeypatch):
    device, beside, land = fake_device(2), [], CudaRuntime.land

    def noted(self, landings):
        beside.append(bool(self.api.pending))
        land(self, landings)

    monkeypatch.setattr(CudaRuntime, "land", noted)
    with solver(tmp_path / "s", device, True, policy="liveness:m", test_interval=0, snapshot=0) as s:
        s.solve()
        captured = [w.what for graph in device.api.graphs.values() for w in graph.works]
        own = s.machine.runtime.streams[LAND]
        copies = [w for w in device.api.log if w.stream == own and w.what == "copy in"]
        inputs = s.session.programs["TRAIN"].inputs
    assert len(device.api.log) and "copy out" in captured and "copy in" not in captured
    assert len(copies) == 9 * len(inputs) and len(beside) == 9
    assert beside[1:] == [True] * 8, "each batch but the first was enqueued before the step before it had ended"
    assert all(b.stream == own for w in copies for b in w.before), "and waits for nothing"


@compiled
def test_a_budget_without_room_for_two_places_has_one_and_says_so(tmp_path):
    with solver(tmp_path / "early", fake_device(), True) as s:
        most = s.arrangement.arena
    with solver(tmp_path / "late", fake_device(), False) as s:
        least = s.arrangement.arena
        s.solve()
    assert least < most
    for budget, early in ((most, True), (most - 1, False)):
        with solver(tmp_path / "kept", fake_device(), True, budget=budget) as s:
            assert any(p.double_buffered for p in s.session.programs.values()) == early
            assert any("each batch is copied within its step" in note for note in s.notes) != early
            s.solve()
        assert files(tmp_path / "kept") == files(tmp_path / "late")


@compiled
def test_a_source_that_is_not_of_the_type_that_it_says_is_refused(tmp_path):
    with solver(tmp_path / "s", fake_device(), True) as s:
        dataset = s.feeds["TRAIN"].feeds[0].loader.dataset
        object.__setattr__(dataset, "images", dataset.images.astype(np.int16))
        with pytest.raises(DataError, match="says that samples are uint8, but they are int16"):
            s.step()


@compiled
def test_a_step_that_is_run_again_reads_its_own_inputs(tmp_path):
    """Also if the next batch is written, or another program has used the places since."""

    def ends(early: bool, between) -> dict[str, bytes]:
        with solver(tmp_path / "s", fake_device(4), early, iter_size=2) as s:
            s.step(2)
            between(s)
            s.session.step("TRAIN", again=True)
            s.session.step("ACCUMULATE", again=True)
            return {name: value.tobytes() for name, value in s.values().items()}

    def write(s):
        s.feeds["TRAIN"].write(s.machine, s.session.programs["TRAIN"], 40)

    results = {(early, k): ends(early, f) for early in (True, False) for k, f in enumerate((write, lambda s: None))}
    assert results[True, 0] == results[False, 0] == results[True, 1] == results[False, 1]


# ---- order


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("policy", FEW)
@pytest.mark.parametrize("net", quick_are(["residual"], SMALL_NETS))
def test_nothing_races(net, policy, ahead):
    device = recording_device()
    with lived(arranged(net, policy, device, ("TRAIN", "TEST"), early=True), device, debug=True, ahead=ahead) as life:
        checked = check_life(life)
    assert set(life.graphs) == {(name, place) for name in ("TRAIN", "TEST") for place in (0, 1)}
    assert checked.works > 400


@pytest.mark.parametrize("ahead", [False, True])
def test_programs_that_share_the_places_take_turns(ahead):
    device = recording_device()
    train = TrainSpec(SGD(momentum=0.9), clip_gradients=5.0, iter_size=2)
    made = programs(load(NET_FILES / "residual.yaml"), train, ("TRAIN", "TEST"), double_buffered=True)
    assert [bool(p.double_buffered) for p in made.values()] == [True, True, False]
    with lived(arrange(list(made.values()), "vdnn_all:m", estimate(device)), device, ahead=ahead) as life:
        check_life(life)
    accumulate, train = (life.life.machine.arrangement.schedules[name] for name in ("ACCUMULATE", "TRAIN"))
    persistent = [{b.label: s.offset[b] for b in s.buffers if b.persistent} for s in (accumulate, train)]
    shared = persistent[0].keys() & persistent[1].keys()
    assert "data.raw" in shared and all(persistent[0][name] == persistent[1][name] for name in shared)
    assert {*persistent[0]} - shared == {"iteration"} and {*persistent[1]} - shared == {"rate"}
    assert persistent[0]["iteration"] != persistent[1]["rate"]  # one lands while the other is read


def without_wait(self, landings):
    for call in landings:
        call()


def test_a_batch_that_is_not_waited_for_is_found(monkeypatch):
    device = recording_device()
    monkeypatch.setattr(CudaRuntime, "land", without_wait)
    with lived(arranged("residual", "liveness:m", device, early=True), device) as life, pytest.raises(Race):
        check_life(life)


def test_a_batch_that_comes_to_the_place_that_is_read_is_found(monkeypatch):
    device, right = recording_device(), Machine._with_inputs

    def twice(self, loaded):
        bound = right(self, loaded)
        self.runtime.land(loaded.landings[loaded.place, self._turn ^ 1])
        return bound

    monkeypatch.setattr(Machine, "_with_inputs", twice)
    with lived(arranged("residual", "liveness:m", device, early=True), device, ahead=True) as life, pytest.raises(Race):
        check_life(life)


@compiled
def test_a_batch_that_is_not_waited_for_spoils_a_run(tmp_path, monkeypatch):
    def ends(seed: int) -> object:
        with solver(tmp_path / "s", fake_device(seed), True, policy="liveness:m", test_interval=0, snapshot=0) as s:
            try:
                return told(s.run())
            except (Illegal, Diverged) as fault:
                return str(fault)

    right = ends(0)
    assert all(ends(seed) == right for seed in (1, 2))
    monkeypatch.setattr(CudaRuntime, "land", without_wait)
    assert any(ends(seed) != right for seed in range(3))
