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
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minidnn.costs import Costs
from minidnn.errors import InvalidInput, few
from minidnn.jobs.setting import Setting
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.disk import DiskFile
from minidnn.memory.planning import arrange
from minidnn.memory.policies import BUDGETED, find
from minidnn.memory.schedule import Compute, Schedule
from minidnn.program import Program, Tensor, nbytes
from minidnn.sizes import text
from minidnn.torch import costs as torch_costs
from minidnn.torch.addresses.stepping import Stepping
from minidnn.torch.arguments import Arguments
from minidnn.torch.calls import Layout, Sum
from minidnn.torch.capture import FORWARD_ALONE, RESULT, Capture
from minidnn.torch.capturing import captured, extents
from minidnn.torch.checks import check_modules
from minidnn.torch.code import Runtime, Steps, owned, written
from minidnn.torch.cuda_graph import Graphed
from minidnn.torch.devices import device_of, repeated, runtime, suited
from minidnn.torch.fingerprint import Fingerprint
from minidnn.torch.installed import torch_module
from minidnn.torch.modes import AUTOCAST, no_autocast
from minidnn.torch.optimizer import OptimizerBytes, bytes_of
from minidnn.torch.results import rebuilt
from minidnn.torch.scratch import Scratch
from minidnn.torch.state import HostState
from minidnn.torch.traced import Traced
from minidnn.torch.tracing import trace

if TYPE_CHECKING:
    import torch

MOST = 32  # plans of one step: a module that needs more changes all the time


@dataclass(eq=False)
class Planned:
    """A plan of a step, and the functions that run it."""

    capture: Capture
    schedule: Schedule
    runtime: Runtime
    values: tuple[Callable[[Sequence[Any]], Any], ...]
    later: tuple[tuple[str, Callable[[Sequence[Any]], Any]], ...]
    added: Mapping[str, Layout]  # the parameters whose gradients are added to those that are there
    graph: bool = False  # whether CUDA graphs were asked for
    checked: bool = False  # whether results have been compared with what was foreseen of them
    _repeated: Callable[..., Steps] | None = None

    def begin(self, tensors: Sequence[Any]) -> Steps:
        """A step on these tensors of the arguments. The first one checks the layout of each result."""
        given = [value(tensors) for value in self.values]
        if not self.checked:
            self.checked = True
            return written(self.capture, self.schedule, self.runtime, checked=True)(*given)
        return self.repeated(*given)

    @property
    def repeated(self) -> Callable[..., Steps]:
        """The function of all steps but the first."""
        if self._repeated is None:
            self._repeated = repeated(self.capture, self.schedule, self.runtime, self.graph)
        return self._repeated

    @property
    def why_no_graph(self) -> str:
        """Why no CUDA graph replays the step; "" if one does, or will after the first steps."""
        if not self.graph:
            return "cuda_graph=True was not given"
        if isinstance(self.repeated, Graphed):
            return self.repeated.reason
        if isinstance(self.repeated, Stepping):
            return "planned addresses take the place of the allocator that graphs need"
        return "the module is on the CPU"

    @property
    def reserved(self) -> int | None:
        """Bytes that a step reserves on a GPU, beside what the caller owns when it begins. With planned addresses they
        are known from the third step on; without, PyTorch's caching allocator decides them: None."""
        return self.repeated.reserved if isinstance(self.repeated, Stepping) else None

    def read_later(self, tensors: Sequence[Any]) -> list[tuple[str, torch.Tensor]]:
        """The caller's tensors that the backward pass reads, or an op that runs again in it, by their names."""
        return [(name, value(tensors)) for name, value in self.later]

    @property
    def peak(self) -> int:
        """Bytes on the device at most, those that the caller owns included."""
        return self.schedule.live_peak


