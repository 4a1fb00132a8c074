"""A module's training step under a budget of bytes, for the user's own loop.

    step = minidnn.torch.compile(model, (x, y), loss=F.cross_entropy, budget="6GiB")
    for x, y in batches:
        loss = step(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

`step(...)` runs the plan up to the loss, `loss.backward()` the rest. Gradients land in `.grad`. What a plan is made for
is its key: shapes, the module's flags and plain attributes, which parameters have a gradient already. For each key
there is one plan, made when it is first needed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minidnn.costs import Costs
from minidnn.errors import InvalidInput
from minidnn.jobs.setting import Setting
from minidnn.memory.execution.disk import DiskFile
from minidnn.memory.planning import arrange
from minidnn.memory.policies import BUDGETED, find
from minidnn.memory.policies.check import looking_longer
from minidnn.program import Program, nbytes
from minidnn.sizes import text
from minidnn.spoken import many
from minidnn.torch import costs as torch_costs
from minidnn.torch.arguments import Arguments
from minidnn.torch.capture import FORWARD_ALONE, Capture
from minidnn.torch.capturing import captured, extents
from minidnn.torch.checks import check_modules
from minidnn.torch.devices import device_of, runtime, suited
from minidnn.torch.fingerprint import Fingerprint
from minidnn.torch.installed import torch_module
from minidnn.torch.keys import key_of
from minidnn.torch.parameters import Parameters
from minidnn.torch.planned import Planned
from minidnn.torch.results import rebuilt
from minidnn.torch.running import Running, planned_step
from minidnn.torch.scratch import Scratch
from minidnn.torch.state import held_on_device
from minidnn.torch.traced import Traced
from minidnn.torch.tracing import trace

if TYPE_CHECKING:
    import torch

MOST = 32  # plans of one step: a module that needs more changes all the time


class Step:
    """A training step of a module, which is called like the module. `compile` makes it.

    plans: by key, in the order in which they were made
    """

    def __init__(self, module: torch.nn.Module, loss: Callable[..., Any] | None, setting: Setting, share: float | None,
                 state: int, graph: bool = False) -> None:  # fmt: skip
        self.module, self.loss, self.setting, self.share, self.state = module, loss, setting, share, state
        self.graph = graph
        self.plans: dict[Any, Planned] = {}
        self._traces: dict[Any, list[Traced]] = {}
        self._most: dict[str, int] = {}  # bytes that a share has stood for, by the program's name
        check_modules(module)
        self._fingerprint = Fingerprint(module, loss)
        self._running: Running | None = None
        self._installed = False
        self._suited, self._runtime = suited, runtime
        own = next((str(t.device) for t in module.parameters() if t.device.type == "cuda"), "cpu")
        self.scratch = Scratch(own)
        self._parameters = Parameters(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A step's loss, as the module or the loss function returns it; under `torch.no_grad()` what they return.

        Raises InvalidInput where no plan can be made, and BudgetError where none keeps the budget."""
        torch = torch_module()
        self._parameters.expected.clear()
        if self._running is not None:
            self._running.close()
            self._running = None
        arguments = Arguments.of(args, kwargs)
        training = torch.is_grad_enabled()
        planned = self._plan(arguments, training)
        running = Running(planned, arguments.tensors, self._parameters, self._end)
        if not training:
            return rebuilt(planned.capture.traced.result, running.results())
        self._running = running
        loss = planned_step().apply(running, *running.trained)
        wrap = planned.capture.traced.result
        return loss if wrap is None else wrap(loss)

    def _end(self) -> None:
        """The step that runs is nobody's to close any more."""
        self._running = None

    # ---- plans

    def plan(self, *args: Any, **kwargs: Any) -> Planned:
        """The plan for these arguments, made without running anything."""
        return self._plan(Arguments.of(args, kwargs), torch_module().is_grad_enabled())

    def _plan(self, arguments: Arguments, training: bool) -> Planned:
        parameters = self._parameters
        if self._fingerprint.changed():
            parameters.refresh()
        if training:
            parameters.check()
        if not parameters.complete:
            parameters.refresh()
        own = parameters.by_name
        there = tuple(p.requires_grad and p.grad is not None for p in own.values()) if training else ()
        traced_by = key_of(arguments, parameters, training, self._fingerprint.state)
        traces = self._traces.setdefault(traced_by, [])
        number = next((i for i, t in enumerate(traces) if t.holds(arguments.tensors)), len(traces))
        key = (traced_by, number, there)
        if key not in self.plans:
            if len(self.plans) == MOST:
                raise InvalidInput(
                    f"{MOST} plans were made for {type(self.module).__name__}, and this step needs another: "
                    f"{self._fingerprint.reason()}; give steps the same shapes (pad batches), and values that change "
                    "as tensors"
                )
            if any(t.device.type == "meta" for t in (*parameters.own, *arguments.tensors)):
                raise InvalidInput("a step runs, so that its tensors need values: some are on the device 'meta'")
            if number == len(traces):
                device_of(self.module)
                with self._original():
                    traces.append(trace(self.module, arguments, self.loss, training))
            names = frozenset(name for name, has in zip(own, there, strict=False) if has)
            traced = traces[number]
            self.plans[key] = self._planned(captured(traced, extents(traced, self.scratch), names, self.state))
        return self.plans[key]

    def _planned(self, capture: Capture) -> Planned:
        setting, program = self.setting, capture.program
        costs = torch_costs.here(capture)
        budget = setting.budget
        if self.share is not None:
            budget = self._part(program, costs)
        if setting.staging is not None:
            costs = replace(costs, staging=setting.staging)
        with looking_longer([setting.policy], setting.effort):
            arrangement = arrange([program], setting.policy, costs, budget, setting.host_budget)
        device = device_of(self.module)
        schedule = self._suited(device, arrangement.schedules[program.name])
        disk = DiskFile(setting.disk, arrangement.on_disk) if setting.disk is not None and arrangement.disk else None
        carries = self._runtime(device, schedule, disk)
        return Planned.of(capture, schedule, carries, self._parameters, self.graph)

    def _part(self, program: Program, costs: Costs) -> int | None:
        """The budget that a share stands for. A step that is smaller than an earlier one, such as the last batch of an
        epoch, may take as much. A forward pass alone keeps nothing for later, so nothing is a part of it."""
        if program.name == FORWARD_ALONE:
            return None
        assert self.share is not None
        own = nbytes(program.persistent)
        whole = arrange([program], "liveness", costs).arena
        self._most[program.name] = max(self._most.get(program.name, 0), own + int(self.share * (whole - own)))
        return self._most[program.name]

    # ---- in the module's place

    def install(self) -> Step:
        """Make calls of the module run this step, for loops that call the module themselves. `remove` undoes this."""
        if not self._installed:
            original = self.module.forward

            @wraps(original)
            def forward(*args: Any, **kwargs: Any) -> Any:
                return self(*args, **kwargs)

            forward.planned_by = self  # type: ignore[attr-defined]
            self.module.__dict__["forward"] = forward
            self._installed = True
        return self

    def remove(self) -> None:
        """Restore the module's own forward pass."""
        if self._installed:
            del self.module.__dict__["forward"]
            self._installed = False

    @contextlib.contextmanager
    def _original(self) -> Iterator[None]:
        """The module with its own forward pass."""
        installed = self.module.__dict__.pop("forward") if self._installed else None
        try:
            yield
        finally:
            if installed is not None:
                self.module.__dict__["forward"] = installed

    def __repr__(self) -> str:
        most = max((plan.peak for plan in self.plans.values()), default=0)
        known = f"{many(len(self.plans), 'plan')}, at most {text(most)}" if self.plans else "no plan yet"
        return f"<step of {type(self.module).__name__} by {self.setting.policy}: {known}>"


