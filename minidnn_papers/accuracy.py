"""Whether a larger batch costs accuracy, which AccUDNN's abstract denies: small nets are trained for it, on cpu.

The abstract's nets and data were not to be had here. One net learns scikit-learn's digits by the repository's own
solver file, the other made-up pictures of CIFAR-10's form. Each is trained for the same epochs in batches of several
sizes, with the rates that `minidnn tune` proposes (training/linear_scaling.py), and from three seeds. A batch keeps the
accuracy of one that is a quarter of it if the mean over the seeds is at most TOLERATED lower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import fmean
from typing import Any

import numpy as np

from minidnn.nets.define import L
from minidnn.nets.net import Net
from minidnn.training.linear_scaling import matched
from minidnn.training.solver import Solver
from minidnn_papers.row import KEEPS, Row, Tell

TIMES = 4  # the abstract's batch is 4.2 times that of original Caffe
TOLERATED = 0.005  # of all test images: half a point
SEEDS = (1, 2, 3)
FIGURE = "accuracy"  # of the rows that say what was reached
MISSING = "needs scikit-learn, whose digits are trained on: pip install 'minidnn[data]'"
WHAT = "{:.1f} % at batch {} and {:.1f} % at {}, means of {} seeds over {} epochs; half a point lower would be kept"
SEEDED = "seeds: {}; {} updates, base_lr {:g}"


@dataclass(frozen=True)
class Task:
    """What is learnt, and the batches that are tried.

    rate:   base_lr of the first of `batches`; the others' follows from it
    epochs: of each run; the rate falls to a tenth at 70 % of them
    open:   (batch, solver fields) -> a Solver
    """

    title: str
    samples: int
    epochs: int
    rate: float
    batches: tuple[int, ...]
    open: Callable[..., Solver]

    def accuracy(self, batch: int, seed: int) -> float:
        """Of the test images after a training, 0 to 1."""
        counts: dict[str, Any] = {"max_iter": self.updates(), "stepvalue": [round(0.7 * self.updates())]}
        fields: dict[str, Any] = matched(self.rate, self.batches[0], batch, self.samples, counts).fields()
        with self.open(batch, random_seed=seed, momentum=0.9, lr_policy="multistep", gamma=0.1, **fields) as solver:
            solver.step(fields["max_iter"])
            tested = solver.test()
        assert tested is not None, "nothing stops the test"
        return tested.outputs["accuracy"]

    def updates(self) -> int:
        """Iterations of a run in the first of `batches`."""
        return self.epochs * self.samples // self.batches[0]


# ---- what is learnt


def _digits(batch: int, **fields: Any) -> Solver:
    return Solver("digits_solver", batch=batch, policy="liveness", device="cpu", **fields)


class Pictures(Net):
    """Two convolutions for pictures of CIFAR-10's form."""

    def define(self, batch: int = 32) -> None:
        x, label = L.Input(shape=[{"dim": [batch, 3, 32, 32]}, {"dim": [batch]}], top=["data", "label"])
        for maps in (16, 32):
            x = L.Convolution(x, num_output=maps, kernel_size=5, stride=2, pad=2, weight_filler={"type": "msra"})
            x = L.ReLU(x, in_place=True)
        x = L.InnerProduct(x, num_output=10, weight_filler={"type": "xavier"}, name="scores")
        L.Accuracy(x, label, include={"phase": "TEST"}, name="accuracy")
        L.SoftmaxWithLoss(x, label)


def pictures(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(images, labels): float32 of (count, 3, 32, 32), in ten classes. An image has a faint pattern of its class, at a
    place of its own, a stronger one of no class, and noise."""
    shapes = np.random.default_rng(0).standard_normal((10, 3, 8, 8))
    random = np.random.default_rng(seed)
    labels = random.integers(0, 10, count)
    images = random.standard_normal((count, 3, 32, 32))
    images += np.kron(random.standard_normal((count, 3, 4, 4)), np.ones((8, 8)))
    rows, columns = random.integers(2, 7, (2, count))
    for image, label, row, column in zip(images, labels, rows, columns, strict=True):
        image[:, row : row + 24, column : column + 24] += 0.5 * np.kron(shapes[label], np.ones((3, 3)))
    return images.astype(np.float32), labels


def _pictures(batch: int, **fields: Any) -> Solver:
    return Solver(
        Pictures(batch=batch), data=pictures(PICTURES, 1), test_data=pictures(1000, 2), policy="liveness",
        device="cpu", **fields,
    )  # fmt: skip


PICTURES = 4000
DIGITS = Task("digits", 1437, 22, 0.0025, (16, 64, 128, 256, 512), _digits)
TASKS = (DIGITS, Task("made-up pictures of 3x32x32", PICTURES, 10, 0.005, (32, 128, 512), _pictures))


# ---- rows


def rows(tell: Tell) -> Iterator[Row]:
    for task in TASKS:
        if task is DIGITS and find_spec("sklearn") is None:
            yield Row("accudnn", "abstract", task.title, KEEPS, 1, None, MISSING)
            continue
        yield from of_task(task, tell)


def of_task(task: Task, tell: Tell) -> Iterator[Row]:
    """A row for each batch, and one for each that is TIMES another: whether it keeps that one's accuracy."""
    means: dict[int, float] = {}
    for batch in task.batches:
        tell(f"AccUDNN: {task.title}, batch {batch}, {len(SEEDS)} trainings")
        reached = [task.accuracy(batch, seed) for seed in SEEDS]
        means[batch] = fmean(reached)
        yield Row("accudnn", FIGURE, f"{task.title}, batch {batch}", "test accuracy, %", None, 100 * means[batch],
                  _seeded(task, batch, reached))  # fmt: skip
    for batch, mean in means.items():
        if (less := batch // TIMES) in means:
            why = WHAT.format(100 * means[less], less, 100 * mean, batch, len(SEEDS), task.epochs)
            kept = float(mean >= means[less] - TOLERATED)
            yield Row("accudnn", "abstract", f"{task.title}, batch {batch} after {less}", KEEPS, 1, kept, why)


def _seeded(task: Task, batch: int, reached: Sequence[float]) -> str:
    updates = max(1, round(task.updates() * task.batches[0] / batch))
    rate = task.rate * batch / task.batches[0]
    return SEEDED.format(", ".join(f"{100 * value:.1f} %" for value in reached), updates, rate)
