"""What is planned is what runs: `plan` and `train` come to the same schedules, whatever the policy, ranks and costs."""

import threading

import pytest

from minidnn import costs, search, tune
from minidnn.api import plan
from minidnn.backends import open_device
from minidnn.costs.parts import PART_COPIES
from minidnn.errors import InvalidInput
from minidnn.jobs.job import read
from minidnn.memory.proof.digest import digest
from minidnn.ranks.threads import Group
from minidnn.training.solver import Solver
from tests.ranks.test_solvers import NET, SOLVER
from tests.support.slow import usual_pairs

DEEP = NET.replace(
    "- {name: ip, type: InnerProduct, bottom: norm1,",
    """- {name: wide, type: Convolution, bottom: norm1, top: wide,
   convolution_param: {num_output: 200, kernel_size: 3, weight_filler: {type: msra}}}
- {name: relu2, type: ReLU, bottom: wide, top: wide}
- {name: deep, type: Convolution, bottom: wide, top: deep,
   convolution_param: {num_output: 200, kernel_size: 3, weight_filler: {type: msra}}}
- {name: relu3, type: ReLU, bottom: deep, top: deep}
- {name: ip, type: InnerProduct, bottom: deep,""",
)
POLICIES = {
    "liveness:p": {}, "vdnn_all:m": {}, "superneurons": {}, "recompute_cheap:p": {}, "accudnn": {}, "liveness:m@5": {},
}  # fmt: skip
BEST = {"liveness:p": {}, "best": {"budget": "12MiB"}}  # best plans for seconds


@pytest.fixture(params=["net", "deep"])
def case(request, tmp_path, own_cache, monkeypatch):
    (tmp_path / "net.yaml").write_text(NET if request.param == "net" else DEEP)
    (tmp_path / "solver.yaml").write_text(SOLVER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def profiled(ranks):
    """Measurements of the solver's ops on cpu, made up so that each op's last algorithm is its fastest."""
    device = open_device("cpu")
    known = costs.measurements(device)
    known.bandwidth_out, known.bandwidth_in, known.latency = 3e9, 4e9, 1e-5
    job = read("solver.yaml", {"device": "cpu", "ranks": ranks})
    several = [job] if ranks is None else [job, job.varied(ranks=1)]
    ops = [op for one in several for p in one.programs for op in p.ops]
    for op in (*PART_COPIES.values(), *(op for op in ops if not op.on_net)):
        for i, a in enumerate(device.algorithms(op)):
            known.seconds[costs.key(op, a)] = (1e-5 + op.flops / 1e10) / (i + 1)
    known.save()


def planned(policy, ranks, **given):
    job = read("solver.yaml", {"device": "cpu", "ranks": ranks, **given})
    return digest(plan.of(job, [policy]).results[0].arrangement)


def trained(policy, ranks, **given):
    """The digests of all ranks' arrangements."""
    if ranks is None:
        with Solver("solver.yaml", device="cpu", policy=policy, **given) as solver:
            return {digest(solver.arrangement)}
    group, found = Group(ranks), [None] * ranks

    def one(rank):
        engine = group.engine(rank)
        with Solver("solver.yaml", device="cpu", policy=policy, engine=engine, **given) as solver:
            found[rank] = digest(solver.arrangement)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return set(found)


RANKS = [None, 2, pytest.param(4, marks=pytest.mark.extended)]


@pytest.mark.parametrize(
    ("case", "ranks", "measured", "policies"),
    usual_pairs(["deep", "net"], RANKS, ["measured", "estimated"], [BEST, POLICIES]), indirect=["case"],
)  # fmt: skip
def test_what_is_planned_runs(case, ranks, measured, policies):
    profiled(ranks)
    different = set()
    for policy, more in policies.items():
        expected = planned(policy, ranks, costs=measured, **more)
        assert trained(policy, ranks, costs=measured, **more) == {expected}, policy
        different.add(expected)
    assert len(different) >= max(2, len(policies) // 2), "policies that plan alike show little"


def test_measured_costs_are_asked_for(case):
    """A plan with them is another. They were taken by `plan` alone, and unasked."""
    with pytest.raises(InvalidInput, match=r"there are no measurements of copies"):
        planned("liveness:p", None, costs="measured")
    profiled(None)
    assert planned("liveness:p", None) == planned("liveness:p", None, costs="estimated")
    assert planned("liveness:p", None) != planned("liveness:p", None, costs="measured")
    for many in (search, tune):
        with pytest.raises(InvalidInput, match='costs="measured" is for one size'):
            many("solver.yaml", device="cpu", costs="measured")
    with pytest.raises(InvalidInput, match=r"costs: 'measures' is not one of estimated, measured"):
        planned("liveness:p", None, costs="measures")


@pytest.mark.parametrize("link", [None, "1GB,50us"])
def test_gradients_travel_in_the_same_buckets(case, link):
    """Plans of ranks had buckets of 4 MiB, runs those whose step is predicted to be the quickest."""
    given = {} if link is None else {"link": link}
    assert trained("liveness:p", 2, **given) == {planned("liveness:p", 2, **given)}
