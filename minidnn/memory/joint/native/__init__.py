"""The C files of joint planning, and how they are compiled."""

from pathlib import Path

from minidnn.compiled import Sources

SOURCES = Sources(
    Path(__file__).parent, "the planner, once: a few seconds", lambda: ("-O3", "-fPIC", "-ffp-contract=off")
)
