"""Costs: profiles are complete and sourced, the roofline by hand, the cache of measurements."""

import inspect
import json
from dataclasses import dataclass, replace

import pytest

from minidnn import costs
from minidnn.backends.cuda import attention
from minidnn.backends.cuda.cudnn import Settings
from minidnn.backends.cuda.device import open_gpu
from minidnn.cli.main import main
from minidnn.costs.profiles import ARCHITECTURES, PROFILES, short
from minidnn.costs.roofline import Bytes, Number, PcieSlot
from minidnn.formats import TF32
from minidnn.layers.attention import AttentionAttrs
from minidnn.memory.execution.device import Device
from minidnn.memory.parts.split import part_of, refused
from minidnn.program import TENSOR_CORES, Algorithm, Op, Pass, Tensor
from minidnn.programs.build import programs
from minidnn.programs.fusion import as_cuda
from minidnn.zoo import load
from tests.support.paths import NET_FILES


@dataclass(frozen=True)
class Geometry:
    kernel: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    group: int = 1


def convolution(n=64, c=64, k=64, size=224, geometry=Geometry(), what="forward"):
    x, y = Tensor("x", (n, c, size, size)), Tensor("y", (n, k, size, size))
    w = Tensor("w", (k, c, *geometry.kernel))
    reads, write = {"forward": ((x, w), y), "backward_filter": ((x, y), w), "backward_data": ((w, y), x)}[what]
    flops = 2 * y.size * c * geometry.kernel[0] * geometry.kernel[1]
    return Op(f"conv.{what}", f"convolution.{what}", "conv", Pass.FORWARD, reads, (write,), geometry, (), flops)


RELU = Op("relu.forward", "relu.forward", "relu", Pass.FORWARD, (Tensor("x", (10**6,)),), (Tensor("y", (10**6,)),))


@pytest.mark.parametrize("name", costs.gpus())
def test_profile_is_complete_and_every_number_has_a_source(name):
    gpu = costs.gpu(name)
    for field, value in vars(gpu).items():
        if isinstance(value, (Number, Bytes, PcieSlot)):
            assert len(value.source) > 5, field
    c = costs.profile(name)
    assert c.device == name and c.memory >= 6e9 and c.origin == "profile"
    assert c.seconds(RELU, c.fastest(RELU)) > 0


GEFORCE = ("2060 2070 2080ti", "3060 3070 3080 3090", "4060 4060ti 4070 4080 4090", "5060 5070 5080 5090")
OTHERS = "k40 titan_x v100 t4 l4 l40s a10 a6000 a100_40 a100 h100 h100_pcie h200 b200 orin"


def test_the_profiles_that_are_promised():
    assert {f"rtx{number}" for row in GEFORCE for number in row.split()} | set(OTHERS.split()) == set(costs.gpus())


@pytest.mark.parametrize("name", costs.gpus())
def test_a_profile_agrees_with_itself(name):
    """Peaks are multiprocessors times operations times clock. Copies are slower than the lanes, but not by much."""
    gpu = costs.gpu(name)
    cycles = gpu.multiprocessors.value * gpu.clock.value
    a_cycle = gpu.peak_flops.value / cycles
    lanes = min((64, 128, 192), key=lambda lanes: abs(2 * lanes - a_cycle))  # 192: Kepler
    assert a_cycle == pytest.approx(2 * lanes, rel=0.07), "the float32 units"
    for half in filter(None, (gpu.float16_flops, gpu.bfloat16_flops)):
        found = min((512, 1024, 2048, 4096, 8192), key=lambda n: abs(n - half.value / cycles))
        assert half.value / cycles == pytest.approx(found, rel=0.11), "the tensor cores"
        assert gpu.tf32_flops is None or half.value == pytest.approx(2 * gpu.tf32_flops.value, rel=0.001)
    assert (gpu.bfloat16_flops is None) == (gpu.tf32_flops is None), "both came with Ampere"
    if gpu.pcie is None:
        assert gpu.host_memory is not None and gpu.link_out.value < gpu.memory_bandwidth.value / 2
    else:
        assert 0.6 < gpu.link_out.value / gpu.pcie.bandwidth < 0.9 and gpu.link_in.value == gpu.link_out.value


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("rtx3060", "rtx3060"), ("RTX 3060", "rtx3060"), ("rtx-3060", "rtx3060"), ("3060", "rtx3060"),
        ("NVIDIA GeForce RTX 3060", "rtx3060"), ("4060 Ti", "rtx4060ti"), ("RTX_2080Ti:fp32", "rtx2080ti:fp32"),
        ("NVIDIA A100-SXM4-40GB", "a100_40"), ("NVIDIA A100-SXM4-80GB", "a100"), ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100_pcie"), ("Tesla V100-SXM2-16GB", "v100"), ("Tesla K40c", "k40"), ("Tesla T4", "t4"),
        ("NVIDIA RTX A6000", "a6000"), ("titanx", "titan_x"), ("NVIDIA GeForce GTX TITAN X", "titan_x"),
        ("Jetson AGX Orin", "orin"), ("some/mine.yaml", "some/mine.yaml"),
    ],
)  # fmt: skip
def test_a_card_is_found_by_any_of_its_names(asked, name):
    assert costs.named(asked) == name


