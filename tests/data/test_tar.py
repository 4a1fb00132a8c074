"""Tar files that are cut, damaged or odd: the same samples as whole ones have, or an error; never fewer samples."""

import io
import os
import tarfile

import numpy as np
import pytest

from minidnn.data import DataError, parse
from minidnn.data.tar import BLOCK, members
from minidnn.files.parts import Held

LONG = "part/" + "x" * 120 + "/"  # longer than a header's field, and no two of its ends part it for ustar


def archive(names, form=tarfile.USTAR_FORMAT, **fields) -> bytes:
    """Members of these names; the contents of an image are its name, and labels count."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as result:
        for k, name in enumerate(names):
            content = b"%d" % k if name.endswith(".cls") else name.encode() * 3
            about = tarfile.TarInfo(name)
            about.size = len(content)
            for field, value in fields.items():
                setattr(about, field, value)
            result.addfile(about, io.BytesIO(content))
    return file.getvalue()


def pairs(count, prefix=""):
    return [f"{prefix}{k}{end}" for k in range(count) for end in (".jpg", ".cls")]


def content(path, data):
    """The names, bytes and labels of the samples of a file with these bytes; None if it is refused."""
    path.write_bytes(data)
    try:
        dataset = parse(f"tar:{path}").open()
    except DataError as error:
        assert "a.tar: " in str(error) and "\n" not in str(error)
        return None
    return [(dataset.place(k), *dataset.read(k)) for k in range(len(dataset))]


def summed(header: bytearray) -> bytes:
    """The header with its checksum."""
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


FORMS = [
    (archive(pairs(3)), 3),
    (archive(pairs(2, "\u00e9/")), 2),
    (archive(pairs(2, LONG), tarfile.GNU_FORMAT), 2),
    (archive(pairs(2, LONG), tarfile.PAX_FORMAT, mtime=1.5), 2),
]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.tar"


@pytest.mark.parametrize(("whole", "count"), FORMS)
def test_the_samples_are_those_of_python_s_tarfile(path, whole, count):
    samples = content(path, whole)
    with tarfile.open(path) as file:
        named = {member.name: file.extractfile(member).read() for member in file}
    images = [name for name in named if name.endswith(".jpg")]
    assert [place for place, _, _ in samples] == [f"{path}: {name}" for name in images] and len(samples) == count
    assert [data for _, data, _ in samples] == [named[name] for name in images]
    assert [label for _, _, label in samples] == [int(named[name.replace(".jpg", ".cls")]) for name in images]


def read(data):
    """The members of a file with these bytes; None if it is refused."""
    try:
        return list(members(Held(bytes(data), "a.tar")))
    except DataError as error:
        assert str(error).startswith("a.tar: ")
        return None


@pytest.mark.parametrize(("whole", "count"), FORMS)
def test_a_file_that_is_cut_anywhere_is_refused(whole, count):
    end = len(whole.rstrip(b"\0")) // BLOCK * BLOCK + BLOCK  # where its blocks of zeros begin
    right = read(whole)
    sizes = {*range(0, end + 3 * BLOCK, 13), *(k * BLOCK + d for k in range(end // BLOCK + 3) for d in (0, 1, 511))}
    for size in sizes:
        assert read(whole[:size]) == (None if size < end + 2 * BLOCK else right), size


@pytest.mark.parametrize(("whole", "count"), FORMS)
def test_a_header_with_one_bit_flipped_is_refused_or_changes_nothing(whole, count):
    right = read(whole)
    refusals = 0
    for at in (right[0].at - BLOCK, right[1].at - BLOCK):
        for bit in range(8 * BLOCK):
            damaged = bytearray(whole)
            damaged[at + bit // 8] ^= 1 << bit % 8
            got = read(damaged)
            assert got in (None, right), bit
            refusals += got is None
    assert refusals > 16 * BLOCK - 40  # all but some of a number's spaces


@pytest.mark.parametrize(("whole", "count"), FORMS[2:])
def test_a_long_name_with_one_bit_flipped_never_loses_a_sample(path, whole, count):
    """No checksum covers it."""
    samples = content(path, whole)
    at = whole.index(b"x" * 110) - 20
    for byte in range(at, at + 170):
        damaged = bytearray(whole)
        damaged[byte] ^= 1 << byte % 8
        got = content(path, damaged)
        assert got is None or [data for _, data, _ in got] == [data for _, data, _ in samples], byte - at


class TestRefusals:
    def said(self, path, data, words):
        path.write_bytes(data)
        with pytest.raises(DataError, match=rf"a\.tar: {words}"):
            parse(f"tar:{path}").open()

    def test_the_place_is_named(self, path):
        whole = archive(pairs(2))
        flipped = bytearray(whole)
        flipped[2 * BLOCK + 3] ^= 1
        self.said(path, flipped, "damaged: the header at byte 1024 has a wrong checksum")
        self.said(path, whole[: 2 * BLOCK + 100], "cut: it ends at byte 1124, without the two blocks of zeros")
        self.said(path, whole[:515], r"cut within 0\.jpg: the header at byte 0 promises 15 bytes, and 3 follow")
        self.said(path, whole[: 9 * BLOCK], "cut: it ends with one block of zeros, at byte 4096")
        self.said(path, b"", "not a plain tar file")
        self.said(path, b"\x1f\x8b" + bytes(2000), "not a plain tar file .*one that is packed has to be unpacked")

    def test_a_pipe_is_no_archive(self, path):
        os.mkfifo(path)
        for name in (path, path.parent):
            with pytest.raises(DataError, match=r"a\.tar: not a regular file"):
                parse(f"tar:{name}").open()

    def test_what_follows_the_end(self, path):
        whole = archive(pairs(2))
        self.said(
            path, whole + whole, "damaged, or several archives in one file: .* ends at byte 4096.* more at byte 10240"
        )
        self.said(path, whole[:-1] + b"x", "damaged, .* there is more at byte 10239")
        middle = whole[: 4 * BLOCK] + bytes(BLOCK) + whole[4 * BLOCK :]
        self.said(path, middle, "damaged, .* ends at byte 2048, and there is more at byte 2560")
        assert len(content(path, whole + bytes(2 << 20))) == 2

    @pytest.mark.parametrize(
        ("kind", "what"),
        [(tarfile.LNKTYPE, "hard link"), (tarfile.SYMTYPE, "symbolic link"), (b"3", "member of type '3'")],
    )
    def test_a_link_or_a_device_is_no_image_and_no_label(self, path, kind, what):
        for name in ("0.jpg", "0.cls"):
            data = archive([name], type=kind, linkname="README", size=0)
            self.said(path, data, rf"{name} is a {what}, not a file: pack the file itself")

    def test_folders_links_and_other_files_are_passed_over(self, path):
        odd = archive(["a.jpg/"], type=tarfile.DIRTYPE, size=0)[:BLOCK]
        odd += archive(["more"], type=tarfile.SYMTYPE, linkname="README", size=0)[:BLOCK]
        odd += archive(["old/"], type=tarfile.AREGTYPE, size=0)[:BLOCK] + archive(["README"])[: 2 * BLOCK]
        assert content(path, odd + archive(pairs(2))) == content(path, archive(pairs(2)))

    def test_two_of_one_name(self, path):
        self.said(path, archive([*pairs(2), "1.cls"]), r"1\.cls and 1\.cls are labels of one sample")
        self.said(path, archive([*pairs(2), "1.jpg"]), r"1\.jpg and 1\.jpg are images of one sample")

    def test_a_label_without_an_image(self, path):
        self.said(path, archive([*pairs(1), "1.cls", "1.jp2"]), r"1\.cls: no image has this name")

    def test_a_sparse_member(self, path):
        self.said(
            path, archive(["0.jpg"], type=tarfile.GNUTYPE_SPARSE), r"0\.jpg, at byte 0, is stored as a sparse file"
        )
        fields = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "7.jpg"}
        sparse = archive(["0.jpg"], tarfile.PAX_FORMAT, pax_headers=fields)
        self.said(path, sparse, r"7\.jpg, at byte 1024, is stored as a sparse file")

    @pytest.mark.parametrize(
        ("record", "words"),
        [
            (b"12 size=-12\n", "damaged: the pax header at byte 0 has a size that cannot be"),
            (b"99 size=123\n", "damaged: the pax header at byte 0 is none"),
            (b"13 size=9999\n", "cut within 0.jpg: the header at byte 1024 promises 9999 bytes"),
            (b"x", "damaged: the pax header at byte 0 is none"),
        ],
    )
    def test_pax_records_that_lie(self, path, record, words):
        header = bytearray(archive(["pax"], type=tarfile.XHDTYPE)[:BLOCK])
        header[124:136] = b"%011o\0" % len(record)
        self.said(path, summed(header) + record.ljust(BLOCK, b"\0") + archive(["0.jpg"]), words)

    def test_an_extended_header_has_bounds(self, path):
        about = tarfile.TarInfo("0.jpg")
        about.pax_headers = {"path": "x" * (2 << 20)}
        self.said(path, about.tobuf(tarfile.PAX_FORMAT), "the extended header at byte 0 has 2097166 bytes; at most")

    def test_the_size_of_a_large_file_is_in_bytes(self, path):
        header = bytearray(archive(["0.jpg"])[:BLOCK])
        header[124:136] = b"\x80" + (1 << 40).to_bytes(11, "big")
        self.said(path, summed(header), r"cut within 0\.jpg: the header at byte 0 promises 1099511627776 bytes")

    @pytest.mark.parametrize(
        "label", [b"0" * 20 + b"7", b"1" + b" " * 30 + b"x", b"2147483648", b"-1", b"1.0", b"", b"\xb2"]
    )
    def test_a_label_is_read_whole_or_refused(self, path, label):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w") as result:
            for name, value in (("0.jpg", b"x"), ("0.cls", label)):
                about = tarfile.TarInfo(name)
                about.size = len(value)
                result.addfile(about, io.BytesIO(value))
        self.said(path, file.getvalue(), r"0\.cls: ")


def test_labels_keep_their_values(tmp_path):
    samples = content(tmp_path / "a.tar", archive(pairs(11)))
    assert np.array_equal([label for _, _, label in samples], np.arange(11) * 2 + 1)
