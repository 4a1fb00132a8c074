"""Nets of the zoo beside the published code of the same nets: how many parameters, and every gradient."""

from __future__ import annotations

import numpy as np
import pytest

from minidnn.data.masks import UNMASKED
from minidnn.layers.fillers import fill
from minidnn.programs.autodiff import differentiate
from minidnn.zoo.bert import BertBase
from minidnn.zoo.diffusion import DDPM
from minidnn.zoo.swin import SwinTiny
from tests.support import peers
from tests.support.interpret import run

pytestmark = [pytest.mark.peer("torch"), pytest.mark.slow]


def drawn(program, **given):
    """Values of the inputs and the parameters, by name: those given, else small random ones."""
    random = np.random.default_rng(5)
    wanted = {t.name: t for t in (*program.inputs, *program.persistent)}
    return {name: 0.3 * random.standard_normal(t.shape) for name, t in wanted.items()} | given


def assign(module, values, names):
    """Let the module's parameters of these names have our values, and return them by our names."""
    theirs = dict(module.named_parameters())
    for ours, name in names.items():
        theirs[name].data = peers.torch.tensor(values[ours].reshape(theirs[name].shape))
    return {ours: theirs[name] for ours, name in names.items()}


def pair(ours, theirs):
    """The names of a weight or a gain, and of a bias."""
    first, second = ("gamma", "beta") if ours.endswith(("norm", "norm1", "norm2")) else ("w", "b")
    return {f"{ours}.{first}": f"{theirs}.weight", f"{ours}.{second}": f"{theirs}.bias"}


def agree(held, names, rtol=1e-7):
    """Each gradient is theirs, up to `rtol` of its largest value. That of a key's bias is 0, but for roundings."""
    for ours, theirs in names.items():
        got = held_gradient(held, ours)
        want = theirs.grad.numpy().reshape(got.shape)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-14 + rtol * np.abs(want).max(), err_msg=ours)


def held_gradient(held, name):
    """The gradient of a parameter; of "<layer>/<i>.<own>", the i-th third of a matrix or a bias."""
    if f"{name}.grad" in held:
        return held[f"{name}.grad"]
    (layer, rest) = name.rsplit("/", 1)
    third, own = rest.split(".")
    return np.split(held[f"{layer}.{own}.grad"], 3)[int(third)]


def thirds(values, layer, theirs):
    """The names of the three parts of a product for q, k and v, which have a layer each in theirs; `values` gets them,
    too."""
    result = {}
    for own, kind in (("w", "weight"), ("b", "bias")):
        for i, (part, name) in enumerate(zip(np.split(values[f"{layer}.{own}"], 3), theirs, strict=True)):
            values[f"{layer}/{i}.{own}"] = part
            result[f"{layer}/{i}.{own}"] = f"{name}.{kind}"
    return result


# ---- BERT


def bert(module, **fields):
    from transformers import BertConfig

    names = ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"]
    config = BertConfig(**dict(zip(names, fields.pop("sizes"), strict=True)), **fields)
    return module(config)


@pytest.mark.peer("transformers")
@pytest.mark.parametrize(
    ("sizes", "restoring", "model"),
    [
        ((768, 12, 12, 3072, 30522), 109_514_298, 109_482_240),
        ((1024, 24, 16, 4096, 30522), 335_174_458, 335_141_888),
    ],
)
def test_bert_s_published_counts(sizes, restoring, model):
    """Those of which the docstring of minidnn/zoo/bert.py says what they have in them."""
    from transformers import BertForMaskedLM, BertModel

    with peers.torch.device("meta"):
        made = [bert(kind, sizes=sizes) for kind in (BertForMaskedLM, BertModel)]
    assert [sum(p.numel() for p in one.parameters()) for one in made] == [restoring, model]