def test_no_name_is_that_of_two_cards():
    known = [short(called) for name in costs.gpus() for called in (name, *costs.gpu(name).called)]
    assert len(known) == len(set(known)) > len(costs.gpus())


def test_roofline_by_hand():
    c = costs.profile("titan_x")
    op = convolution(n=64)  # 64 -> 64 channels at 224x224: bound by arithmetic
    slow, fast = c.choices(op)
    flops = 2 * 64 * 64 * 224 * 224 * 64 * 9
    assert op.flops == flops
    assert slow.algorithm == Algorithm("implicit_gemm", 0)
    assert slow.seconds == pytest.approx(flops / (7e12 * 0.38) + 5e-6)
    assert fast.seconds == pytest.approx(flops / (7e12 * 0.95) + 5e-6)
    assert c.choices(RELU)[0].seconds == pytest.approx(8e6 / (336e9 * 0.75) + 5e-6)  # bound by memory
    assert c.fastest(op) == fast.algorithm and c.least_memory(op) == slow.algorithm


@pytest.mark.parametrize("bias", [(1, 1), (1, 3), (64, 3)])
def test_a_bias_of_attention_has_the_bytes_of_its_kernels_and_their_rate(bias):
    """Those that sum its gradient; none of them runs on tensor cores."""
    (samples, tokens, heads), width = (2048, 49, 3), 3 * 32
    a = AttentionAttrs(tokens, tokens, heads, heads, 32, packed=True, bias=bias, bias_gradient=True)
    qkv, y = Tensor("qkv", (samples, tokens, 3 * width), "float16"), Tensor("y", (samples, tokens, width), "float16")
    lse, added = Tensor("lse", (samples, tokens, heads)), Tensor("bias", (bias[0] * bias[1], tokens, tokens), "float16")
    ends = (qkv, y, lse, replace(y, name="dy"), added), (replace(qkv, name="dqkv"), replace(added, name="dbias"))
    op = Op("backward", "attention.backward", "layer", Pass.BACKWARD, *ends, a, flops=10**12)
    (choice,), (recipe,) = costs.profile("h100_sxm").choices(op), attention.backward(op)
    assert 0 <= recipe.algorithm.workspace - choice.algorithm.workspace < 1024
    plain = replace(op, reads=op.reads[:4], writes=op.writes[:1], attrs=replace(a, bias=None, bias_gradient=False))
    assert choice.seconds > 5 * costs.profile("h100_sxm").choices(plain)[0].seconds


def test_copies_take_their_bandwidth_from_ops_that_memory_binds():
    """12.8 of titan_x's 252 GB/s. What arithmetic binds loses nothing, as long as enough is left."""
    c, gpu = costs.profile("titan_x"), costs.gpu("titan_x")
    relu, bandwidth = c.choices(RELU)[0], 336e9 * 0.75
    beside = 8e6 / (bandwidth - 12.8e9) + 5e-6
    assert c.dragged(RELU, relu) == pytest.approx((1 - relu.seconds / beside,) * 2)
    assert 0.04 < relu.drag[0] < 12.8e9 / bandwidth, "a launch loses nothing"
    slow, fast = c.choices(convolution(n=64))
    assert slow.drag == fast.drag == (0, 0)
    near = gpu.roofline(Algorithm("any"), flops=1.0, rate=1.0, nbytes=0.97 * bandwidth)
    assert near.drag[0] == pytest.approx(1 - 1 / (0.97 / (1 - 12.8e9 / bandwidth)), rel=1e-3)
    orin = costs.profile("orin").choices(RELU)[0]
    assert orin.drag[0] > 0.6, "a copy within the memory reads and writes it"
    all_of_it = replace(gpu, link_out=Number(1e12, "faster than its memory"))
    assert all_of_it.costs("any").choices(RELU)[0].drag[0] == pytest.approx(costs.MOST_DRAG, rel=0.01)


