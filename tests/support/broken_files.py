"""Random changes of the text of a net or solver file, most of which make it one that must be refused."""

from __future__ import annotations

import random
import re

# A word of a file: a name, a number, a type. The values that a word becomes are wrong in many ways, or right elsewhere.
WORD = re.compile(r"[\w./]+")
VALUES = [
    "0", "1", "2", "3", "-1", "7", "99", "1000000", "4294967296", "1e30", "0.5", ".nan", "true", "null", "''", "[]",
    "{}", "[1, 2]", "[1, 2, 3, 4, 5]", "x", "data", "label", "loss", "TEST", "TRAIN", "bilinear", "nosuch.npz",
    "Softmax", "Pooling", "Convolution", "InnerProduct", "Eltwise", "Concat", "Data", "Flatten", "Scale", "Accuracy",
]  # fmt: skip
INSERTED = [
    "loss_weight: 1, ", "group: 3, ", "axis: 2, ", "axis: -9, ", "bias_term: false, ", "include: {phase: TEST}, ",
    "exclude: {phase: TRAIN}, ", "propagate_down: [true, false, true], ", "param: [{}, {}, {}, {}], ", "stride: 0, ",
    "pad: 50, ", "kernel_size: 30, ", "dilation: 9, ", "global_pooling: true, ", "top_k: 99, ", "ignore_label: 3, ",
]  # fmt: skip


def broken(text: str, r: random.Random, changes: int) -> str:
    """The text after so many random changes."""
    for _ in range(changes):
        words = list(WORD.finditer(text))
        if not words:
            return text
        a, b = r.choice(words), r.choice(words)
        match r.randrange(6):
            case 0 | 1:
                text = text[: a.start()] + r.choice(VALUES) + text[a.end() :]
            case 2:
                text = text[: a.start()] + b[0] + text[a.end() :]
            case 3:
                text = text[: a.start()] + text[a.end() :]
            case 4:
                lines = text.split("\n")
                i, j = r.randrange(len(lines)), r.randrange(len(lines))
                lines.insert(j, lines.pop(i))
                text = "\n".join(lines)
            case _:
                braces = [m.end() for m in re.finditer(r"{", text)]
                at = r.choice(braces) if braces else 0
                text = text[:at] + r.choice(INSERTED) + text[at:]
    return text


def as_solver(net: str) -> str:
    """A solver file with this net within it."""
    inner = "\n".join(f"  {line}" for line in net.split("\n"))
    return f"net_param:\n{inner}\nbase_lr: 0.1\nlr_policy: fixed\nmax_iter: 2\nmomentum: 0.9\n"