@pytest.mark.peer("transformers")
def test_bert_has_the_gradients_of_its_published_code():
    from transformers import BertForMaskedLM

    width, words, length = 8, 13, 7
    net = BertBase(batch=3, seq=length, width=width, blocks=2, heads=2, vocabulary=words, dropout=0.0, mask=3)
    program = differentiate(net.graph("TRAIN"))
    random = np.random.default_rng(1)
    # Theirs takes token 0 for padding, which learns nothing.
    tokens, label = (random.integers(1, words, (3, length)).astype(np.int32) for _ in range(2))
    label[random.random(label.shape) < 0.6] = UNMASKED
    values = drawn(program, data=tokens, label=label)
    module = bert(
        BertForMaskedLM, sizes=(width, 2, 2, 4 * width, words), max_position_embeddings=length,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    ).double()  # fmt: skip
    head, embeddings = "cls.predictions.transform", "bert.embeddings"
    names = {
        "embed.w": f"{embeddings}.word_embeddings.weight", "positions.beta": f"{embeddings}.position_embeddings.weight",
        "segments.blob": f"{embeddings}.token_type_embeddings.weight", **pair("norm", f"{embeddings}.LayerNorm"),
        **pair("transform", f"{head}.dense"), **pair("transform_norm", f"{head}.LayerNorm"),
        "loss.b": "cls.predictions.bias",
    }  # fmt: skip
    for i in (1, 2):
        theirs = f"bert.encoder.layer.{i - 1}"
        parts = {
            "out": "attention.output.dense", "norm1": "attention.output.LayerNorm", "mlp1": "intermediate.dense",
            "mlp2": "output.dense", "norm2": "output.LayerNorm",
        }  # fmt: skip
        names |= {k: v for ours, name in parts.items() for k, v in pair(f"block{i}/{ours}", f"{theirs}.{name}").items()}
        self = [f"{theirs}.attention.self.{part}" for part in ("query", "key", "value")]
        names |= thirds(values, f"block{i}/qkv", self)
    learned = assign(module, values, names)
    assert {n for n, _ in module.named_parameters()} - set(names.values()) <= {"cls.predictions.decoder.bias"}
    ignored = peers.torch.tensor(np.where(label == UNMASKED, -100, label)).long()
    loss = module(input_ids=peers.torch.tensor(tokens).long(), labels=ignored).loss
    loss.backward()
    held = run(program, values, "float64")
    held["loss.b.grad"] = held["loss.db"]  # which forward writes
    assert held["loss.y"][0] == pytest.approx(loss.item(), rel=1e-9)
    agree(held, learned)


# ---- Swin


@pytest.mark.peer("transformers")
@pytest.mark.parametrize(
    ("width", "depths", "heads", "count"),
    [
        (96, (2, 2, 6, 2), (3, 6, 12, 24), 28_288_354), (96, (2, 2, 18, 2), (3, 6, 12, 24), 49_606_258),
        (128, (2, 2, 18, 2), (4, 8, 16, 32), 87_768_224),
    ],
)  # fmt: skip
def test_swin_s_published_counts(width, depths, heads, count):
    with peers.torch.device("meta"):
        made = swin(224, width, depths, heads, 7, 1000)
    assert sum(p.numel() for p in made.parameters()) == count


def swin(size, width, depths, heads, window, classes):
    from transformers import SwinConfig, SwinForImageClassification

    config = SwinConfig(
        image_size=size, embed_dim=width, depths=list(depths), num_heads=list(heads), window_size=window,
        num_labels=classes, drop_path_rate=0.0,
    )  # fmt: skip
    return SwinForImageClassification(config)


@pytest.mark.peer("transformers")
def test_swin_has_the_gradients_of_its_published_code():
    """With shifted windows on maps of 2 x 2 windows, and windows that are a whole map."""
    sizes = {"size": 32, "depths": (2, 2), "width": 8, "heads": (2, 4), "window": 4}
    program = differentiate(SwinTiny(batch=3, skipped=0.0, **sizes).graph("TRAIN"))
    random = np.random.default_rng(2)
    image, label = random.standard_normal((3, 3, 32, 32)), random.integers(0, 1000, 3).astype(np.int32)
    values = drawn(program, data=image, label=label)
    module = swin(32, 8, (2, 2), (2, 4), 4, 1000).double()
    names = pair("embed", "swin.embeddings.patch_embeddings.projection") | pair("embed/norm", "swin.embeddings.norm")
    names |= pair("norm", "swin.layernorm") | pair("head", "classifier")
    merge = "swin.encoder.layers.0.downsample"
    names |= pair("merge2/norm", f"{merge}.norm") | {"merge2.w": f"{merge}.reduction.weight"}
    for stage, i in ((1, 1), (1, 2), (2, 1), (2, 2)):
        ours, theirs = f"stage{stage}/block{i}", f"swin.encoder.layers.{stage - 1}.blocks.{i - 1}"
        parts = {
            "norm1": "layernorm_before", "out": "attention.o_proj", "norm2": "layernorm_after", "mlp1": "mlp.fc1",
            "mlp2": "mlp.fc2",
        }  # fmt: skip
        names |= {k: v for part, name in parts.items() for k, v in pair(f"{ours}/{part}", f"{theirs}.{name}").items()}
        names[f"{ours}/bias.w"] = f"{theirs}.attention.relative_position_bias.relative_position_bias_table"
        self = [f"{theirs}.attention.{part}_proj" for part in "qkv"]
        names |= thirds(values, f"{ours}/qkv", self)
    learned = assign(module, values, names)
    assert {name for name, _ in module.named_parameters()} == set(names.values())
    given = peers.torch.tensor(image), peers.torch.tensor(label).long()
    loss = module(pixel_values=given[0], labels=given[1]).loss
    loss.backward()
    held = run(program, values, "float64")
    assert held["loss.y"][0] == pytest.approx(loss.item(), rel=1e-9)
    agree(held, learned)


