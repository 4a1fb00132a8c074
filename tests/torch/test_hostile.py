"""Hostile modules: each trains with the very bytes of eager mode, or is refused with a text that suffices."""

from __future__ import annotations

import fnmatch
import random

import numpy as np
import pytest

from minidnn.errors import InvalidInput

pytestmark = pytest.mark.peer("torch")

NAMES = (
    "graph break", "in place on an input", "data-dependent shape", "custom Function",
    "custom Function with side effects", "two losses", "two steps in one loss", "unused parameter", "shared module",
    "non-contiguous input", "double backward", "gradient penalty", "complex numbers", "sparse gradient",
    "module that changes between steps",
)  # fmt: skip


def state(x):
    """All of a tensor: its type, its shape and its bytes."""
    import torch

    if not isinstance(x, torch.Tensor):
        return repr(x)
    whole = x.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
    return str(x.dtype), tuple(x.shape), whole.view(torch.uint8).numpy().tobytes() if x.numel() else b""


def train(make, **compiled):
    """Everything that a user may see behind each step. Without options in eager mode."""
    import torch
    from torch.utils._pytree import tree_leaves

    import minidnn.torch.step

    torch.manual_seed(0), random.seed(0), np.random.seed(0)
    case = make()
    m = case.module
    run = m if case.loss is None else lambda *args: case.loss(m(*args[:-1]), args[-1])
    if compiled:
        run = minidnn.torch.step.compile(m, loss=case.loss, **compiled)
    seen = []
    torch.manual_seed(5), random.seed(5), np.random.seed(5)
    for i, given in enumerate(case.batches):
        with case.around():
            result = run(*given) if case.loop is None else case.loop(run, m, given)
        if case.loop is None:
            result.backward()
        seen.append({
            "result": [state(x) for x in tree_leaves(result)],
            "gradients": {name: None if p.grad is None else state(p.grad) for name, p in m.named_parameters()},
            "parameters": {name: state(p) for name, p in m.named_parameters()},
            "buffers": {name: state(b) for name, b in m.named_buffers()},
            "arguments": [state(x) for x in tree_leaves(given)],
            "generators": [torch.get_rng_state().tolist(), random.random(), np.random.rand()],
        })  # fmt: skip
        torch.optim.SGD(m.parameters(), lr=0.01).step()
        m.zero_grad(set_to_none=case.to_none)
        if case.between:
            case.between(i, m)
    return seen


PLANS = [dict(policy="liveness"), dict(policy="sqrt_n"), dict(policy="vdnn_all")]


def within(make, plan):
    """A training by this plan; where a net is too small for its budget, within the smallest that each step can keep."""
    from minidnn.memory.budget import BudgetError
    from tests.torch import hostile

    budget = 0
    while True:
        hostile.CALLS.clear()
        try:
            return train(make, **plan)
        except BudgetError as error:
            assert error.smallest > budget
            budget = error.smallest
            plan = {**plan, "budget": budget}


def trains(make, plans=PLANS):
    eager = train(make)
    for plan in plans:
        planned = within(make, plan)
        for i, (want, got) in enumerate(zip(eager, planned, strict=True)):
            for what in want:
                assert got[what] == want[what], (plan, i, what)


def refused(make, text):
    from tests.torch import hostile

    hostile.CALLS.clear()
    with pytest.raises(InvalidInput) as error:
        train(make, policy="liveness")
    pattern = "*" + text.replace("[", "[[]") + "*"
    assert fnmatch.fnmatchcase(str(error.value), pattern), str(error.value)


def each(cases, check):
    """Check all, and tell those that fail by their names."""
    wrong = {}
    for name, case in cases:
        try:
            check(case)
        except (Exception, pytest.fail.Exception) as error:
            wrong[name] = f"{type(error).__name__}: {error}"[:600]
    assert not wrong, "\n".join(f"{name}: {why}" for name, why in wrong.items())


@pytest.mark.parametrize("name", NAMES)
def test_the_twelve(name):
    from tests.torch import hostile

    assert tuple(hostile.TWELVE) == NAMES
    make, text = hostile.TWELVE[name]
    if text is None:
        trains(make)
    else:
        refused(make, text)


def test_refused():
    from tests.torch import hostile

    each(hostile.REFUSED.items(), lambda case: refused(*case))


def test_a_refused_module_is_as_it_was():
    """No fake tensor, and no half of a step, is left in it."""
    import copy

    import torch

    from minidnn.torch.step import compile
    from tests.torch import hostile

    for name in ("list that grows", "buffer that is filled", "activation kept", "attribute that counts"):
        case = hostile.REFUSED[name][0]()
        before = {key: copy.copy(x) for key, x in case.module.__dict__.items() if key in ("log", "n", "last")}
        step = compile(case.module, loss=case.loss)
        with pytest.raises(InvalidInput):
            step(*case.batches[0])
        assert {key: x for key, x in case.module.__dict__.items() if key in ("log", "n", "last")} == before
        assert all(type(t) is torch.nn.Parameter for t in case.module.parameters()), name
        assert case.module._buffers.get("m") is None


def test_trained():
    from tests.torch import hostile

    each(list(hostile.TRAINED.items())[::4], lambda make: trains(make, PLANS[1:2]))


@pytest.mark.extended
@pytest.mark.parametrize("i", range(4))
def test_all_are_trained_by_all_policies(i):
    from tests.torch import hostile

    plans = [*PLANS, dict(policy="superneurons"), dict(budget="60%")]
    each(list(hostile.TRAINED.items())[i::4], lambda make: trains(make, plans))


def test_ops_of_others_run_once():
    """Whoever counts in a kernel would count re-runs, too."""
    from minidnn.torch.step import compile
    from tests.torch import hostile

    module = hostile.Net(lambda s, x: s.b(hostile.F.relu(hostile.counted(s.a(x).relu()))))
    for policy in ("liveness", "sqrt_n", "superneurons"):
        hostile.CALLS.clear()
        step = compile(module, loss=hostile.F.cross_entropy, policy=policy)
        for _ in range(2):
            step(*hostile.batch()).backward()
        assert len(hostile.CALLS) == 2


def test_a_wrong_fake_kernel_is_told():
    from minidnn.torch.step import compile
    from tests.torch import hostile

    module = hostile.Net(lambda s, x: s.b(s.a(x)) + hostile.shorter(s.a(x).detach()).sum())
    with pytest.raises(InvalidInput, match=r"test_hostile.py:\d+ .*shorter.* was predicted to give float32\[4, 16\]"):
        compile(module, loss=hostile.F.cross_entropy)(*hostile.batch())
