"""The job of a module of PyTorch: what the planning verbs ask (jobs/plannable.py). Nothing of it runs.

Its programs come from traces, one for each batch that is asked for. Of what nets have, it lacks what a module has no
word for: number formats, fusion, places of state, ranks. Options of these are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from minidnn.costs import Costs
from minidnn.errors import InvalidInput
from minidnn.jobs import gpus
from minidnn.jobs.change import Asked, Change
from minidnn.jobs.costs import staged
from minidnn.jobs.setting import Given, Setting
from minidnn.program import Program
from minidnn.results.policies import EagerRow
from minidnn.sizes import text
from minidnn.spoken import option
from minidnn.torch import costs as seconds
from minidnn.torch.blocks import repeated
from minidnn.torch.capture import GRADIENTS, Capture
from minidnn.torch.eager import predict
from minidnn.torch.example import Example
from minidnn.torch.installed import torch_module
from minidnn.torch.optimizer import OptimizerBytes
from minidnn.torch.places import brief
from minidnn.torch.traces import Traces

OWN = "a module of PyTorch"
IMITATED = ", which has no CUDA here: the CPU's, but for dropout and attention"
# keywords of `Given` that a module has no use for, and why
REFUSED = {
    "format": "it computes in the formats that its tensors have",
    "state": "its parameters and its optimizer's state are the caller's, and stay on the device",
    "facts": "its ops read what PyTorch's read",
    "ranks": "it is planned for one device",
    "link": "it is planned for one device",
    "seq": "the function says the tokens of its batch",
    "global_batch": "it is planned for one device",
    "engine": "it is planned for one device",
    "launch": "it is planned for one device",
    "ram": "PyTorch's process is not predicted",
    "costs": "its ops are PyTorch's, which `minidnn profile` does not measure",
    "keep": "its results are the caller's",
    "workers": "its batches are the caller's",
    "seed": "its numbers are the caller's",
}


@dataclass(frozen=True, eq=False)
class TorchJob:
    """A module at a batch, planned for a GPU or for this machine's CPU.

    size:  the batch; None: the example's own
    asked: the batch that the caller names
    """

    traces: Traces
    setting: Setting
    gpu: str | None = None
    size: int | None = None
    asked: int | None = None
    host_assumed: bool = False
    forward: bool = False
    here: None = None
    side: None = None
    ranked: None = None
    several: bool = False
    whole: bool = True

    @classmethod
    def of(cls, example: Example, given: Given, gpu: str | None = None, batch: int | None = None) -> TorchJob:
        """The job of an example. Raises InvalidInput for what a module has no use for."""
        _check(given)
        gpu = None if gpu is None else gpus.named(gpu)
        setting = Setting.of(given)
        assumed = setting.host_budget is None and setting.disk is None
        if assumed:
            setting = replace(setting, host_budget=gpus.host_memory(gpu))
        return cls(Traces(example, gpu), setting, gpu, batch, batch, assumed)

    # ---- what it is

    @property
    def name(self) -> str:
        return self.traces.example.name

    @property
    def capture(self) -> Capture:
        return self.traces.at(self.size)

    @property
    def programs(self) -> tuple[Program, ...]:
        return (self.capture.program,)

    @property
    def train(self) -> Program:
        return self.capture.program

    @property
    def batch(self) -> int | None:
        return self.size or self.traces.example.batch

    @cached_property
    def format(self) -> str:
        """The number format of most bytes of the parameters."""
        bytes_of: dict[str, int] = {}
        for p in self.traces.example.module.parameters():
            name = str(p.dtype).removeprefix("torch.")
            bytes_of[name] = bytes_of.get(name, 0) + p.numel() * p.element_size()
        return max(bytes_of, key=lambda name: bytes_of[name], default="float32")

    # ---- costs

    def costs(self) -> Costs:
        assert self.capture  # whose ops they are to know
        return staged(self.traces.costs(self.gpu), self.setting)

    def costs_of_sizes(self) -> Costs:
        return self.costs()

    def programs_on(self, gpu: str) -> tuple[Program, ...]:
        return (self.traces.on(gpu).at(self.size).program,)

    def costs_on(self, gpu: str) -> Costs:
        return self.traces.on(gpu).costs(gpu)

    def costs_after(self, change: Change, known: Costs, sizes: bool = False) -> Costs:
        return known

    @cached_property
    def places(self) -> dict[str, str]:
        """The lines of the module's source, by the names of ops and of the tensors that they make."""
        capture = self.capture
        lines = {name: f"{brief(p.file)}:{p.line}" for name, p in capture.places.items() if p.file}
        made = {t.name: lines[op.name] for op in capture.program.ops if op.name in lines for t in op.writes}
        if self.traces.optimizer is not None:
            lines[GRADIENTS] = "optimizer.step()"
        return {**made, **lines}

    def beside(self) -> list[EagerRow]:
        """What PyTorch itself takes for the same step, with the optimizer's."""
        own = self.traces.example_at(self.size)
        rows = []
        for name in ("eager", "checkpoint"):
            if name == "checkpoint" and not repeated(own.module):
                continue
            with self.traces.ops():
                step = predict(
                    own.module, own.args, own.kwargs, own.loss, self.traces.beside, checkpointed=name == "checkpoint"
                )
            own_bytes = self.traces.optimizer
            state, scratch = (0, 0) if own_bytes is None else (own_bytes.state, own_bytes.scratch)
            state += self.traces.beside.lasting
            peak = state + max(step.peak, step.standing + step.curve[-1] + scratch)
            reserved = None if self.gpu is None else max(peak, state + step.reserved)
            blocks = list(step.checkpointed)
            rows.append(EagerRow(pytorch_way=name, most_bytes=peak, reserved_bytes=reserved, blocks=blocks))
        return rows

    def told(self, costs: Costs) -> str:
        """What computes, where seconds come from, and what is assumed, in sentences."""
        return f"{_where(costs, self.format)} {self.assumed}"

    @property
    def assumed(self) -> str:
        """What is assumed on any GPU, in sentences."""
        torch = torch_module()
        imitated = IMITATED if self.gpu is not None and not torch.cuda.is_available() else ""
        version = f"Ops are those of PyTorch {torch.__version__.partition('+')[0]}{imitated}."
        beside = self.traces.beside.told(other.beside for other in self.traces.others.values())
        return " ".join(filter(None, (version, _optimizer(self.traces.optimizer), beside)))

    # ---- variants

    def changed(self, change: Change) -> TorchJob:
        return self if change.batch is None else replace(self, size=change.batch)

    def at_batch(self, batch: int) -> tuple[Program, ...]:
        return self.changed(Change(batch=batch)).programs

    def at_images(self, side: int) -> tuple[Program, ...]:
        raise InvalidInput(f"{self.name} takes the images that its arguments have: {option('max', 'size')} is for nets")

    @property
    def tokens(self) -> None:
        return None

    def at_tokens(self, length: int) -> tuple[Program, ...]:
        raise InvalidInput(
            f"{self.name} takes the tokens that its arguments have: {option('max', 'tokens')} is for nets"
        )

    def command(self, policy: str) -> Asked:
        own, example = self.setting, self.traces.example
        varies = example.again is not None or example.batch is not None
        return Asked(policy, own.budget, own.host_budget, self.batch if varies else None, (), fuses=False)

    def residence(self, unread: bool = False) -> None:
        return None