def compile(
    module: torch.nn.Module,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Callable[..., Any] | None = None,
    budget: int | str | None = None,
    policy: str | None = None,
    host_budget: int | str | None = None,
    host_ring: int | str | None = None,
    disk: str | Path | None = None,
    effort: float | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    state: str = "device",
    cuda_graph: bool = False,
) -> Step:
    """Compile a training step of a module that keeps a memory budget.

    args, kwargs: arguments of a step, to plan for now; None: plan when the first step comes
    loss:     computes the loss from the module's result and the target, which is the last of `args` and is not passed
              to the module; None: the module returns the loss itself, alone or as result["loss"]
    budget:   device bytes, such as "6GiB", for parameters, buffers, gradients, the batch, and all tensors of a step;
              or "60%" of the bytes of a step that keeps each tensor until its last use. None: no limit
    policy:   default: "best" with a budget, else "liveness"
    host_budget, host_ring, disk, effort: as in `minidnn.plan`
    optimizer: the optimizer, whose state counts in the budget, and whose step keeps the budget, too; without it, only
               `step(...)` and loss.backward() keep the budget
    state:    "host": keep the optimizer's state on the host between its steps
    cuda_graph: replay the step as two CUDA graphs where possible; gradients then keep their addresses from step to
                step, and `why_no_graph` of a plan gives the reason if there is no graph

    Raises InvalidInput if the module cannot be planned, and BudgetError if no plan keeps the budget.
    """
    share = None
    if isinstance(budget, str) and budget.strip().endswith("%"):
        share, budget = _share(budget), None
    given: dict[str, Any] = dict(budget=budget, host_budget=host_budget, host_ring=host_ring, disk=disk, effort=effort)
    policy = policy or (None if share is None else BUDGETED)
    setting = Setting.of({"policy": policy, **given})  # type: ignore[typeddict-item]
    find(setting.policy)  # raises for a name that none has
    step = Step(module, loss, setting, share, held_on_device(module, optimizer, state, setting.budget), cuda_graph)
    if args is not None or kwargs is not None:
        step.plan(*(args or ()), **(kwargs or {}))
    return step


def _share(text: str) -> float:
    try:
        share = float(text.strip()[:-1]) / 100
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise InvalidInput(f"budget {text!r}: expected a part above 0% up to 100%, or bytes such as '6GiB'")
    return share