def test_a_small_product_leaves_multiprocessors_without_work():
    """Blocks of 128 x 128 outputs and sums of 2048 products, on rtx3060's 28 multiprocessors."""
    gpu = costs.gpu("rtx3060")
    assert gpu.busy(flops=2 * 1024 * 4 * 2**14, outputs=4 * 2**14) == pytest.approx(4 / 28), "four blocks"
    assert gpu.busy(flops=2 * 3 * 2048 * 4 * 2**14, outputs=4 * 2**14) == pytest.approx(12 / 28), "in three sums each"
    assert gpu.busy(flops=2 * 2048 * 10, outputs=10) == pytest.approx(1 / 28), "a block, though not a whole one"
    assert gpu.busy(flops=2e12, outputs=10**8) == 1 == costs.gpu("titan_x").busy(flops=100, outputs=10)
    small = convolution(n=1, c=512, k=512, size=7)  # 49 x 512 outputs, sums of 4608
    blocks = 49 * 512 / 2**14 * 4608 / 2048
    rate = gpu.rate("float32", gpu.implicit_gemm.value) * blocks / 28
    assert gpu.choices(small)[0].seconds == pytest.approx(small.flops / rate + gpu.launch_latency.value)


@pytest.mark.parametrize("name", ["t4", "h100:tf32", "rtx4090"])
def test_a_part_never_takes_less_than_its_share_of_the_seconds(name):
    """Whichever op, of any algorithm, in 2 to 16 parts. Some take far more."""
    program = programs(load("resnet50").with_batch(16), None, ("TRAIN",), fuses=as_cuda)["TRAIN"]
    device, most = costs.profile(name), 0.0
    for op in program.ops:
        if refused(program, op, 16) is not None:
            continue
        whole = {c.algorithm.name: c.seconds for c in device.choices(op)}
        for rows in (8, 2, 1):
            for c in device.choices(part_of(op, (0, rows))):
                more = c.seconds / (whole[c.algorithm.name] * rows / 16)
                assert more >= 1 - 1e-9, (op, rows)
                most = max(most, more)
    assert most > 4


