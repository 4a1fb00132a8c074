"""The C files of joint planning, and how they are compiled: equally for every CPU, so that plans are equal."""

from pathlib import Path

from minidnn.compiled import Sources, portable

OPTIONS = portable("-O3", "-fPIC", "-ffp-contract=off")
SOURCES = Sources(Path(__file__).parent, "the planner, once: a few seconds", OPTIONS, lambda: ("x86-64",))
