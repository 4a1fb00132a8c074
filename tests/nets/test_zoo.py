"""The networks of models/ and those made by name: geometry, sizes, and the vDNN paper's sums of bytes."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from math import prod
from pathlib import Path

import pytest

import minidnn
from minidnn import zoo
from minidnn.layers import LAYERS
from minidnn.nets.net import Net
from minidnn.optimizers import OPTIMIZERS
from minidnn.schema import load_solver
from tests.support.paths import MODELS
from tests.support.slow import usual_are

MIB = 2**20
NETS = [name for name in zoo.names() if not name.endswith("_solver")]


def net(name: str, batch: int | None = None) -> Net:
    found = zoo.find(name, batch)
    return found if isinstance(found, Net) else Net.from_file(found, batch)


def learnable(name: str) -> int:
    nodes = net(name).graph("TRAIN").layers
    return sum({n.tensor_name(p): prod(p.shape) for n in nodes for p in n.parameters if p.learnable}.values())


def test_the_issue_s_networks_are_there():
    wanted = "digits_lenet lenet cifar10_quick alexnet overfeat googlenet vgg16 vgg19 resnet18 resnet50 resnet152"
    assert set(wanted.split()) <= set(NETS)
    solvers = {name.removesuffix("_solver") for name in zoo.names() if name.endswith("_solver")}
    assert {"digits" if name == "digits_lenet" else name for name in NETS} == solvers


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_resolves_in_both_phases(name):
    made = net(name)
    classes = 10 if name in ("digits_lenet", "lenet", "cifar10_quick") else 1000
    for phase in ("TRAIN", "TEST"):
        graph = made.graph(phase)
        scores = [n.bottoms[0] for n in graph.layers if n.layer.type == "SoftmaxWithLoss"][-1]
        assert scores.tensor.shape[1] == classes
        assert any(n.layer.type == "Accuracy" for n in graph.layers) == (phase == "TEST")


@pytest.mark.parametrize("name", [name for name in zoo.names() if name.endswith("_solver")])
def test_solvers_name_a_net_that_is_there(name):
    solver = load_solver(zoo.find(name), LAYERS, OPTIMIZERS)
    assert (zoo.folder() / solver.net).is_file() and solver.max_iter and solver.snapshot_prefix.startswith("out/")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, count",
    [
        ("lenet", 431_080),
        ("alexnet", 61_100_840),
        ("overfeat", 144_656_488),
        ("vgg16", 138_357_544),
        ("vgg19", 143_667_240),
        ("googlenet", 13_378_280),  # bvlc_googlenet.caffemodel, auxiliary classifiers too
        ("resnet18", 11_689_512),
        ("resnet34", 21_797_672),
        ("resnet50", 25_557_032),
        ("resnet101", 44_549_160),
        ("resnet152", 60_192_808),
        ("superneurons_alexnet", 62_378_344),  # one tower: its groups would halve three of the convolutions
        ("caffenet", 60_965_224),
        ("alexnet_caffe", 60_965_224),
        ("cifar10_quick", 145_578),
        ("cifar10_full", 89_578),
        ("squeezenet", 1_235_496),  # v1.1
        ("mobilenet_v1", 4_231_976),
        ("mobilenet_v2", 3_504_872),
        ("siamese", 431_102),  # of both branches together
        ("autoencoder", 2_837_314),
        ("unet", 31_030_658),  # of two classes, with the biases of its transposed convolutions
        ("vit_small", 22_049_896),  # Beyer 2022: without the token of a class, its mean patch is classified
        ("vit_s", 22_050_664),
        ("vit_b", 86_567_656),
        ("vit_l", 304_326_632),
        ("convnext_tiny", 28_589_128),
        ("convnext_small", 50_223_688),
        ("convnext_base", 88_591_464),
        ("convnext_large", 197_767_336),
        ("swin_t", 28_288_354),
        ("swin_s", 49_606_258),
        ("swin_b", 87_768_224),
        ("densenet121", 7_978_856),
        ("inception_v3", 23_834_568),
        ("inception_v4", 42_679_816),
        ("resnet56", 856_058),  # He's 0.85 million, and the projections
        ("wrn_28_10", 36_476_954),  # Zagoruyko's 36.5 million
        ("ddpm_cifar10", 35_746_307 + 1000 * (128 + 2)),  # and two fixed tables, of sinusoids and of noise
    ],
)
def test_parameters_as_published(name, count):
    assert learnable(name) == count


@pytest.mark.parametrize(
    "name, sizes",
    [
        ("alexnet", [55, 27, 27, 13, 13, 13, 13, 6]),
        ("overfeat", [108, 36, 30, 15, 15, 15, 15, 15, 5]),
        ("resnet50", [112, 56, 56, 28, 14, 7, 1]),
        ("googlenet", [112, 56, 28, 14, 4, 7, 1]),
        ("superneurons_alexnet", [55, 27, 27, 13, 13, 13, 13, 6]),
        ("caffenet", [55, 27, 27, 13, 13, 13, 13, 6]),
        ("alexnet_caffe", [55, 27, 27, 13, 13, 13, 13, 6]),
        ("squeezenet", [113, 56, 28, 14, 1]),
        ("mobilenet_v1", [112, 56, 28, 14, 7, 1]),
        ("mobilenet_v2", [112, 56, 28, 14, 7, 1]),
        ("cifar10_full", [32, 16, 16, 8, 8, 4]),
        ("inception_v3", [149, 147, 147, 73, 73, 71, 35, 35, 17, 17, 8, 8, 1]),
        ("inception_v4", [149, 147, 147, 73, 71, 35, 17, 8, 1]),
        ("convnext_tiny", [56, 28, 14, 7, 1]),
        ("densenet121", [112, 56, 28, 14, 7, 1]),
        ("cifar10_quick", [32, 16, 16, 8, 8, 4]),
        ("resnet56", [32, 16, 8, 1]),
        ("wrn_28_10", [32, 16, 8, 1]),
    ],
)
def test_sizes_of_maps(name, sizes):
    """Each size occurs, in this order: ceil-mode pooling gives the papers' geometry."""
    seen = [t.tensor.shape[2] for n in net(name).graph("TRAIN").layers for t in n.tops if len(t.tensor.shape) == 4]
    rest = iter(seen[1:])
    assert all(size in rest for size in sizes), seen