class Step:
    """A module's step, which is called as the module is. `compile` makes it.

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
        self._running: _Running | None = None
        self._installed = False
        self._suited, self._runtime = suited, runtime
        own = next((str(t.device) for t in module.parameters() if t.device.type == "cuda"), "cpu")
        self.scratch = Scratch(own)
        self._watched: dict[str, tuple[Any, Any]] = {}
        self._expected: dict[str, Any] = {}  # while a backward pass runs: what each parameter's gradient must be
        self._refresh()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A step's loss, as the module or the loss function returns it; under `torch.no_grad()` what they return.

        Raises InvalidInput where no plan can be made, and BudgetError where none keeps the budget."""
        torch = torch_module()
        self._expected.clear()
        if self._running is not None:
            self._running.close()
            self._running = None
        arguments = Arguments.of(args, kwargs)
        training = torch.is_grad_enabled()
        planned = self._plan(arguments, training)
        running = _Running(self, planned, arguments.tensors)
        if not training:
            return rebuilt(planned.capture.traced.result, running.results())
        self._running = running
        loss = _function().apply(running, *running.trained)
        wrap = planned.capture.traced.result
        return loss if wrap is None else wrap(loss)

    # ---- plans

    def plan(self, *args: Any, **kwargs: Any) -> Planned:
        """The plan for these arguments, made without running anything."""
        return self._plan(Arguments.of(args, kwargs), torch_module().is_grad_enabled())

    def _refresh(self) -> None:
        """Look again at what the module holds."""
        torch = torch_module()
        self._held: dict[tuple[str, str], tuple[Any, str]] = {}
        for path, m in self.module.named_modules():
            for what, held in (("parameter", m._parameters), ("buffer", m._buffers)):
                self._held |= {(what, f"{path}.{key}" if path else key): (held, key) for key in held}
        self._parameters = dict(self.module.named_parameters())
        self._own = (*self._parameters.values(), *self.module.buffers())
        self._memory = {t.untyped_storage().data_ptr() for t in self._own if t.layout == torch.strided} - {0}
        self._nodes = {name: _accumulating(p) for name, p in self._parameters.items() if p.requires_grad}
        for name, node in self._nodes.items():
            if name not in self._watched or self._watched[name][0] is not node:
                if name in self._watched:
                    self._watched[name][1].remove()
                self._watched[name] = node, node.register_prehook(partial(self._arrives, name))

    def _arrives(self, name: str, gradients: Sequence[Any]) -> None:
        """A gradient of a parameter arrives where it is added to `.grad`. Raises InvalidInput if it is not the plan's
        alone."""
        if name not in self._expected:
            return
        expected, (arrived,) = self._expected.pop(name), gradients
        got = None if arrived is None else (arrived.data_ptr(), arrived._version)
        if got != expected:
            raise InvalidInput(
                f"{name} is used outside of the planned step, too, in the loss that backward() began from: let the "
                "module or loss= compute the whole loss, since gradients are added in another order otherwise"
            )

    def _plan(self, arguments: Arguments, training: bool) -> Planned:
        torch = torch_module()
        if self._fingerprint.changed():
            self._refresh()
        if training:
            self._check()
        parameters = self._parameters
        if any(p.requires_grad and name not in self._nodes for name, p in parameters.items()):
            self._refresh()
        there = tuple(p.requires_grad and p.grad is not None for p in parameters.values()) if training else ()
        shapes = tuple((*_geometry(t), self._aliases(t)) for t in arguments.tensors)
        plain = tuple(None if isinstance(x, torch.Tensor) else _hashed(x) for x in arguments.leaves)
        own = tuple(map(_geometry, self._own))
        traced_by = (repr(arguments.tree), plain, shapes, training, self._fingerprint.state, own, _modes())
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
            if any(t.device.type == "meta" for t in (*self._own, *arguments.tensors)):
                raise InvalidInput("a step runs, so that its tensors need values: some are on the device 'meta'")
            if number == len(traces):
                device_of(self.module)
                with self._original():
                    traces.append(trace(self.module, arguments, self.loss, training))
            names = frozenset(name for name, has in zip(parameters, there, strict=False) if has)
            traced = traces[number]
            self.plans[key] = self._planned(captured(traced, extents(traced, self.scratch), names, self.state))
        return self.plans[key]

    def _aliases(self, t: torch.Tensor) -> int | None:
        """Where an argument lies in memory that the module has, too."""
        torch = torch_module()
        shared = t.layout == torch.strided and t.untyped_storage().data_ptr() in self._memory
        return int(t.storage_offset()) if shared else None

    def _planned(self, capture: Capture) -> Planned:
        setting, program = self.setting, capture.program
        costs = torch_costs.here(capture)
        budget = setting.budget
        if self.share is not None:
            budget = self._part(program, costs)
        if setting.staging is not None:
            costs = replace(costs, staging=setting.staging)
        arrangement = arrange([program], setting.policy, costs, budget, setting.host_budget)
        device = device_of(self.module)
        schedule = self._suited(device, arrangement.schedules[program.name])
        disk = DiskFile(setting.disk, arrangement.on_disk) if setting.disk is not None and arrangement.disk else None
        carries = self._runtime(device, schedule, disk)
        added = {s.name: capture.layouts[t] for t, s in capture.sources.items() if s.what == "gradient"}
        later = tuple((capture.sources[t].name, self._value(capture, t)) for t in _read_later(capture, schedule))
        values = tuple(self._value(capture, t) for t in owned(capture))
        return Planned(capture, schedule, carries, values, later, added, self.graph)

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

    def _value(self, capture: Capture, t: Tensor) -> Callable[[Sequence[Any]], Any]:
        """What gives the value of a tensor that the caller owns, when a step begins."""
        source = capture.sources[t]
        if source.what == "input":
            index = source.index
            return lambda tensors: tensors[index]
        if source.what == "constant":
            value = source.value
            return lambda tensors: value
        where = source.what, source.name

        def value_of(tensors: Sequence[Any]) -> Any:
            held, key = self._held[where]
            return held[key]

        return value_of

    def _check(self) -> None:
        """Raise InvalidInput for what a planned step does not do."""
        torch = torch_module()
        hooked = [
            name for name, p in self._parameters.items()
            if p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None)
        ]  # fmt: skip
        if hooked:
            raise InvalidInput(
                f"{few(hooked)}: hooks on gradients are not called by a planned step: remove them, and look at `.grad` "
                "after loss.backward()"
            )
        if torch.is_anomaly_enabled():
            raise InvalidInput("torch.autograd.set_detect_anomaly(True): a planned step looks for no NaN: turn it off")

    # ---- in the module's place

    def install(self) -> Step:
        """Let the module's own calls run this step, for loops that call the module themselves. `remove` ends that."""
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
        """Give the module its own forward pass back."""
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
        known = f"{len(self.plans)} plans, at most {text(most)}" if self.plans else "no plan yet"
        return f"<step of {type(self.module).__name__} by {self.setting.policy}: {known}>"


