"""HDF5 files: old ones without checksums, new ones with sums over every structure, filters, links, and huge shapes."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any
from zlib import crc32

import h5py
import numpy as np
from hypothesis import strategies as st

from tests.fuzz.kind import Kind, command
from tests.fuzz.lookup3 import lookup3
from tests.fuzz.lookup3 import summed as structures
from tests.fuzz.mutate import mutated, renumbered
from tests.fuzz.pieces import pick
from tests.fuzz.samples import EVERYTHING, Good, check, packed, samples, unpacked

FILE, OTHER, SECRET = "some.h5", "other.h5", "secret.bin"
SIGNATURES = [
    b"\x89HDF\r\n\x1a\n",
    b"OHDR",
    b"OCHK",
    b"FAHD",
    b"FADB",
    b"EAHD",
    b"EAIB",
    b"EADB",
    b"BTHD",
    b"BTLF",
    b"FRHP",
    b"FHDB",
]
PIECES = [*SIGNATURES, b"TREE", b"SNOD", b"HEAP", b"GCOL", b"data\0", b"label\0", bytes(8), b"\xff" * 8]
NET = """layer { name: "d" type: "HDF5Data" top: "data" top: "label"
        hdf5_data_param { source: "some.h5" batch_size: 2 } }"""
COUNT = 6
X = np.random.default_rng(0).integers(0, 255, (COUNT, 1, 4, 4), np.uint8)
Y = np.arange(COUNT)
F = X.astype(np.float32)


def made(fill: Callable[[Any], None], latest: bool = False) -> bytes:
    """The bytes of a file that this function has filled, the same in each run."""
    file = io.BytesIO()
    with h5py.File(file, "w", libver="latest" if latest else "earliest", track_order=False) as opened:
        fill(opened)
    return file.getvalue()


def of(x: Any, y: Any, latest: bool = False, names: tuple[str, str] = ("data", "label"), **more: Any) -> bytes:
    def fill(file: Any) -> None:
        for name, array in zip(names, (x, y), strict=True):
            here = {k: v for k, v in more.items() if k != "chunks"}
            if chunks := more.get("chunks"):
                here["chunks"] = (chunks, *np.shape(array)[1:])
            file.create_dataset(name, data=array, track_times=False, **here)

    return made(fill, latest)


def empty(shape: tuple[int, ...], **more: Any) -> bytes:
    """A file of samples of this shape that nobody has written."""

    def fill(file: Any) -> None:
        file.create_dataset("data", shape, track_times=False, **{"dtype": "f4", **more})
        chunks = (min(1024, shape[0]),) if "chunks" in more else None
        file.create_dataset("label", shape[:1], "i4", chunks=chunks, track_times=False)

    return made(fill)


def zeros(total: int) -> bytes:
    """A stream of zlib with so many zeros: a block of 16 MiB again and again."""
    pack = zlib.compressobj(9)
    block = pack.compress(bytes(1 << 24)) + pack.flush(zlib.Z_FULL_FLUSH)
    return block[:2] + block[2:] * (total >> 24) + b"\3\0" + ((total % 65521) << 16 | 1).to_bytes(4, "big")


def chunk_of(stream: bytes, packings: int) -> bytes:
    """A file whose one chunk is this stream, which is unpacked so many times; it should be 64 bytes then."""

    def fill(file: Any) -> None:
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_chunk((4, 1, 2, 2))
        for _ in range(packings):
            plan.set_deflate(9)
        plan.set_obj_track_times(False)
        one = h5py.h5d.create(file.id, b"data", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((4, 1, 2, 2)), plan)
        h5py.Dataset(one).id.write_direct_chunk((0, 0, 0, 0), stream)
        file.create_dataset("label", data=Y[:4], track_times=False)

    return made(fill)


def inflated() -> bytes:
    """One chunk of 1 GiB of zeros, packed, of which four rows are used."""
    stream = zeros(1 << 30)

    def fill(file: Any) -> None:
        data = file.create_dataset("data", (4, 1, 2, 2), "f4", maxshape=(None, 1, 2, 2), chunks=(1 << 26, 1, 2, 2),
        compression="gzip",
                                   track_times=False)  # fmt: skip
        data.id.write_direct_chunk((0, 0, 0, 0), stream)
        file.create_dataset("label", data=Y[:4], track_times=False)

    return made(fill)


def linked(link: Any) -> bytes:
    def fill(file: Any) -> None:
        file["data"] = link
        file.create_dataset("label", data=Y, track_times=False)

    return made(fill)


def outside(file: Any) -> None:
    """Samples that are bytes of another file."""
    file.create_dataset("data", X.shape, "u1", external=[(SECRET, 0, X.size)], track_times=False)
    file.create_dataset("label", data=Y, track_times=False)


def virtual(file: Any) -> None:
    """Samples that another HDF5 file has."""
    layout = h5py.VirtualLayout(F.shape, "f4")
    layout[...] = h5py.VirtualSource(OTHER, "data", F.shape)
    file.create_virtual_dataset("data", layout)
    file.create_dataset("label", data=Y, track_times=False)


def unknown_filter(file: Any) -> None:
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_chunk((2, 1, 4, 4))
    plan.set_filter(32000, h5py.h5z.FLAG_OPTIONAL, (1,))
    plan.set_obj_track_times(False)
    one = h5py.h5d.create(file.id, b"data", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple(F.shape), plan)
    one.write(h5py.h5s.ALL, h5py.h5s.ALL, F)
    file.create_dataset("label", data=Y, track_times=False)


def groups(file: Any) -> None:
    file.create_group("data")
    file.create_group("label")


def labels(values: list[Any], kind: str) -> bytes:
    return of(F, np.array([0, 1, 2, 3, *values], kind))


@lru_cache
def goods() -> list[Good]:
    want, small = samples(Y, F), samples(Y, X)
    whole = of(F, Y, True, fletcher32=True, chunks=1)
    right = [
        Good("plain", of(F, Y.astype("i4")), want),
        Good("bytes, packed", of(X, Y, compression="gzip", shuffle=True, chunks=2), small),
        Good("checksums", whole, want, EVERYTHING), Good("new, without filters", of(F, Y, True), want),
        Good("labels as floats", of(X, Y.astype("f4"), names=("images", "labels")), small),
        Good("sums over chunks", of(X, Y, fletcher32=True, chunks=2), small),
        Good("chunks that grow", of(F, Y, True, maxshape=None, chunks=3), want),
    ]  # fmt: skip
    result = [Good(one.name, one.data, one.samples, one.summed, COUNT) for one in right]
    result += [Good(name, data, None) for name, data in wrong().items()]
    return [*result, *(Good(name, data, ()) for name, data in either().items())]


def wrong() -> dict[str, bytes]:
    """What has to be refused."""
    return {
        "labels of 2^32": labels([2**32 + 3, 2**32 + 1], "i8"), "labels of 2^64": labels([2**64 - 1, 2**63], "u8"),
        "labels of 2^31": labels([2**31, 5], "u4"),
        "infinite labels": labels([np.inf, 1e20], "f4"), "labels that are no numbers": labels([np.nan, 1], "f4"),
        "labels of 1.5": labels([1.5, 1], "f8"),
        "negative labels": labels([-1, 1], "i2"), "values beyond float32": of(F.astype("f8") * 1e300 + 1e300, Y),
        "a link to itself": linked(h5py.SoftLink("/data")),
        "a link to nothing": linked(h5py.ExternalLink("nothing.h5", "data")),
        "a link to another file": linked(h5py.ExternalLink(OTHER, "data")), "bytes of another file": made(outside),
        "samples of another file": made(virtual),
        "groups": made(groups), "nothing": made(lambda file: None),
        "no values": of(np.ones((2, 0, 2, 2), "f4"), Y[:2]), "no shape": of(h5py.Empty("f4"), Y),
        "one number": of(np.float32(1), Y), "texts": of(np.array([b"a", b"b"]), Y[:2]),
        "complex numbers": of(F.astype("c8"), Y),
        "references": of(np.empty(COUNT, h5py.ref_dtype), Y),
        "records": of(np.zeros(COUNT, [("a", "f4"), ("b", "f4")]), Y),
        "samples of 30 GB": empty((4, 3, 10**5, 10**5), chunks=(1, 1, 1000, 1000)), "fewer labels": of(F, Y[:3]),
    }  # fmt: skip


def either() -> dict[str, bytes]:
    """What may be refused or read, in little memory and time."""
    return {
        "10^9 rows": empty((10**9, 1, 2, 2), chunks=(1024, 1, 2, 2)),
        "10^12 rows": empty((10**12, 1, 2, 2), chunks=(1, 1, 2, 2)),
        "10^7 rows": empty((10**7, 1, 2, 2), chunks=(1024, 1, 2, 2)),
        "a chunk of 1 GiB": inflated(), "a small chunk of 2 GiB": chunk_of(zeros(1 << 31), 1),
        "a small chunk of 2 GiB, packed twice": chunk_of(zlib.compress(zeros(1 << 31), 9), 2),
        "a filter of nobody": made(unknown_filter), "truth": of(F > 99, Y),
        "half": of(F.astype("f2"), Y),
        "big-endian": of(F.astype(">f4"), Y.astype(">i8")), "lzf": of(X, Y, compression="lzf", chunks=2),
        "scaled": of(X.astype("i4"), Y, scaleoffset=0, chunks=2),
        "scalar of a link": linked(h5py.SoftLink("/label")), "large integers": of(F.astype("i8") << 54, Y),
    }  # fmt: skip


SINGLE = 7  # the good files with samples come first


@lru_cache
def sums(index: int) -> list[tuple[int, int]]:
    """The structures with sums of a file."""
    data = goods()[index].data
    return structures(data, SIGNATURES) if len(data) < 20_000 and data[8] > 1 else []


@st.composite
def files(draw: Any) -> bytes:
    index = draw(st.integers(0, SINGLE - 1 if draw(st.booleans()) else len(goods()) - 1))
    data = goods()[index].data
    if len(data) > 100_000:
        return packed(index, data if draw(st.booleans()) else data[: draw(st.integers(0, len(data)))])

    def mend(raw: bytearray, at: int) -> None:
        for first, end in sums(index):
            if first <= at < end:
                raw[end : end + 4] = lookup3(raw[first:end]).to_bytes(4, "little")

    how = pick(draw, ["right", "changed", "changed", "changed", "number", "number", "number", "other"])
    if how == "changed":
        data = draw(mutated(data, PIECES))
    elif how == "number":
        data = draw(renumbered(data, mend=mend))
    elif how == "other":
        other = goods()[draw(st.integers(0, SINGLE - 1))].data
        at, size = draw(st.integers(0, min(len(data), len(other)))), pick(draw, [8, 64, 512])
        data = data[:at] + other[at : at + size] + data[at + size :]
    return packed(index, data)


@lru_cache
def other() -> bytes:
    return of(F + 1, Y)


def check_file(case: bytes, folder: Path) -> bool:
    index, data = unpacked(case)
    (folder / FILE).write_bytes(data)
    (folder / OTHER).write_bytes(other())
    (folder / SECRET).write_bytes(b"SECRET" * 100)
    if crc32(data) % 4 == 0:  # a layer reads each top by itself
        (folder / "net.prototxt").write_text(NET)
        command("data", "net.prototxt", "--json")
        (folder / "net.prototxt").unlink()
    return check(goods(), index, data, f"hdf5:{FILE}")


KIND = Kind("hdf5", files(), check_file, 80)