def sums(name: str, batch: int) -> tuple[int, int, int, int, int]:
    """Weights, feature maps (in place where the file says so, the image too), two largest gradient maps, and the
    feature maps that convolutions, and convolutions and poolings, read: MiB as in the vDNN paper."""
    graph = net(name, batch).graph("TRAIN")
    weights = sum(4 * prod(p.shape) for node in graph.layers for p in node.parameters)
    maps = {
        top.name: 4 * prod(top.tensor.shape)
        for node in graph.layers
        for top in node.tops
        if node.layer.type not in ("SoftmaxWithLoss",) and top.tensor.dtype == "float32"
    }
    largest = max(size for blob, size in maps.items() if blob != "data")
    read = {"Convolution": 0, "Pooling": 0}
    for node in graph.layers:
        if node.layer.type in read:
            read[node.layer.type] += node.bottoms[0].tensor.nbytes
    return weights, sum(maps.values()), 2 * largest, read["Convolution"], sum(read.values())


@pytest.mark.parametrize(
    "name, batch, base, conv, everything",
    [
        ("alexnet", 128, 780, 164.9, 348.9),
        ("overfeat", 128, 2819, 385.4, 1157),
        ("vgg19", 64, 6155, 2536, 4030),
        ("vgg19", 128, 11761, 5072, 8060),
        ("vgg19", 256, 22975, 10143, 16121),
        ("vgg116", 32, 18716, None, 16960),
        ("vgg216", 32, 34080, None, None),
        ("vgg316", 32, 49444, None, 46850),
        ("vgg416", 32, 64808, None, 61795),
    ],
)
def test_the_vdnn_paper_s_bytes(name, batch, base, conv, everything):
    weights, maps, gradients, of_conv, of_all = (n / MIB for n in sums(name, batch))
    assert round(weights + maps + gradients) == base
    assert conv is None or round(of_conv, 1) == conv or round(of_conv) == conv
    assert everything is None or round(of_all, 1) == everything or round(of_all) == everything


