"""The C files of packing, and how they are compiled."""

from pathlib import Path

from minidnn.compiled import Sources, portable

SOURCES = Sources(
    Path(__file__).parent, "the packer, once: a few seconds", portable("-O3", "-fPIC"), lambda: ("x86-64",)
)
