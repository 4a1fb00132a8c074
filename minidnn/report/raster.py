"""Pictures as PNG, by cairosvg (extra `png`), in the colours of a light page."""

from __future__ import annotations

import re
from typing import Any

from minidnn.errors import InvalidInput

PICTURES = (".svg", ".png")
SCALE = 2  # pixels of the file for one of the picture


def library() -> Any:
    """The package cairosvg. Raises InvalidInput without it, or without the system's library cairo."""
    try:
        import cairosvg
    except ImportError:
        raise InvalidInput("a .png takes the package cairosvg: pip install 'minidnn[png]'; or write an .svg") from None
    except OSError as error:
        raise InvalidInput(f"a .png takes the system's library cairo ({error}); or write an .svg") from None
    return cairosvg


def png(svg: str) -> bytes:
    """The PNG file of one of our pictures. Raises as `library`.

    cairosvg knows no CSS variables, so each is replaced by its first value; a dark page's values come later."""
    known: dict[str, str] = {}
    for name, value in re.findall(r"(--[\w-]+):\s*([^;}]+)", svg):
        known.setdefault(name, value)
    svg = re.sub(r"\.mini text\.over \{[^}]*\}", "", svg)  # it would paint the halo over the text
    plain = re.sub(r"var\((--[\w-]+)\)", lambda found: known[found[1]], svg)
    made: bytes = library().svg2png(bytestring=plain.encode(), scale=SCALE)
    return made
