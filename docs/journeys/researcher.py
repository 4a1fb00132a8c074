"""A researcher with a policy of their own: what backward reads again only after many ops waits on the host."""

import json
from contextlib import redirect_stdout
from io import StringIO

from minidnn.cli.main import main
from minidnn.memory.plan import Plan, Trip
from minidnn.memory.policies import POLICIES
from minidnn.memory.policies.algorithms import choose
from minidnn.program import FORWARD, Role

IDLE, AHEAD = 8, 2  # ops: how long a map must be idle to leave, and how early it comes back


def far(program, costs, budget, algorithms="m"):
    last, first = {}, {}  # a map's last reader in forward, and its first reader in backward
    for p, op in enumerate(program.ops):
        for t in op.reads:
            if op.during in FORWARD:
                last[t] = p
            else:
                first.setdefault(t, p)
    idle = [t for t in last if t.role is Role.ACTIVATION and t in first and first[t] - last[t] >= IDLE]
    trips = [Trip(t, out=last[t], free=last[t] + 1, back=first[t] - AHEAD, arrive=first[t]) for t in idle]
    return Plan(algorithm=choose(program, costs, algorithms), trips=tuple(trips))


POLICIES["far"] = far


if __name__ == "__main__":
    # Simulated, beside the papers' policies and the bound that no plan is below.
    simulated = "compare resnet20 --batch 256 --gpu titan_x --budget 300MiB --policies vdnn_all:p,far:p,best"
    assert main(simulated.split()) == 0

    # For real: placed, proved, run. Training gives the bytes of baseline.
    real = "compare models/digits_solver.yaml --policies baseline:m,far:m --steps 3 --json"
    with redirect_stdout(StringIO()) as printed:
        assert main(real.split()) == 0
    for row in json.loads(printed.getvalue())["rows"]:
        print(f"{row['policy']}: weights equal: {row['identical']}")