def test_workspace_by_hand():
    plane = 226 * (226 // 2 + 1) * 8  # a complex half spectrum of the padded map
    maps, filters = 2 * 64 * 64 * plane, 64 * 64 * plane
    for what in ("forward", "backward_filter", "backward_data"):
        workspace = costs.profile("titan_x").fastest(convolution(n=64, what=what)).workspace
        assert workspace == int(0.65 * maps + 1.2 * filters)
    op = convolution(n=64)
    assert costs.profile("h200:fp32").fastest(op).workspace == sum(t.nbytes for t in op.tensors)


def test_no_transform_where_there_is_none():
    c = costs.profile("titan_x")
    for geometry in (
        Geometry(stride=(2, 2)), Geometry(dilation=(2, 2)), Geometry(kernel=(1, 1), pad=(0, 0)),
    ):  # fmt: skip
        assert [x.algorithm.name for x in c.choices(convolution(geometry=geometry))] == ["implicit_gemm"]


def test_a_transform_need_not_pay():
    """3 input channels: the transform's own traffic outweighs the arithmetic it saves."""
    c = costs.profile("titan_x")
    assert c.fastest(convolution(c=3, n=16)).name == "implicit_gemm"


def test_unknown_name():
    with pytest.raises(costs.ProfileError, match=r"'titan_y' \(did you mean 'titan_x'\?"):
        costs.profile("titan_y")
    with pytest.raises(costs.ProfileError, match=r"'RTX 3060 Super' \(did you mean 'rtx3060'\?"):
        costs.profile("RTX 3060 Super")
    with pytest.raises(costs.ProfileError, match="there are a10, a100, a100_40, a6000, b200"):
        costs.profile("zzz")


def test_a_profile_of_ones_own(tmp_path):
    text = (PROFILES / "titan_x.yaml").read_text()
    mine = tmp_path / "mine.yaml"
    mine.write_text(text.replace("12GiB", "6GiB"))
    assert costs.profile(str(mine)).memory == 6 * 2**30
    mine.write_text(
        text.replace("peak_flops: {value: 7.0e+12, ", "peak_flops: {").replace(
            "gemm: {value: 0.75", "gem: {value: 0.75"
        )
    )
    with pytest.raises(costs.ProfileError) as wrong:
        costs.profile(str(mine))
    assert "peak_flops.value: Field required" in str(wrong.value) and "gem:" in str(wrong.value)
    mine.write_text(text.replace("value: 0.95", "value: -1"))
    with pytest.raises(costs.ProfileError, match="fast is -1"):
        costs.profile(str(mine))
    mine.write_text(text.replace("duplex_in: {value: 0.90", "duplex_in: {value: 1.5"))
    with pytest.raises(costs.ProfileError, match="duplex_in is 1"):
        costs.profile(str(mine))
    mine.write_text("".join(line for line in text.splitlines(True) if not line.startswith("duplex")))
    assert costs.profile(str(mine)).duplex == (1.0, 1.0) and costs.profile("titan_x").duplex == (0.9, 0.9)
    mine.write_text((PROFILES / "rtx3060.yaml").read_text().replace("architecture: ampere", "architecture: amper"))
    with pytest.raises(
        costs.ProfileError, match=r"mine.yaml: there is no architecture 'amper' \(did you mean 'ampere'"
    ):
        costs.profile(str(mine))
    mine.write_text((PROFILES / "rtx3060.yaml").read_text() + 'gemm: {value: 0.5, source: "mine"}\n')
    assert costs.gpu(str(mine)).gemm.value == 0.5 and costs.gpu("rtx3060").gemm.value != 0.5, "its own number wins"
    mine.write_text("a: [")
    with pytest.raises(costs.ProfileError, match="not valid YAML"):
        costs.profile(str(mine))


# ---- the paper's networks, as docs/costs.md tells

MiB = 2**20
VGG = [(64, 224, 2), (128, 112, 2), (256, 56, 4), (512, 28, 4), (512, 14, 4)]


def vgg(n):
    c = 3
    for width, size, repeats in VGG:
        for _ in range(repeats):
            yield convolution(n, c, width, size)
            c = width


@pytest.mark.parametrize(("batch", "ours", "paper"), [(64, 2013, 2448), (128, 3059, 2738), (256, 5153, 5012)])
def test_vgg_workspace_against_figure_4(batch, ours, paper):
    c = costs.profile("titan_x")
    largest = max(c.fastest(op).workspace for op in vgg(batch)) / MiB
    assert largest == pytest.approx(ours, abs=1)
    assert largest == pytest.approx(paper, rel=0.2)


# ---- this machine


class Toy(Device):
    name = "toy"
    description = "toy library 1.0, 2 threads"
    memory = 2**30

    def algorithms(self, op):
        return (Algorithm("direct", 0), Algorithm("tiled", 4096))


def test_estimate_prefers_what_the_backend_lists_first():
    c = costs.estimate(Toy())
    op = convolution(n=1, size=8)
    assert c.fastest(op).name == c.least_memory(op).name == "direct" and c.origin == "estimated"
    assert c.choices(op) == costs.estimate(Toy()).choices(op)


def test_key_tells_geometries_apart():
    a, b = convolution(n=1), convolution(n=1, geometry=replace(Geometry(), group=2))
    assert len({costs.key(op, x) for op in (a, b, convolution(n=2)) for x in Toy().algorithms(op)}) == 6
    again = convolution(n=1)
    assert costs.geometry(a) == costs.geometry(again)  # names of ops and layers do not matter


def test_cache_is_written_whole_and_read_back(tmp_path):
    known = costs.measurements(Toy(), tmp_path)
    assert not known.seconds and known.problem is None
    op = convolution(n=1, size=8)
    known.bandwidth_out, known.bandwidth_in, known.latency = 5e9, 6e9, 1e-6
    known.seconds = {costs.key(op, a): 0.5 + i for i, a in enumerate(Toy().algorithms(op))}
    known.save()
    assert [p.name for p in tmp_path.iterdir()] == [known.path.name]
    again = costs.measurements(Toy(), tmp_path)
    assert not again.lacking([op], Toy().algorithms)
    assert again.lacking([convolution(n=2)], Toy().algorithms) == ["conv.forward"]
    c = costs.measured(Toy(), again)
    assert c.origin == "measured" and c.fastest(op).name == "direct" and c.bandwidth_in == 6e9
    with pytest.raises(ValueError, match="has not been measured on toy"):
        c.choices(convolution(n=2))


def test_cache_of_another_library_is_not_used(tmp_path):
    known = costs.measurements(Toy(), tmp_path)
    known.bandwidth_out = known.bandwidth_in = 1.0
    known.save()
    other = Toy()
    other.description = "toy library 2.0, 2 threads"
    assert costs.measurements(other, tmp_path).bandwidth_out == 0


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": 99}', '{"format": 1, "device": 3}', "[" * 10**5])
def test_damaged_cache_is_told_and_measured_again(tmp_path, text):
    path = costs.measurements(Toy(), tmp_path).path
    path.write_text(text)
    known = costs.measurements(Toy(), tmp_path)
    assert known.problem is not None and str(path) in known.problem and "measured again" in known.problem
    assert not known.seconds and known.bandwidth_out == 0


def test_negative_seconds_are_damage(tmp_path):
    known = costs.measurements(Toy(), tmp_path)
    known.bandwidth_out = known.bandwidth_in = 1.0
    known.seconds = {"a": -1.0}
    known.save()
    assert "not positive" in costs.measurements(Toy(), tmp_path).problem
    assert json.loads(known.path.read_text())["seconds"] == {"a": -1.0}


@pytest.mark.parametrize("number", ["1e999", "NaN", "1" + "0" * 400, "[]", '"fast"', "null"])
@pytest.mark.parametrize("name", ["bandwidth_out", "latency", "seconds", "beside", "copies"])
def test_what_is_no_number_of_seconds_or_bytes_is_damage(tmp_path, name, number):
    known = costs.measurements(Toy(), tmp_path)
    numbers = dict.fromkeys(("bandwidth_out", "bandwidth_in", "slower", "drag_out", "drag_in"), 1.0)
    content = {
        "format": 1, "device": known.device, "bandwidth_out": 1.0, "bandwidth_in": 1.0, "latency": 0.0,
        "seconds": {"a": 1.0}, "beside": [{"bound_by": "memory", "op": "sum", **numbers}],
    }  # fmt: skip
    wrong = {"seconds": {"a": "WRONG"}, "beside": [{**content["beside"][0], "drag_out": "WRONG"}]}.get(name, "WRONG")
    wrong = {"a": [1.0, "WRONG"]} if name == "copies" else wrong
    known.path.write_text(json.dumps(content | {name: wrong}).replace('"WRONG"', number))
    assert "damaged" in costs.measurements(Toy(), tmp_path).problem


# ---- tensor cores


def of_format(op, format):
    tensors = {t: replace(t, dtype=format) for t in op.tensors}
    return replace(op, reads=tuple(tensors[t] for t in op.reads), writes=tuple(tensors[t] for t in op.writes))


@pytest.mark.parametrize(
    "name, format, peak",
    [
        ("h200", "float16", 989.5e12), ("h200", "bfloat16", 989.5e12), ("h200", "float32", 494.5e12),
        ("a100", "bfloat16", 312e12), ("a100:tf32", "float32", 156e12), ("v100", "float16", 125e12),
    ],
)  # fmt: skip
def test_products_on_tensor_cores_by_hand(name, format, peak):
    c, gpu = costs.profile(name), costs.gpu(name)
    assert c.device == name
    op = of_format(convolution(n=64, c=512, k=512, size=28), format)  # bound by arithmetic
    slow, fast = c.choices(op)
    part = gpu.implicit_gemm.value / gpu.fast.value
    assert slow.seconds == pytest.approx(op.flops / (peak * 0.5 * part) + gpu.launch_latency.value)
    traffic = (op.nbytes + 2 * fast.algorithm.workspace) / (gpu.memory_bandwidth.value * gpu.bandwidth.value)
    kernels = 4 if gpu.workspace_of == "plain" else 1  # x, w and y change their layouts
    assert fast.seconds == pytest.approx(max(op.flops / (peak * 0.5), traffic) + kernels * gpu.launch_latency.value)
    product = replace(op, kind="inner_product.forward")
    part = min(1, gpu.gemm.value / gpu.fast.value)
    assert c.choices(product)[0].seconds == pytest.approx(op.flops / (peak * 0.5 * part) + gpu.launch_latency.value)


def test_sums_that_come_before_the_result_are_a_kernel_of_their_own():
    x, dy, dx = (Tensor(name, (10**6,)) for name in ("x", "dy", "dx"))
    op = Op("bn.backward", "batch_norm.backward_scale", "bn", Pass.BACKWARD, (x, dy), (dx,))
    assert costs.profile("titan_x").choices(op)[0].seconds == pytest.approx(20e6 / (336e9 * 0.75) + 2 * 5e-6)


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("h200:fp32", "float32"), ("rtx4090", "float32"), ("titan_x", "float16"), ("v100", "bfloat16"),
        ("k40", "bfloat16"),
    ],
)  # fmt: skip
def test_products_without_tensor_cores_take_as_long_as_ever(name, format):
    op = convolution(n=64, c=512, k=512, size=28)
    want = costs.profile(name).choices(op)[0].seconds
    assert costs.profile(name).choices(of_format(op, format))[0].seconds == pytest.approx(want)


