"""The C files of packing, and how they are compiled."""

from pathlib import Path

from minidnn.compiled import Sources

SOURCES = Sources(Path(__file__).parent, "the packer, once: a few seconds", lambda: ("-O3", "-fPIC"))