def _read_later(capture: Capture, schedule: Schedule) -> list[Tensor]:
    """What the caller owns, and what ops behind the loss read of it."""
    computes = [x for x in schedule.instructions if isinstance(x, Compute)]
    at = next((i for i, x in enumerate(computes) if x.op.name == RESULT), len(computes))
    read = dict.fromkeys(s.tensor for x in computes[at:] for s in x.reads)
    named = [t for t in read if t in capture.sources]
    return [t for t in named if capture.sources[t].what in ("parameter", "buffer", "input", "constant")]


@dataclass(eq=False)
class _Running:
    """A step that has begun."""

    step: Step
    planned: Planned
    tensors: Sequence[Any]
    state: str = "open"
    steps: Steps = field(init=False)

    def __post_init__(self) -> None:
        self.steps = self.planned.begin(self.tensors)

    @property
    def names(self) -> tuple[str, ...]:
        return self.planned.capture.traced.trained

    @property
    def trained(self) -> list[torch.Tensor]:
        return [self.step._parameters[name] for name in self.names]

    def loss(self) -> torch.Tensor:
        with _quiet():
            result: torch.Tensor = next(self.steps)
        self.read = [(name, t, *_state(t)) for name, t in self.planned.read_later(self.tensors)]
        return result

    def results(self) -> list[torch.Tensor]:
        with _quiet():
            return _end(self.steps, None)

    def finish(self, tangent: torch.Tensor) -> list[torch.Tensor | None]:
        """Run the backward pass. The gradients of the parameters in order: None for those that are in `.grad` already,
        or that the loss does not depend on."""
        self._check()
        capture = self.planned.capture
        sums = {name: self._sum(name) for name in self.planned.added}
        self.state = "been used by a backward pass already"
        self.step._running = None
        with _quiet():
            gradients = _end(self.steps, (tangent, *sums.values()))
        for name, total in sums.items():
            self.step._parameters[name].grad = total.tensor
        new = [n for n, v in capture.gradients.items() if v.tensor not in capture.sources]
        given = dict(zip(new, gradients, strict=True))
        self.step._expected = {
            name: (given[name].data_ptr(), given[name]._version) if name in given else None
            for name in capture.gradients
        }  # fmt: skip
        torch_module().autograd.Variable._execution_engine.queue_callback(self.step._expected.clear)
        return [given.get(name) for name in self.names]

    def _check(self) -> None:
        """Raise InvalidInput where the backward pass would not be the one that eager mode runs."""
        torch = torch_module()
        if self.state != "open":
            raise InvalidInput(
                f"this loss of {type(self.step.module).__name__} has {self.state}: call loss.backward() once, before "
                "the next step begins; a planned step keeps the tensors of one step alone"
            )
        if torch.is_grad_enabled():
            raise InvalidInput(
                "loss.backward(create_graph=True): gradients of gradients are not planned: let the module or loss= "
                "compute them, by torch.autograd.grad(..., create_graph=True)"
            )
        if _autocast():
            raise InvalidInput("loss.backward() within torch.autocast is not planned: end the autocast block before it")
        for name, t, version, place in self.read:
            if _state(t) != (version, place):
                raise InvalidInput(
                    f"{name} has changed since the step began, and its backward pass reads it: change it behind "
                    "loss.backward()"
                )
        for name in self.planned.added:
            if not self.step._parameters[name].requires_grad or not _runs(self.step._nodes[name]):
                raise InvalidInput(
                    f"{name} has a gradient that this step was planned to add to, and this backward pass does not: "
                    "call loss.backward() for all parameters, or set gradients to None before the step"
                )

    def _sum(self, name: str) -> Sum:
        """What a gradient is added to, and whether it has a value: it has none if it was set to None meanwhile."""
        torch = torch_module()
        there, layout = self.step._parameters[name].grad, self.planned.added[name]
        if there is None:
            parameter = self.step._parameters[name]
            new = torch.empty_strided(layout.size, layout.stride, dtype=layout.dtype, device=parameter.device)
            return Sum(new, there=False)
        if there.layout != torch.strided or there.dtype != layout.dtype:
            raise InvalidInput(f"{name}.grad is of {there.dtype} and of layout {there.layout}: set it to None")
        return Sum(there, there=True)

    def close(self) -> None:
        if self.state == "open":
            self.state = "been left, since another step has begun"
            self.steps.close()


