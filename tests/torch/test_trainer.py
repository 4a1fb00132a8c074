"""A stock loop of `transformers.Trainer`: `compile(...).install()` is all that changes, and the weights are those that
it has without."""

from __future__ import annotations

from typing import Any

import pytest

from minidnn.errors import InvalidInput
from minidnn.torch import compile

pytestmark = [pytest.mark.peer("torch", "transformers", "accelerate"), pytest.mark.slow]

WORDS, TOKENS = 64, 16


def model() -> Any:
    """A GPT-2 with dropout."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes = dict(vocab_size=WORDS, n_positions=TOKENS, n_embd=32, n_layer=2, n_head=2)
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, loss_type="ForCausalLM"))


def texts(count: int) -> list[dict[str, Any]]:
    """Some end early, which the labels say."""
    import torch

    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(0, WORDS, (count, TOKENS), generator=generator)
    labels = tokens.clone()
    for i, row in enumerate(labels):
        row[TOKENS - i % 5 :] = -100
    return [
        {"input_ids": x, "labels": y, "attention_mask": (y >= 0).long()} for x, y in zip(tokens, labels, strict=True)
    ]


def trained(folder: Any, budget: str | None, resume: bool = False, **options: Any) -> tuple[Any, ...]:
    """(the bytes of the weights, what was logged, the step) of four steps; the last batch of an epoch is short."""
    from transformers import Trainer, TrainingArguments

    net = model()
    step = compile(net, budget=budget).install() if budget else None
    arguments = TrainingArguments(
        str(folder), per_device_train_batch_size=4, max_steps=4, logging_steps=1, save_steps=2, report_to=[],
        use_cpu=True, seed=3, disable_tqdm=True, **options,
    )  # fmt: skip
    trainer = Trainer(net, arguments, train_dataset=texts(10), eval_dataset=texts(6))
    trainer.train(resume_from_checkpoint=str(folder / "checkpoint-2") if resume else None)
    logged = [{k: v for k, v in line.items() if "loss" in k or k == "grad_norm"} for line in trainer.state.log_history]
    return b"".join(p.detach().numpy().tobytes() for p in net.parameters()), logged, step


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gradient_accumulation_steps": 2},
        {"eval_strategy": "steps", "eval_steps": 2, "load_best_model_at_end": True},
        {"bf16": True},
    ],
    ids=["plain", "accumulation", "evaluation", "bf16"],
)
def test_the_trainer_ends_with_the_same_weights(tmp_path, options):
    ours, planned, step = trained(tmp_path / "planned", "30%", **options)
    theirs, eager, _ = trained(tmp_path / "eager", None, **options)
    assert ours == theirs
    assert planned == eager and len(planned) >= 5
    kinds = {p.capture.program.name for p in step.plans.values()}
    assert kinds >= {"TRAIN"} and ("ACCUMULATE" in kinds) == ("gradient_accumulation_steps" in options)
    assert ("TEST" in kinds) == ("eval_strategy" in options)


def test_a_run_goes_on_from_a_checkpoint(tmp_path):
    whole, _, _ = trained(tmp_path, "300KiB")  # in bytes, since the resumed run begins with a short batch
    resumed, _, _ = trained(tmp_path, "300KiB", resume=True)
    assert resumed == whole


def test_what_the_trainer_would_do_itself_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match=r"gradient_checkpointing_disable\(\)"):
        trained(tmp_path, "30%", gradient_checkpointing=True)


def test_generating_needs_the_module_itself():
    import torch

    net, prompt = model().eval(), torch.arange(3)[None]
    step = compile(net, budget="30%").install()
    with pytest.raises(InvalidInput, match=r"an argument is a DynamicCache.*remove\(\)"):
        net.generate(prompt, max_new_tokens=2, do_sample=False)
    with torch.no_grad():
        result = net(prompt)
    with pytest.raises(InvalidInput, match="does not return the module's DynamicCache"):
        result.past_key_values.get_seq_length()
    step.remove()
    assert net.generate(prompt, max_new_tokens=2, do_sample=False).shape == (1, 5)
    with torch.no_grad():
        assert torch.equal(net(prompt).logits, result.logits)
