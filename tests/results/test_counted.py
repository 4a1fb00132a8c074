"""Speeds of nets of tokens are tokens per second, wherever a table has them; those of others are samples per second."""

from __future__ import annotations

import json

import pytest

from minidnn.cli.main import main
from minidnn.report import cards, policies, ranks, tune
from minidnn.results.counted import counted, planned

VERBS = ("plan", "compare", "cards", "frontier", "board", "search", "tune", "time", "profile", "show", "train", "test")
SPEED = {"samples_per_second": 3.0, "fits": True}
CARD = SPEED | {"gpu": "g", "memory_bytes": 9, "peak_bytes": 8, "host_bytes": 0, "step_seconds": 1.0, "title": "G"}
TUNED = SPEED | {"batch": 2, "moved_bytes": 0, "step_seconds": 1.0, "stall_seconds": 0.0, "exposed_seconds": 0.0}
SCALED = SPEED | {"policy": "best", "ranks": 2, "batch": 2, "efficiency": 1.0, "peak_bytes": 1, "sent_bytes": 1}
SCALED |= {f"{name}_seconds": 1.0 for name in ("iteration", "compute", "net", "exposed")}
PLANNED = SPEED | {"policy": "best", "sent_bytes": 1, "recomputed_ops": 0, "algorithms": "default", "step_seconds": 1.0}
PLANNED |= {name: 0 for name in ("peak_bytes", "average_bytes", "offload_bytes", "prefetch_bytes", "stall_seconds")}


def of_cards(tokens):
    return cards.cells({"tokens": tokens, "rows": [CARD | {"free_seconds": 1.0}]})


def of_tune(tokens):
    more = {"peak_bytes": 1, "host_bytes": 0, "epoch_seconds": 1.0}
    return tune.cells({"tokens": tokens, "ranks": None, "rows": [TUNED | more]})


def of_ranks(tokens):
    return ranks.cells({"tokens": tokens, "rows": [SCALED]})


def of_policies(tokens):
    return policies.cells([PLANNED | {"tokens": tokens, "host_bytes": 0, "slowdown": None, "pinned_bytes": 0}])


@pytest.mark.parametrize("table", [of_cards, of_tune, of_ranks, of_policies])
@pytest.mark.parametrize("tokens, heading, cell", [(None, "samples/s", "3.000"), (1024, "tokens/s", "3072")])
def test_a_table_has_one_column_of_speeds_in_the_unit_of_the_net(table, tokens, heading, cell):
    headings, ((*line,),) = table(tokens)
    assert [h for h in headings if h.endswith("/s")] == [heading]
    assert line[list(headings).index(heading)].replace(",", "") == cell


def test_train_and_tables_count_alike():
    assert counted(16) == planned(16) and counted(None).name == "images" and planned(None).name == "samples"


def test_every_verb_that_takes_a_net_takes_the_tokens_of_a_sample(capsys):
    verbs = [
        "plan",
        "compare",
        "cards",
        "frontier",
        "board",
        "search",
        "tune",
        "time",
        "profile",
        "show",
        "train",
        "test",
    ]
    for verb in verbs:
        with pytest.raises(SystemExit):
            main([verb, "--help"])
        assert "--seq" in capsys.readouterr().out, verb


def test_show_has_the_tokens_that_are_asked(capsys):
    assert main(["show", "gpt2", "--seq", "48", "--batch", "2", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [2, 48, 768] in [shape for row in rows for shape in row["shapes"]]
