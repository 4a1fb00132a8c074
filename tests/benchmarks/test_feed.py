"""The benchmark of the feed runs; its numbers are not judged here."""

import json
from importlib.util import find_spec

import pytest

from benchmarks import feed


@pytest.mark.skipif(find_spec("PIL") is None, reason="JPEGs are made by Pillow")
def test_it_runs(capsys):
    small = ["--images", "20", "--batch", "2", "--batches", "1", "--rounds", "1", "--workers", "0", "1", "--alone"]
    assert feed.main([*small, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["workers"] for row in rows] == [0, 1]
    assert all(row["minidnn"]["images_per_second"] > 0 for row in rows)
    assert rows[0]["minidnn"]["worker_bytes"] == 0 < rows[1]["minidnn"]["worker_bytes"]
    assert feed.main(small) == 0
    assert "images per second, 20 JPEGs of 256×256, batch 2" in capsys.readouterr().out
