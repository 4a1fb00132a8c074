"""The model of a power cut finds what is not flushed."""

from __future__ import annotations

import pytest

from tests.faults.power_cut import FOLDER, cuts
from tests.faults.shim import Call

CALLS = [
    Call(1, "mkdir", 0, "/r/out", "", 0, b""),
    Call(2, "fsync", 0, "/r", "", 0, b""),
    Call(3, "create", 3, "/r/out/new", "", 1, b""),
    Call(4, "write", 4, "/r/out/new", "", 4, b"tail"),  # leaves a gap
    Call(5, "write", 4, "/r/out/new", "", 0, b"head"),
    Call(6, "fsync", 0, "/r/out/new", "", 0, b""),
    Call(7, "rename", 0, "/r/out/new", "/r/out/a", 0, b""),
    Call(8, "fsync", 0, "/r/out", "", 0, b""),
    Call(0, "say", 5, "", "", 0, b"saved"),
]
WHOLE = b"headtail"


def states(*without: int) -> list[tuple[bytes, dict[str, bytes | None]]]:
    """(what was printed, the files) after a cut anywhere, if these calls had not been made."""
    return [(said, dict(state)) for said, state in cuts([c for c in CALLS if c.number not in without], "/r")]


def test_what_is_flushed_is_there_once_it_is_printed():
    found = states()
    assert [files for said, files in found if said] == [{"/r/out": FOLDER, "/r/out/a": WHOLE}]
    assert {files.get("/r/out/a", WHOLE) for _, files in found} == {WHOLE}, "under its name it is whole at any time"


def test_before_that_the_new_file_may_be_there_in_any_state():
    found = {files["/r/out/new"] for _, files in states() if "/r/out/new" in files}
    assert {b"", b"head", bytes(8), WHOLE, bytes(4) + b"tail"} <= found


def test_a_file_that_is_not_flushed_may_be_torn_under_its_name():
    assert {files["/r/out/a"] for said, files in states(6) if said} == {WHOLE, b"", b"head", bytes(8)}


@pytest.mark.parametrize("folder", [2, 8])
def test_a_folder_that_is_not_flushed_may_lose_its_entries(folder):
    assert any("/r/out/a" not in files for said, files in states(folder) if said)


def test_of_several_changes_that_are_not_flushed_any_one_may_be_missing():
    found = [files for said, files in states(2, 8) if said]
    assert {} in found and {"/r/out": FOLDER} in found and {"/r/out": FOLDER, "/r/out/new": WHOLE} in found
