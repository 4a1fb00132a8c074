"""A disk's speed: measured, kept for its file system, and known to plans."""

from __future__ import annotations

import json

import pytest

import minidnn
from minidnn.cli.main import main
from minidnn.costs import Disk, disks
from minidnn.files import cache
from minidnn.measuring import disk as measuring


def test_what_devices_measures_is_kept_and_plans_know_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(disks, "place", lambda folder: tmp_path / "cache" / "disk.json")
    (tmp_path / "cache").mkdir(mode=0o700)
    for name, less in (("TENSOR", 1 << 20), ("TENSORS", 2)):
        monkeypatch.setattr(measuring, name, less)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    assert disks.measured(Disk(7), scratch) == Disk(7)
    assert main(["devices", "--disk", str(scratch), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["disks"]
    assert min(v for k, v in row.items() if "bandwidth" in k) > 0 and row["free_bytes"] > 0
    assert not list(scratch.iterdir())
    found = disks.measured(Disk(7), tmp_path)  # of the same file system
    assert found == Disk(7, row["write_bandwidth"], row["read_bandwidth"])

    def step():
        given = dict(batch=16, policy="vdnn_all:m", device="cpu", host_ring="64KiB", disk=str(scratch))
        plan = minidnn.plan("digits_lenet", **given)
        return plan.costs.staging.disk, plan.rows[0].step_seconds, plan.rows[0].on_disk_bytes

    known, _, on_disk = step()
    assert known == Disk(None, found.write_rate, found.read_rate) and on_disk > 0
    disks.keep(scratch, Disk(None, 1e6, 1e6))
    known, slow, _ = step()
    assert known == Disk(None, 1e6, 1e6) and slow > on_disk / 1e6
    assert main(["devices", "--disk", str(scratch)]) == 0
    assert "GB/s, reads" in capsys.readouterr().out


@pytest.mark.parametrize(
    "content",
    ["", "[]", "7", '{"write_rate": 1e9}', '{"write_rate": 0, "read_rate": 1e9}', '{"write_rate": "?", "read_rate": 1}',
     '{"write_rate": 1e999, "read_rate": 1}', f'{{"write_rate": 1{"0" * 400}, "read_rate": 1}}'],
)  # fmt: skip
def test_rates_that_cannot_be_read_are_as_if_they_were_not_there(own_cache, tmp_path, capsys, content):
    path = disks.place(tmp_path)
    cache.keep(path, content.encode(), "")
    assert disks.measured(Disk(7), tmp_path) == Disk(7)
    assert f"{path} is damaged" in capsys.readouterr().err
    disks.keep(tmp_path, Disk(None, 2e9, 3e9))
    assert disks.measured(Disk(7), tmp_path) == Disk(7, 2e9, 3e9)


def test_rates_of_a_version_that_keeps_more_are_used(own_cache, tmp_path):
    cache.keep(disks.place(tmp_path), b'{"write_rate": 2e9, "read_rate": 3e9, "latency": 1e-4}', "")
    assert disks.measured(Disk(7), tmp_path) == Disk(7, 2e9, 3e9)