def test_a_profile_takes_tf32_as_the_device_does():
    """`--gpu h100` foretells `--device cuda`; TF32 is used where it is quicker, and only if the card has it."""
    op = convolution(n=64, c=512, k=512, size=28)
    defaults = (Settings().tf32, inspect.signature(open_gpu.__wrapped__).parameters["tf32"].default)
    assert {costs.gpu(name).tf32 for name in costs.gpus()} == {TF32} == set(defaults)
    for name in costs.gpus():
        default, full = costs.gpu(name), costs.gpu(f"{name}:fp32")
        gains = [a.seconds < b.seconds for a, b in zip(default.choices(op), full.choices(op), strict=True)]
        assert all(a.seconds <= b.seconds for a, b in zip(default.choices(op), full.choices(op), strict=True))
        assert not any(gains) or default.tf32_flops is not None
        if default.tf32_flops is not None:
            assert costs.gpu(f"{name}:tf32") == default
    assert costs.gpu("titan_x:fp32").choices(op) == costs.gpu("titan_x").choices(op)


def test_what_is_no_product_gains_by_its_bytes_alone():
    gpu = costs.gpu("h200")
    half = of_format(RELU, "float16")
    for op in (RELU, half):
        want = op.nbytes / (4800e9 * 0.85) + gpu.launch_latency.value
        assert gpu.choices(op)[0].seconds == pytest.approx(want)
    assert half.nbytes * 2 == RELU.nbytes
    arithmetic = replace(half, flops=10**12)
    assert gpu.choices(arithmetic)[0].seconds == pytest.approx(1e12 / (67e12 * 0.75) + gpu.launch_latency.value)