def test_superneurons_alexnet_s_bytes():
    """23 outputs, and 13 gradients (ReLU, LRN and softmax work in place of theirs): the paper's 2189.437 MiB."""
    layers = [n for n in net("superneurons_alexnet").graph("TRAIN").layers if n.layer.type != "Data"]
    scores = layers[-1].bottoms[0].tensor.nbytes  # of the softmax, inside of the loss
    outputs = [*(n.tops[0].tensor.nbytes for n in layers[:-1]), scores]
    kinds = ("Convolution", "Pooling", "InnerProduct", "Dropout")
    gradients = [n.bottoms[0].tensor.nbytes for n in layers if n.layer.type in kinds]
    assert (len(outputs), len(gradients)) == (23, 13)
    assert round((sum(outputs) + sum(gradients)) / MIB, 3) == 2189.437
    convs = [round(n.tops[0].tensor.nbytes / MIB, 2) for n in layers if n.layer.type == "Convolution"]
    assert convs[:4] == [221.56, 142.38, 49.51, 49.51]


def convolutions(name: str) -> int:
    return sum(layer.type == "Convolution" for layer in net(name).layers)


def test_blocks_add_up_to_a_depth():
    for depth in (50, 101, 137, 152, 155, 302, 695, 1001, 1172, 1304, 1484, 1505, 1511, 1517):
        assert 3 * sum(zoo.residual_blocks(depth)) + 2 == depth


COUNTED = {
    "resnet56": 55 + 3,  # and a projection in each group
    "wrn_28_10": 28,  # its depth counts the projections, not the classifier
    "wrn_8_4": 7 + 3,
    "densenet121": 120,
    "vgg416": 416,
    "resnet1517": 1516 + 4,  # likewise, as Layrub's file has
    "superneurons_resnet1922": 1921 + 4,
}


@pytest.mark.parametrize("name", usual_are(["resnet56", "wrn_28_10", "wrn_8_4", "densenet121"], COUNTED))
def test_layers_with_weights_are_counted(name):
    assert convolutions(name) == COUNTED[name]


@pytest.mark.slow
def test_superneurons_family_is_free_in_its_third_group():
    made = net("superneurons_resnet1922")
    heads = [layer.name for layer in made.layers if layer.type == "Eltwise"]
    assert [sum(name.startswith(f"res{group}") for name in heads) for group in (2, 3, 4, 5)] == [6, 32, 596, 6]
    assert made.layers[0].data_param.batch_size == 16


@pytest.mark.parametrize("name, batch", [("resnet101", 7), ("resnet56", 9), ("wrn_8_2", 3), ("inception_v3", 2)])
def test_a_made_net_takes_a_batch(name, batch):
    assert net(name, batch).graph("TRAIN").layers[0].tops[0].tensor.shape[0] == batch


@pytest.mark.parametrize(
    "name, tops, joins",
    [("densenet121", 1024, 58), ("inception_v3", 2048, 11), ("inception_v4", 1536, 19)],
)
def test_what_joins_carry(name, tops, joins):
    """Concatenations, and the maps that the classifier's pooling reads."""
    layers = net(name).graph("TRAIN").layers
    assert sum(n.layer.type == "Concat" for n in layers) == joins
    assert next(n for n in layers if n.name == "pool5").bottoms[0].tensor.shape[1] == tops


VOCABULARIES = {"gpt2": 50257, "llama": 128256, "bert": 30522}


@pytest.mark.parametrize("name", [*zoo.MADE, "resnet34", "resnet56", "wrn_28_10", "wrn_8_256"])
def test_made_nets_resolve_in_both_phases(name):
    made = net(name)
    classes = {"fcn32s": 21, "unet": 2, "siamese": 2, "autoencoder": 784, "ddpm_cifar10": 3}
    classes = classes.get(name, 10 if name.startswith(("wrn", "resnet56", "cifar10")) else 1000)
    for phase in ("TRAIN", "TEST"):
        graph = made.graph(phase)
        loss = [n for n in graph.layers if n.layer.loss][-1]
        if words := VOCABULARIES.get(name.partition("_")[0]):  # the loss makes the scores of each token
            assert loss.layer.classes([b.tensor.shape for b in loss.bottoms]) == words
        else:
            assert loss.bottoms[0].tensor.shape[1] == classes