def _state(t: torch.Tensor) -> tuple[int, int]:
    """What another value of a tensor shows in."""
    return t._version, t.data_ptr()


def _runs(node: Any) -> bool:
    """Whether the backward pass that runs will add to this parameter's gradient."""
    try:
        return bool(torch_module()._C._will_engine_execute_node(node))
    except RuntimeError:  # torch.autograd.grad
        return False


def _accumulating(p: torch.Tensor) -> Any:
    """The node of autograd that adds to a parameter's gradient."""
    return torch_module("autograd.graph").get_gradient_edge(p).node


def _geometry(t: torch.Tensor) -> tuple[Any, ...]:
    return tuple(t.shape), t.stride(), t.dtype, t.device, t.requires_grad


def _end(steps: Steps, sent: Any) -> list[torch.Tensor]:
    try:
        steps.send(sent)
    except StopIteration as end:
        result: list[torch.Tensor] = end.value
        return result
    raise AssertionError("a step goes on behind its end")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without autograd, and without autocast, whose casts are ops of the plan."""
    with torch_module().no_grad(), no_autocast():
        yield


def _function() -> Any:
    """The function of autograd that stands for a whole step."""
    torch = torch_module()

    class PlannedStep(torch.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, running: _Running, *parameters: Any) -> Any:
            ctx.running = running
            return running.loss()

        @staticmethod
        def backward(ctx: Any, tangent: Any) -> Any:
            return None, *ctx.running.finish(tangent)

    globals()["_function"] = lambda: PlannedStep
    return PlannedStep


def _autocast() -> tuple[Any, ...]:
    torch = torch_module()
    return tuple((d, torch.get_autocast_dtype(d)) for d in AUTOCAST if torch.is_autocast_enabled(d))


def _modes() -> tuple[Any, ...]:
    """What PyTorch is told, for all that runs."""
    torch = torch_module()
    backends = torch.backends
    return (
        *_autocast(), torch.are_deterministic_algorithms_enabled(), torch.get_default_dtype(),
        torch.get_float32_matmul_precision(), backends.mkldnn.enabled, backends.cuda.flash_sdp_enabled(),
        backends.cuda.math_sdp_enabled(), backends.cuda.mem_efficient_sdp_enabled(), backends.cudnn.enabled,
        backends.mha.get_fastpath_enabled(),
    )  # fmt: skip


def _hashed(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


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
    optimizer: torch.optim.Optimizer | None = None,
    state: str = "device",
    cuda_graph: bool = False,
) -> Step:
    """A training step of a module within a budget of bytes.

    args, kwargs: those of a step, to plan for now; None: the first step's are planned for when it comes
    loss:     computes the loss from what the module returns and the last of `args`, the target, which the module does
              not get; None: the module itself returns the loss, alone or as result["loss"]
    budget:   device bytes, such as "6GiB": of parameters, buffers, gradients, the batch, and all that a step makes; or
              "60%" of those that a training step makes if all is kept until its last use. None: no limit
    policy:   default: "best" with a budget, else "liveness"
    host_budget, host_ring, disk: as in `minidnn.plan`
    optimizer: whose state counts in the budget, and whose own step keeps it, too; without it, only `step(...)` and
              loss.backward() keep the budget
    state:    "host": the optimizer's state is there from one of its steps to the next
    cuda_graph: replay the step as two CUDA graphs where it can be; gradients then lie where those of the step before
              lay, and `why_no_graph` of a plan says why there is none

    Raises InvalidInput where the module cannot be planned, and BudgetError where no plan keeps the budget.
    """
    share = None
    if isinstance(budget, str) and budget.strip().endswith("%"):
        share, budget = _share(budget), None
    given: dict[str, Any] = dict(budget=budget, host_budget=host_budget, host_ring=host_ring, disk=disk)
    policy = policy or (None if share is None else BUDGETED)
    setting = Setting.of({"policy": policy, **given})  # type: ignore[typeddict-item]
    find(setting.policy)  # raises for a name that none has
    step = Step(module, loss, setting, share, _held(module, optimizer, state, setting.budget), cuda_graph)
    if args is not None or kwargs is not None:
        step.plan(*(args or ()), **(kwargs or {}))
    return step


def _held(module: torch.nn.Module, optimizer: torch.optim.Optimizer | None, state: str, budget: int | None) -> int:
    """Bytes of the optimizer's state that are on the device while a step computes. It is sent to the host if it is to
    be there. Raises BudgetError if the optimizer's own step exceeds the budget."""
    if state not in ("device", "host"):
        raise InvalidInput(f"state {state!r}: expected 'device' or 'host'")
    if optimizer is None:
        if state == "host":
            raise InvalidInput("state 'host' is an optimizer's: name it, too (optimizer=...)")
        return 0
    own = bytes_of(optimizer, module)
    if budget is not None:
        _check_optimizer(own, module, budget)
    if state == "device":
        return own.state
    HostState(optimizer).attach()
    return 0


def _check_optimizer(own: OptimizerBytes, module: torch.nn.Module, budget: int) -> None:
    weights = sum(t.nbytes for t in (*module.parameters(), *module.buffers()))
    gradients = sum(p.nbytes for p in module.parameters() if p.requires_grad)
    needed = weights + gradients + own.state + own.scratch
    if needed > budget:
        raise BudgetError(
            f"{own.name}.step() takes {text(needed)}, and the budget is {text(budget)}: {text(weights)} of weights, "
            f"{text(gradients)} of gradients, {text(own.state)} of state and {text(own.scratch)} beside these; "
            f"{needed} bytes would do, or an optimizer that keeps less (foreach=False takes less, if it is used)",
            needed,
            needed,
        )


def _share(text: str) -> float:
    try:
        share = float(text.strip()[:-1]) / 100
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise InvalidInput(f"budget {text!r}: expected a part above 0% up to 100%, or bytes such as '6GiB'")
    return share