def test_tf32_of_a_card_that_has_none():
    with pytest.raises(costs.ProfileError, match="titan_x:tf32: it has no tensor cores for TF32"):
        costs.profile("titan_x:tf32")
    with pytest.raises(costs.ProfileError, match=r"'h20' \(did you mean 'h200'\?"):
        costs.profile("h20:tf32")


def test_a_peak_needs_the_fraction_that_is_reached(tmp_path, capsys):
    assumed = (ARCHITECTURES / "hopper.yaml").read_text()
    text = (PROFILES / "h200.yaml").read_text().replace("architecture: hopper\n", assumed)
    mine = tmp_path / "mine.yaml"
    mine.write_text("\n".join(line for line in text.splitlines() if not line.startswith("tensor:")))
    with pytest.raises(costs.ProfileError, match="tf32_flops is given, but not which fraction of it is reached"):
        costs.profile(str(mine))
    mine.write_text(text)
    assert costs.profile(f"{mine}:tf32").device == f"{mine}:tf32"
    assert main(["plan", str(NET_FILES / "lenet.yaml"), "--gpu", f"{mine}:tf32"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"from the profile {mine}:tf32. TF32 is allowed (--gpu NAME:fp32 forbids it)." in said


def test_the_estimate_of_a_device_by_format():
    rates = costs.Rates(10.0, 1e9, 1e9, 0.0, {"float16": 80.0, "float32": 40.0})
    op = convolution(n=1, size=8)
    assert rates.arithmetic(op) == 40 and rates.arithmetic(of_format(op, "float16")) == 80
    assert rates.arithmetic(of_format(op, "bfloat16")) == 10 and rates.arithmetic(of_format(RELU, "float16")) == 10
    own, on_tensor_cores = replace(rates, own={op.family: (0.5, 0.2)}), Algorithm(TENSOR_CORES)
    assert own.arithmetic(op) == 2 and own.arithmetic(op, on_tensor_cores) == 20
    assert own.arithmetic(of_format(op, "bfloat16"), on_tensor_cores) == 5
    device = Toy()
    device.rates = rates
    assert costs.estimate(device).choices(of_format(op, "float16"))[0].seconds == pytest.approx(op.flops / 80)


def test_copies_take_less_than_all_of_an_op():
    with pytest.raises(ValueError, match=r"cannot take 1\.1 of an op's work"):
        costs.Drag((0.5, 1.1), (0.0, 0.0))
    with pytest.raises(ValueError, match="cannot take"):
        costs.Drag((0.5, 0.1), (-0.1, 0.0))


def test_beside_compute_is_kept_and_a_file_without_it_is_read(tmp_path):
    known = costs.measurements(Toy(), tmp_path)
    known.bandwidth_out = known.bandwidth_in = 1.0
    known.beside = [
        {
            "bound_by": kind, "op": "any", "bandwidth_out": 1.0, "bandwidth_in": 2.0, "slower": 1.5, "drag_out": 0.25,
            "drag_in": 0.5,
        }
        for kind in ("memory", "arithmetic")
    ]  # fmt: skip
    known.save()
    again = costs.measurements(Toy(), tmp_path)
    assert again.beside == known.beside
    found = costs.measured(Toy(), again)
    assert found.drag == costs.Drag((0.25, 0.5), (0.25, 0.5))
    assert found.dragged(RELU, costs.Choice(Algorithm("any"), 1.0)) == (0.25, 0.5)
    assert (found.bandwidth_out, found.bandwidth_in) == (1.0, 2.0), "beside ops"
    again.beside[0]["drag_out"] = 2 * costs.MOST_DRAG
    found = costs.measured(Toy(), again)
    assert found.bandwidth_out == pytest.approx(2 / 3) and found.drag.memory[0] == costs.MOST_DRAG, "it lasts longer"
    assert found.drag.arithmetic[0] / found.bandwidth_out == pytest.approx(0.25), "a byte costs what it cost"
    content = json.loads(known.path.read_text())
    del content["beside"][0]["drag_out"]  # as before copies were known to slow ops down
    known.path.write_text(json.dumps(content))
    old = costs.measurements(Toy(), tmp_path)
    assert old.beside == [] and old.problem is None and costs.measured(Toy(), old).drag is None
    known.save()
    older = json.loads(known.path.read_text())
    del older["copies"]  # as before the latency was that of a thread which copies
    known.path.write_text(json.dumps(older))
    assert known.beside and costs.measurements(Toy(), tmp_path).beside == []
    del content["beside"]
    known.path.write_text(json.dumps(content))
    old = costs.measurements(Toy(), tmp_path)
    assert old.beside == [] and old.problem is None and old.bandwidth_out == 1
    content["beside"] = [{"op": "sum", "drag_out": 0.0}]
    known.path.write_text(json.dumps(content))
    assert "damaged" in costs.measurements(Toy(), tmp_path).problem


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{value: !!int ce, source: s}", r"mine.yaml:\d+:\d+: launch_latency.value: expected a number, .* got 'ce'"),
        ("{value: .inf, source: s}", "launch_latency is inf; it must be between 1e-30 and 1e\\+30"),
        ("{value: .nan, source: s}", "launch_latency is nan"),
        ("{value: -1, source: s}", "launch_latency is -1"),
        ("{value: 1e308, source: s}", "launch_latency is 1e\\+308"),
        ('{value: "\\UFFFFFFFF", source: s}', "mine.yaml: not valid YAML"),
        ("[", r"mine.yaml:\d+:\d+: not valid YAML"),
    ],
)
def test_a_profile_with_what_is_no_number_is_refused(tmp_path, line, said, capsys):
    mine = tmp_path / "mine.yaml"
    lines = (PROFILES / "k40.yaml").read_text().splitlines()
    mine.write_text("\n".join(f"launch_latency: {line}" if x.startswith("launch_latency:") else x for x in lines))
    with pytest.raises(costs.ProfileError, match=said):
        costs.profile(str(mine))
    assert main(["plan", str(NET_FILES / "lenet.yaml"), "--gpu", str(mine)]) == 2
    assert "mine.yaml" in capsys.readouterr().err