@pytest.mark.parametrize(
    ("name", "count"),  # those of the checkpoints that the authors published
    [
        ("gpt2", 124_439_808), ("gpt2_medium", 354_823_168), ("gpt2_large", 774_030_080), ("gpt2_xl", 1_557_611_200),
        ("llama_1b", 1_235_814_400), ("llama_8b", 8_030_261_248),
        ("bert_base", 109_514_298), ("bert_large", 335_174_458),
    ],
)  # fmt: skip
def test_parameters_of_language_models(name, count):
    """Each once: the head has those of the table of tokens."""
    sizes = {
        p.tensor or f"{node.name}.{p.name}": math.prod(p.shape)
        for node in net(name).graph("TRAIN").layers
        for p in node.parameters
    }
    assert sum(sizes.values()) == count


@pytest.mark.parametrize(
    "name, says",
    [
        ("resnet1000", "resnet998 or resnet1001"),
        ("vgg20", "vgg21"),
        ("vgg", "did you mean 'vgg1"),
        ("models/resnet5.yaml", "did you mean 'models/resnet50.yaml'"),
        ("lenett", "did you mean 'lenet'"),
        ("inception3", "did you mean 'inception_v3'"),
        ("superneurons_resnet1920", "superneurons_resnet1922"),
        ("wrn_29_10", "wrn_26_10"),
        ("nothing_like_it", "there are alexnet, cifar10_quick"),
        ("", ".: not a file; name a model file, or one of alexnet"),
        ("./", ".: not a file"),
        ("/", "/: not a file"),
    ],
)
def test_a_wrong_name_says_what_there_is(name, says):
    with pytest.raises(zoo.NoSuchModel) as error:
        zoo.find(name)
    assert says in str(error.value)


@pytest.mark.parametrize("suffix", [".onnx", ".py", ".prototxt", ""])
def test_what_is_there_and_no_file_is_called_what_it_is(tmp_path, suffix):
    (tmp_path / f"folder{suffix}").mkdir()
    os.mkfifo(tmp_path / f"pipe{suffix}")
    (tmp_path / f"link{suffix}").symlink_to("nowhere")
    for name, kind in {"folder": "a folder", "pipe": "not a regular file", "link": "a link to no file"}.items():
        path = tmp_path / f"{name}{suffix}"
        for given in (path, f"{path}:A") if suffix == ".py" else (path,):
            with pytest.raises(zoo.NoSuchModel, match=re.escape(f"{path}: {kind}; name a model file, or one of ")):
                zoo.find(given)
    with pytest.raises(zoo.NoSuchModel, match=r"there is no file or model .*; there are "):
        zoo.find(tmp_path / f"pip{suffix}")  # a pipe is no suggestion


@pytest.mark.slow
def test_families_have_every_depth():
    for name, (make, first, step) in zoo.DEPTHS.items():
        assert zoo.family(f"{name}{first}") == zoo.family(name) == name
        for depth in (first, first + step, first + 20 * step):
            kinds = ("Convolution", "InnerProduct") if "resnet" in name else ("Convolution",)
            weighty = [n for n in make(depth, batch=1).layers if n.type in kinds and "branch1" not in n.name]
            assert len(weighty) == depth


def test_names_are_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert zoo.find("models/vgg16.yaml") == zoo.find("vgg16") == zoo.folder() / "vgg16.yaml"
    (tmp_path / "vgg16").write_text("mine")
    assert zoo.find("vgg16") == Path("vgg16")  # a file of the user's goes first


def test_written_files_are_what_the_classes_say():
    script = MODELS / "generate.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", zoo.WRITTEN, ids=lambda kind: kind.name)
def test_file_and_class_are_the_same_net(kind):
    assert net(kind.name) == kind()


def test_load_takes_what_the_command_line_takes(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    net = minidnn.load("digits_lenet", batch=4)
    assert (
        net == minidnn.load(zoo.folder() / "digits_lenet.yaml", batch=4) == minidnn.load("models/digits_lenet.yaml", 4)
    )
    assert net.graph("TEST")["conv1_1"].tops[0].tensor.shape[0] == 4
    assert minidnn.load("resnet20", batch=2) == zoo.find("resnet20", 2)
    with pytest.raises(zoo.NoSuchModel, match="did you mean 'digits_lenet'"):
        minidnn.load("digits_lent")
