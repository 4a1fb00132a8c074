"""Images per second that a net is fed with from JPEGs: minidnn beside PyTorch's DataLoader with Pillow's transforms.

    python -m benchmarks.feed                        # 2,000 JPEGs of 256 x 256, 0, 1 and 2 workers
    python -m benchmarks.feed --workers 4 --json     # without PyTorch: --alone

Both sides do the same work: read, decode, resize the shorter side, crop at random, mirror half of the images, subtract
the mean, divide, float32 (N, C, H, W). The step takes no time here. Sides take turns. A turn first takes the batches
that were made ahead, and then times its own; it ends when its workers rest. The ratio is that of the two turns of a
round; medians of the rounds count, with their 95 % confidence intervals.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from minidnn.data import open_loader
from minidnn.measuring.spread import Spread
from minidnn.report import table
from minidnn.schema.sources import DataParameter, TransformationParameter

SIDE, RESIZED, CROP = 256, 240, 224
CLASSES = 10
MEAN, SCALE = (104.0, 117.0, 123.0), 1 / 58
REST = 0.05  # seconds for which the processor time of idle workers stands still


def draw(folder: Path, count: int) -> list[Path]:
    """So many JPEGs of SIDE x SIDE pixels, by class: coarse noise, enlarged, with fine noise on it."""
    from PIL import Image

    paths = []
    for k in range(count):
        random = np.random.default_rng(k)
        coarse = Image.fromarray(random.integers(0, 256, (12, 12, 3), np.uint8))
        image = np.asarray(coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC)).astype(np.int16)
        image += random.integers(-12, 13, image.shape, np.int16)
        paths.append(folder / str(k % CLASSES) / f"{k:06}.jpg")
        paths[-1].parent.mkdir(exist_ok=True)
        Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(paths[-1], quality=90)
    return paths


class Ours:
    """minidnn's side, as a Data layer of a folder has it."""

    def __init__(self, paths: list[Path], batch: int, workers: int) -> None:
        change = TransformationParameter(resize=RESIZED, crop_size=CROP, mirror=True, mean_value=MEAN, scale=SCALE)
        data = DataParameter(source=f"folder:{paths[0].parent.parent}:train", batch_size=batch, workers=workers)
        self.loader = open_loader(data, change, "TRAIN", seed=1)
        self.position = 0

    def next(self) -> Any:
        batch = self.loader.take(self.position)[0]
        self.position += self.loader.batch_size
        return batch

    def processes(self) -> list[int]:
        workers = self.loader._workers
        return list(workers._pids.values()) if workers else []

    def close(self) -> None:
        self.loader.close()


class Theirs:
    def __init__(self, paths: list[Path], batch: int, workers: int) -> None:
        import torch
        from torch.utils.data import DataLoader

        torch.set_num_threads(1)  # as in PyTorch's own workers: images are too small for more
        more: dict[str, Any] = {"persistent_workers": True, "prefetch_factor": 2} if workers else {}
        self.loader = DataLoader(_Files(paths), batch, shuffle=True, num_workers=workers, drop_last=True, **more)
        self.batches: Iterator[Any] = iter(self.loader)

    def next(self) -> Any:
        try:
            return next(self.batches)[0]
        except StopIteration:
            self.batches = iter(self.loader)
            return next(self.batches)[0]

    def processes(self) -> list[int]:
        return [worker.pid for worker in getattr(self.batches, "_workers", ())]

    def close(self) -> None:
        del self.batches


class _Files:
    """PyTorch's side: a dataset of the files, transformed by Pillow and PyTorch."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = [str(path) for path in paths]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        import torch
        from PIL import Image

        with Image.open(self.paths[index]) as file:
            image = file.convert("RGB")
        shorter = min(image.size)
        width, height = (round(n * RESIZED / shorter) for n in image.size)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
        left, top = (int(torch.randint(n - CROP + 1, ())) for n in (width, height))
        image = image.crop((left, top, left + CROP, top + CROP))
        if torch.rand(()) < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        values = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float()
        return values.sub_(torch.tensor(MEAN).view(3, 1, 1)).mul_(SCALE), index % CLASSES


def turn(side: Ours | Theirs, batches: int, workers: int) -> float:
    """Images per second of so many batches."""
    for _ in range(2 * workers + 2):  # what was made ahead in the turn before
        side.next()
    began, images = time.perf_counter(), 0
    for _ in range(batches):
        images += len(side.next())
    found = images / (time.perf_counter() - began)
    used: Callable[[], int] = lambda: sum(_ticks(pid) for pid in side.processes())  # noqa: E731
    before = -1
    while before != (before := used()):
        time.sleep(REST)
    return found


def _ticks(pid: int) -> int:
    """Processor time of a process, in the system's ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def own(side: Ours | Theirs) -> int:
    """Bytes of the side's largest worker: of pages that it shares, its share alone. 0 without workers."""
    found = [0]
    for pid in side.processes():
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        found.append(sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss_Anon:")))
    return max(found)


def measure(paths: list[Path], o: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each number of workers."""
    kinds = {"minidnn": Ours} | ({} if o.alone else {"PyTorch": Theirs})
    sides = {(w, name): kind(paths, o.batch, w) for w in o.workers for name, kind in kinds.items()}
    rates: dict[tuple[int, str], list[float]] = {key: [] for key in sides}
    for _ in range(o.rounds):
        for key, side in sides.items():
            rates[key].append(turn(side, o.batches, key[0]))
    rows = []
    for w in o.workers:
        row: dict[str, Any] = {"workers": w}
        for name in kinds:
            spread = Spread.of(rates[w, name])
            row[name] = {
                "images_per_second": spread.median,
                "low": spread.low,
                "high": spread.high,
                "worker_bytes": own(sides[w, name]),
            }
        if not o.alone:
            ratio = Spread.of([a / b for a, b in zip(rates[w, "minidnn"], rates[w, "PyTorch"], strict=True)])
            row["ratio"] = {"median": ratio.median, "low": ratio.low, "high": ratio.high}
        rows.append(row)
    for side in sides.values():
        side.close()
    return rows


def show(rows: list[dict[str, Any]], o: argparse.Namespace) -> None:
    lines = []
    for row in rows:
        found = [row[name] for name in ("minidnn", "PyTorch") if name in row]
        cells = [f"{r['images_per_second']:.0f} ({r['low']:.0f} to {r['high']:.0f})" for r in found]
        if "ratio" in row:
            cells.append(f"{row['ratio']['median']:.2f} ({row['ratio']['low']:.2f} to {row['ratio']['high']:.2f})")
        lines.append([str(row["workers"]), *cells, table.size(row["minidnn"]["worker_bytes"])])
    names = ["minidnn"] if o.alone else ["minidnn", "PyTorch", "ratio"]
    of = f"{o.images} JPEGs of {SIDE}×{SIDE}, batch {o.batch}, {o.rounds} rounds on {machine.cpu()}"
    table.plain(["workers", *names, "a worker's memory"], lines, f"images per second, {of}")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batches", type=int, default=16, help="of a turn")
    parser.add_argument("--alone", action="store_true", help="without PyTorch")
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(draw(Path(folder), o.images), o)
    if o.json:
        json.dump({"machine": machine.described(), "options": vars(o), "rows": rows}, sys.stdout, indent=1)
    else:
        show(rows, o)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