def _check(given: Given) -> None:
    """Raise InvalidInput for keywords that a module has no use for."""
    for name, why in REFUSED.items():
        if given.get(name):
            raise InvalidInput(f"{option(name)} is not for {OWN}: {why}; leave it out")
    if given.get("device") not in (None, "cpu"):
        raise InvalidInput(
            f"{option('device', given['device'])}: {OWN} is planned for the cpu, or for a GPU's profile "
            f"({option('gpu', 'NAME')})"
        )


def _where(costs: Costs, format: str) -> str:
    """Where seconds come from, in a sentence or two."""
    if costs.origin != "profile":
        return "Planned for this machine's cpu, with seconds by the rates of one core of any (assumed)."
    card, more = gpus.gpu(costs.device), ""
    if format != "float32" and getattr(card, f"{format}_flops", None) is None:
        more = f" It has no rates for {format}, so arithmetic is assumed to be as fast as in float32."
    elif format == "float32" and card.tf32_flops is not None:
        more = f" {_tf32(costs.device)}"
    return f"Simulated on {card.title} from the profile {costs.device}.{more}"


def _tf32(gpu: str) -> str:
    """Which products may be rounded to TF32, in a sentence."""
    convolutions, others = (seconds.card_for(gpu, family).tf32 for family in ("convolution", "inner_product"))
    told = {(True, True): "all products", (True, False): "convolutions alone", (False, True): "all but convolutions"}
    return f"TF32 is allowed in {told.get((convolutions, others), 'no product')}."


def _optimizer(own: OptimizerBytes | None) -> str:
    if own is None:
        return "Without an optimizer: a step ends with the gradients."
    return f"{own.name} has {text(own.state)} of state, and takes {text(own.scratch)} in its step."
