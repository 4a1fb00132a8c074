"""HDF5 files of strangers: a dataset is opened only if all of its bytes lie in the file itself, and have bounds.

HDF5 can take a dataset's bytes from other files (links, external storage, views) and through code that is loaded when a
filter wants it. It can promise any number of rows, and rows that were never written are zeros. All of that is refused
before a value is read. Whatever h5py raises while it reads, the file is to blame.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np

from minidnn.data.dataset import DataError
from minidnn.files import regular
from minidnn.spoken import either

CHUNK = 1 << 28  # bytes of a chunk, at most: each is unpacked whole
RATIO = 1100  # bytes that a byte in the file may become; gzip makes 1,032 of one at most
ROWS = 1 << 14  # rows that any file may have; a larger one may have ROWS_OF_A_BYTE for each of its bytes
ROWS_OF_A_BYTE = 4
_SAME_SIZE = (2, 3)  # those that pack nothing
_LITTLE = 1 << 10  # bytes that packing may add to a chunk, besides a sixteenth
_SUM = 4  # bytes of fletcher32's checksum
_JUMPS = 16  # links from one name to the next, at most
_FILTERS = {1: "gzip", 2: "shuffle", 3: "fletcher32", 4: "szip", 6: "scaleoffset", 32000: "lzf"}
_CHECKED: dict[tuple[int | str, ...], int] = {}  # the bytes of a chunk of each dataset that was checked, by its file
_PLUGIN = "hdf5plugin"  # the package that brings the other ones, if the user imports it


def opened(path: str) -> Any:
    """The file, an h5py.File. Raises DataError if it is none, or if h5py is not installed."""
    try:
        import h5py
    except ImportError as error:
        raise DataError("HDF5 is read by h5py, which is not installed here: pip install 'minidnn[hdf5]'") from error
    try:
        regular.opened(path).close()
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
    with blamed(f"{path}: not an HDF5 file"):
        return h5py.File(path, "r")


@contextlib.contextmanager
def blamed(place: str) -> Iterator[None]:
    """Whatever h5py raises within becomes a DataError."""
    try:
        yield
    except (MemoryError, DataError):
        raise
    except Exception as error:  # any kind: KeyError, RuntimeError, OverflowError, AttributeError, ...
        raise DataError(f"{place}: {error or type(error).__name__}") from error


def dataset(path: str, file: Any, name: str) -> Any | None:
    """The dataset of this name, an h5py.Dataset, with room for one chunk in memory; None if there is nothing of this
    name. Raises DataError if it is none, or if its values are elsewhere, unbounded, or not all there."""
    import h5py

    place = f"{path}: {name}"
    with blamed(place):
        full = _followed(place, file, name)
        if full is None:
            return None
        about = os.stat(path)
        key = about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, full
        if key not in _CHECKED:
            _CHECKED[key] = _checked(place, file[full], about.st_size)
        access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
        _, places, nbytes, weight = file.id.get_access_plist().get_cache()
        access.set_chunk_cache(places, max(nbytes, _CHECKED[key]), weight)
        return h5py.Dataset(h5py.h5d.open(file.id, full.encode("utf-8", "surrogateescape"), access))


def _followed(place: str, file: Any, name: str) -> str | None:
    """The path of what has this name, without links; None if there is nothing. Raises DataError if a link leaves the
    file, or goes round."""
    import h5py

    here, jumps = "/", 0
    todo = [part for part in name.split("/") if part not in ("", ".")]
    while todo:
        part = todo.pop(0)
        link = file[here].get(part, getlink=True)
        if link is None:
            return None
        if isinstance(link, h5py.HardLink):
            here = f"{here.rstrip('/')}/{part}"
            continue
        jumps += 1
        if not isinstance(link, h5py.SoftLink):
            raise DataError(f"{place}: a link to the file {link.filename}; expected a dataset of the file itself")
        if jumps > _JUMPS:
            raise DataError(f"{place}: more than {_JUMPS} links, one to the next")
        here = "/" if link.path.startswith("/") else here
        todo = [step for step in link.path.split("/") if step not in ("", ".")] + todo
    return here


def _checked(place: str, about: Any, size: int) -> int:
    """The bytes of a chunk of what should be a dataset, which is checked before a value is read; size: of the file."""
    import h5py

    if not isinstance(about, h5py.Dataset):
        raise DataError(f"{place}: a {type(about).__name__.lower()}; expected a dataset")
    how = about.id.get_create_plist()
    layout = how.get_layout()
    if how.get_external_count() or layout == h5py.h5d.VIRTUAL:
        raise DataError(f"{place}: its values lie in other files; expected a dataset of the file itself")
    if about.shape is None:
        raise DataError(f"{place}: an empty dataset, without a shape; expected numbers")
    if 0 in about.shape[1:]:
        raise DataError(f"{place}: {about.dtype} of shape {about.shape}: its rows hold no values")
    if about.shape and about.shape[0] > max(ROWS, ROWS_OF_A_BYTE * size):
        raise DataError(f"{place}: {about.shape[0]} rows in a file of {size} bytes, which cannot be")
    if about.size and layout == h5py.h5d.CHUNKED:
        _check_chunks(place, about, how, size)
    elif about.size:
        _check_whole(place, about, size)
    return _chunk_bytes(about)


def _check_whole(place: str, about: Any, size: int) -> None:
    """Check a dataset whose values lie together."""
    what = f"{place}: {about.dtype} of shape {about.shape}"
    wanted, stored, begin = about.size * about.dtype.itemsize, about.id.get_storage_size(), about.id.get_offset()
    if not stored:
        raise DataError(f"{what}: it was never written, so that all rows would be zeros")
    if stored != wanted or (begin or 0) + stored > size:
        raise DataError(f"{what}: {wanted} bytes; {stored} are stored in a file of {size}")


def _check_filters(place: str, how: Any) -> None:
    filters = [how.get_filter(k) for k in range(how.get_nfilters())]
    if sum(filter_[0] not in _SAME_SIZE for filter_ in filters) > 1:
        raise DataError(f"{place}: packed twice, by {' and '.join(str(filter_[0]) for filter_ in filters)}")
    for filter_ in filters:
        if filter_[0] not in _FILTERS and _PLUGIN not in sys.modules:
            what = f"the filter {filter_[0]} ({filter_[3].decode('utf-8', 'replace')})"
            remedy = f"repack it (h5repack -f GZIP=6), or {either(f'give --import {_PLUGIN}', f'import {_PLUGIN}')}"
            raise DataError(f"{place}: packed by {what}; read are {', '.join(_FILTERS.values())}: {remedy}")


def _check_chunks(place: str, about: Any, how: Any, size: int) -> None:
    _check_filters(place, how)
    if (chunk := _chunk_bytes(about)) > CHUNK:
        raise DataError(f"{place}: chunks of shape {about.chunks}, {chunk} bytes; at most {CHUNK} are unpacked at once")
    wanted = math.prod(-(-n // c) for n, c in zip(about.shape, about.chunks, strict=True))
    if (there := about.id.get_num_chunks()) != wanted:
        raise DataError(f"{place}: {there} of {wanted} chunks are there: the rows of the others would be zeros")
    stored = _stored(place, about, size, how.get_nfilters())
    if wanted * chunk > RATIO * stored:
        raise DataError(f"{place}: {wanted} chunks of {chunk} bytes, stored in {stored} bytes, which is impossible")


def _stored(place: str, about: Any, size: int, filters: int) -> int:
    """The bytes that the chunks take in the file, through so many filters. Raises DataError unless each has places of
    its own, in the dataset and in the file: a chunk that is sought where it is not reads as zeros."""
    values = array("q")
    about.id.chunk_iter(lambda c: values.extend((*c.chunk_offset, c.byte_offset, c.size, c.filter_mask)))
    places = np.frombuffer(values, np.int64).reshape(-1, len(about.shape) + 3)
    at, begin, nbytes, left_out = places[:, :-3], places[:, -3], places[:, -2], places[:, -1]
    outside = (at < 0) | (at >= about.shape) | (at % about.chunks != 0)
    if outside.any() or len(np.unique(np.ravel_multi_index(tuple(at.T), about.shape, mode="clip"))) < len(at):
        raise DataError(f"{place}: the places of its chunks contradict its shape {about.shape}")
    plain = nbytes[(left_out != 0) | (not filters)]  # a filter that cannot shrink a chunk is left out
    if len(plain) and not np.isin(plain - _chunk_bytes(about), (0, _SUM)).all():
        raise DataError(f"{place}: a chunk of {_chunk_bytes(about)} bytes is stored in {plain.min()} without a filter")
    if nbytes.max() > (most := _chunk_bytes(about) * 17 // 16 + _LITTLE):
        raise DataError(f"{place}: a chunk takes {nbytes.max()} bytes packed, which would become more than {most}")
    order = np.argsort(begin)
    begin, end = begin[order], (begin + nbytes)[order]
    if (begin < 0).any() or (nbytes < 0).any() or (end[:-1] > begin[1:]).any() or end[-1] > size:
        raise DataError(f"{place}: its chunks lie in each other's bytes, or beyond the file's {size}")
    return int(nbytes.sum())


def _chunk_bytes(about: Any) -> int:
    return math.prod(about.chunks) * about.dtype.itemsize if about.chunks else 0