# ---- DDPM


def unet(size, channels, multipliers, attended, groups=32):
    """The U-Net of the published weights google/ddpm-cifar10-32, or a smaller one."""
    from diffusers import UNet2DModel

    sides = [size >> i for i in range(len(multipliers))]
    kinds = ["Attn" if side == attended else "" for side in sides]
    return UNet2DModel(
        sample_size=size, block_out_channels=[channels * many for many in multipliers], norm_eps=1e-6,
        down_block_types=[f"{kind}DownBlock2D" for kind in kinds], norm_num_groups=groups, attention_head_dim=None,
        up_block_types=[f"{kind}UpBlock2D" for kind in reversed(kinds)], downsample_padding=0, freq_shift=1,
        flip_sin_to_cos=False,
    )  # fmt: skip


@pytest.mark.peer("diffusers")
def test_ddpm_s_published_count():
    with peers.torch.device("meta"):
        made = unet(32, 128, (1, 2, 2, 2), 16)
    assert sum(p.numel() for p in made.parameters()) == 35_746_307


@pytest.mark.peer("diffusers")
def test_ddpm_has_the_gradients_of_its_published_code():
    from diffusers import DDPMScheduler

    sizes = dict(size=8, channels=8, multipliers=(1, 2), attended=4, groups=4)
    graph = DDPM(batch=3, dropout=0.0, **sizes).graph("TRAIN")
    program, time = differentiate(graph), np.array([0, 500, 999], np.int32)
    tables = {
        f"{name}.w": fill(graph[name].parameters[0].filler, graph[name].parameters[0].shape, 0, name).whole()
        for name in ("schedule", "sinusoids")
    }
    values = drawn(program, time=time, **tables)
    module = unet(**sizes).double()
    names = pair("first", "conv_in") | pair("last/norm", "conv_norm_out") | pair("told", "conv_out")
    names |= {k: v for i in (1, 2) for k, v in pair(f"time{i}", f"time_embedding.linear_{i}").items()}
    names |= pair("down1/half", "down_blocks.0.downsamplers.0.conv")
    names |= pair("up2/conv", "up_blocks.0.upsamplers.0.conv")
    blocks = {"middle1": "mid_block.{}.0", "middle2": "mid_block.{}.1"}
    for i in (1, 2):
        blocks |= {f"down{i}_{j}": f"down_blocks.{i - 1}.{{}}.{j - 1}" for j in (1, 2)}
        blocks |= {f"up{i}_{j}": f"up_blocks.{2 - i}.{{}}.{j - 1}" for j in (1, 2, 3)}
    for ours, theirs in blocks.items():
        block = theirs.format("resnets")
        parts = {
            "first/norm": "norm1", "conv1": "conv1", "time": "time_emb_proj", "second/norm": "norm2",
            "conv2": "conv2", "shortcut": "conv_shortcut",
        }  # fmt: skip
        for part, name in parts.items():
            if f"{ours}/{part}.w" in values or part.endswith("norm"):
                names |= pair(f"{ours}/{part}", f"{block}.{name}")
        if f"{ours}/attention/qkv.w" in values:
            attention = theirs.format("attentions")
            names |= pair(f"{ours}/attention/norm", f"{attention}.group_norm")
            names |= pair(f"{ours}/attention/out", f"{attention}.to_out.0")
            names |= thirds(values, f"{ours}/attention/qkv", [f"{attention}.to_{part}" for part in "qkv"])
    learned = assign(module, values, names)
    assert {name for name, _ in module.named_parameters()} == set(names.values())
    image, noise, at = (peers.torch.tensor(values[name]) for name in ("data", "noise", "time"))
    noisy = DDPMScheduler(clip_sample=False).add_noise(image, noise, at.long())
    loss = ((module(noisy, at.long()).sample - noise) ** 2).mean()
    loss.backward()
    held = run(program, values, "float64")
    # Their tables of times are float32, too, made by other roundings.
    np.testing.assert_allclose(held["noisy.y"], noisy.numpy(), rtol=0, atol=1e-6)
    assert held["loss.y"][0] * 2 / (3 * 8 * 8) == pytest.approx(loss.item(), rel=1e-5)
    agree(held, learned, 1e-4)
