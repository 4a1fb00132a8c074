"""The sources of samples, and the meaning of `data_param: {source: ...}`:

    digits                                      scikit-learn's 8×8 digits
    mnist:FOLDER                                the four IDX files, plain or gzipped
    npz:PATH, or any PATH that ends in .npz     arrays x (or images) and y (or labels)
    synthetic:3x224x224:classes=1000:count=5000 made-up images that a net can learn, no file

The phase chooses the split, train or test, unless the text names one: `digits:train`, `mnist:FOLDER:test`. To add a
source of your own, write a subclass of Source and enter it in the table: `SOURCES["mine"] = Mine`.
"""

from __future__ import annotations

from minidnn.data.dataset import DataError, Source
from minidnn.data.digits import Digits
from minidnn.data.mnist import Mnist
from minidnn.data.npz import Npz
from minidnn.data.synthetic import Patterns
from minidnn.errors import near

SOURCES: dict[str, type[Source]] = {"digits": Digits, "mnist": Mnist, "npz": Npz, "synthetic": Patterns}
SPLITS = {"TRAIN": "train", "TEST": "test"}


def parse(text: str, phase: str = "TRAIN") -> Source:
    """The Source that a text describes. Raises DataError, which lists the known forms, if the text has none of them."""
    word, _, rest = text.partition(":")
    split, kind = SPLITS[phase], SOURCES.get(word)
    if kind is None:
        kind, rest = next((k for k in SOURCES.values() if k.suffix and text.endswith(k.suffix)), None), text
    if kind is not None and kind.splits:
        head, _, last = rest.rpartition(":")
        if last in SPLITS.values():
            rest, split = head, last
    try:
        found = kind.parse(rest, split) if kind is not None else None
    except DataError as error:
        raise DataError(f"source {text!r}: {error}") from None
    if found is None:
        *forms, last = (k.form for k in SOURCES.values())
        raise DataError(f"source {text!r} is not known{near(word, SOURCES)}; expected {', '.join(forms)} or {last}")
    return found
