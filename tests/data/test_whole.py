"""Encoded images of strangers: whole ones of seven formats give their pixels; torn and lying ones are refused, and the
libraries say no word of their own."""

import io
import os
import struct
import threading
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image

from minidnn.data import DataError, decoding, parse, quiet, whole

RGB = np.kron(np.random.default_rng(0).integers(0, 255, (3, 4, 3)), np.ones((4, 4, 1))).astype(np.uint8)
PICTURE = Image.fromarray(RGB)
GREY = bytes([200] * 64)  # of an image of 8×8
DEFLATED = zlib.compress(GREY)


def saved(form, image=PICTURE, **how):
    file = io.BytesIO()
    image.save(file, form, **how)
    return file.getvalue()


def digits(kind, values):
    return b"P%d\n16 12\n%s" % (kind, b"255\n" * (kind > 1)) + b" ".join(b"%d" % v for v in values.reshape(-1)) + b"\n"


WHOLE = {
    "png": saved("PNG"),
    "png with a palette": saved("PNG", PICTURE.convert("P")),
    "png in black and white": saved("PNG", PICTURE.convert("1")),
    "jpeg": saved("JPEG"),
    "jpeg in grey": saved("JPEG", PICTURE.convert("L")),
    "jpeg in CMYK": saved("JPEG", PICTURE.convert("CMYK")),
    "progressive jpeg": saved("JPEG", progressive=True),
    "gif": saved("GIF"),
    "animated gif": saved("GIF", save_all=True, append_images=[PICTURE.transpose(Image.Transpose.FLIP_TOP_BOTTOM)]),
    "bmp": saved("BMP"),
    "tiff": saved("TIFF"),
    "tiff by LZW": saved("TIFF", compression="tiff_lzw"),
    "tiff by deflate": saved("TIFF", compression="tiff_adobe_deflate"),
    "tiff by JPEG": saved("TIFF", compression="jpeg"),
    "tiff of two pages": saved("TIFF", save_all=True, append_images=[PICTURE.convert("L")]),
    "webp": saved("WEBP"),
    "webp without loss": saved("WEBP", lossless=True),
    "ppm": saved("PPM"),
    "ppm in digits": digits(3, RGB),
    "pgm in digits": digits(2, RGB[..., 0]),
    "pbm in digits": digits(1, RGB[..., 0] > 99),
}


def part(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(rows, colour=2, interlaced=0, more=b""):
    """A PNG of 8×8 with these bytes of pixels."""
    head = part(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, colour, 0, 0, interlaced))
    return b"\x89PNG\r\n\x1a\n" + head + more + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b"")


def tiff(body=GREY, rows=8, offsets=(0,), counts=(64,), compression=1, more=()):
    """A TIFF in grey of 8×8, whose bytes of pixels lie behind its tags."""
    tags = [(256, 3, [8]), (257, 3, [8]), (258, 3, [8]), (259, 3, [compression]), (262, 3, [1]), (277, 3, [1])]
    tags += [(278, 3, [rows]), (279, 4, counts), *more]
    begin = 8 + 2 + 12 * (len(tags) + 1) + 4
    tags.append((273, 4, [begin + at for at in offsets]))
    result, behind = b"II*\0" + struct.pack("<IH", 8, len(tags)), b""
    for tag, kind, values in sorted(tags, key=lambda t: t[0]):
        raw = struct.pack(f"<{len(values)}{'H' if kind == 3 else 'I'}", *values)
        place = raw.ljust(4, b"\0") if len(raw) <= 4 else struct.pack("<I", begin + len(body) + len(behind))
        behind += raw if len(raw) > 4 else b""
        result += struct.pack("<HHI", tag, kind, len(values)) + place
    return result + struct.pack("<I", 0) + body + behind


def pixels(data, channels=3):
    """The pixels; None if the image is refused. Libraries say nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return decoding.pixels(data, channels)
        except DataError as error:
            assert "\n" not in str(error) and "object at" not in str(error)
            return None


@pytest.mark.parametrize("kind", WHOLE)
def test_an_image_that_is_cut_anywhere_is_refused_or_has_all_its_pixels(kind, capfd):
    data = WHOLE[kind]
    for channels in (3, 1):
        right = pixels(data, channels)
        assert right.shape == (channels, 12, 16)
        sizes = range(len(data)) if len(data) < 900 else {*range(0, len(data), 7), *range(len(data) - 20, len(data))}
        got = [pixels(data[:size], channels) for size in sizes]
        assert all(one is None or np.array_equal(one, right) for one in got)
        assert kind in ("animated gif", "gif", "tiff of two pages", "pbm in digits") or got == [None] * len(got)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["png", "png in black and white"])
def test_a_png_with_one_bit_flipped_is_refused(kind):
    """Each of its parts has a checksum."""
    for bit in range(8 * len(WHOLE[kind])):
        damaged = bytearray(WHOLE[kind])
        damaged[bit // 8] ^= 1 << bit % 8
        assert pixels(bytes(damaged)) is None, bit


@pytest.mark.parametrize("kind", [kind for kind in WHOLE if "jpeg" in kind or "tiff" in kind or "gif" in kind])
def test_other_images_with_one_bit_flipped_are_read_or_refused_without_a_word(kind, capfd):
    data = WHOLE[kind]
    for byte in range(0, len(data), 3):
        damaged = bytearray(data)
        damaged[byte] ^= 1 << byte % 8
        result = pixels(bytes(damaged))
        assert result is None or result.ndim == 3
    assert capfd.readouterr() == ("", "")


JPEG = WHOLE["jpeg"]
TORN = {
    "rows of a png": (png(b"".join(b"\0" + b"\xc8" * 24 for _ in range(3))), "a PNG with 75 bytes .* needs 200"),
    "rows of a palette": (
        png((b"\0" + b"\1" * 8) * 3, 3, more=part(b"PLTE", b"\xff" * 6)), "a PNG with 27 bytes .* needs 72"),
    "half of a row": (png((b"\0" + b"\xc8" * 24) * 7 + b"\0" + b"\xc8" * 9), "image file is truncated"),
    "passes of a png": (png(b"\0\xc8\xc8\xc8" * 3, interlaced=1), "a PNG with 12 bytes of pixels; its size needs 207"),
    "a frame of a png": (
        png((b"\0" + b"\xc8" * 24) * 8, more=part(b"acTL", struct.pack(">II", 1, 0))
            + part(b"fcTL", struct.pack(">IIIIIHHBB", 0, 8, 3, 0, 0, 1, 1, 0, 0))), "first image is a part of it"),
    "a jpeg's end": (JPEG[: len(JPEG) * 9 // 10] + b"\xff\xd9", "premature end of data segment"),
    "a jpeg in grey's": (WHOLE["jpeg in grey"][:-20] + b"\xff\xd9", "premature end of data segment"),
    "a jpeg in CMYK's": (WHOLE["jpeg in CMYK"][:-20] + b"\xff\xd9", "premature end of data segment"),
    "a revision of JFIF": (JPEG.replace(b"JFIF\0\1", b"JFIF\0\xff"), "unknown JFIF revision number 255"),
    "zeros": (JPEG[: len(JPEG) * 9 // 10] + bytes(500), "a JPEG without its end"),
    "strips": (tiff(rows=3), "a TIFF with 1 of its 3 parts"),
    "the last strip": (tiff(rows=3, offsets=(0, 24), counts=(24, 24)), "a TIFF with 2 of its 3 parts"),
    "bytes of a strip": (tiff(counts=(24,)), "a TIFF with 24 bytes of pixels"),
    "the end of a strip": (tiff(DEFLATED, counts=(99,), compression=8), "a TIFF that is cut: 99 bytes at byte"),
    "strips without sizes": (tiff(GREY[:60], counts=(0,)), "image file is truncated"),
    "a strip's checksum": (
        tiff(DEFLATED[:-1] + b"\0", counts=(len(DEFLATED),), compression=8), "incorrect data check"),
    "a tiff's sizes": (tiff(rows=0), "a TIFF of 8×8 in parts of 0×8"),
}  # fmt: skip


@pytest.mark.parametrize("kind", TORN)
def test_well_formed_images_without_all_their_pixels(kind, capfd):
    data, said = TORN[kind]
    for channels in (3, 1):
        with pytest.raises(DataError, match=rf"not a whole image \({len(data)} bytes\): .*{said}") as error:
            decoding.pixels(data, channels)
        assert "Warning" not in str(error.value)
    assert capfd.readouterr() == ("", "")


def test_the_images_that_torn_ones_were_are_read():
    row = b"\0" + b"\xc8" * 24
    passes = (1, 1), (1, 1), (2, 1), (2, 2), (4, 2), (4, 4), (8, 4)  # (columns, rows) of Adam7
    interlaced = png(b"".join((b"\0" + b"\xc8" * 3 * columns) * rows for columns, rows in passes), interlaced=1)
    strips = tiff(rows=3, offsets=(0, 24, 48), counts=(24, 24, 16))
    deflated = tiff(DEFLATED, counts=(len(DEFLATED),), compression=8)
    for data in (png(row * 8), interlaced, tiff(), tiff(counts=(0,)), strips, deflated):
        assert (decoding.pixels(data, 3) == 200).all()
    assert (decoding.pixels(png(bytes(200)), 3) == 0).all()  # black, and whole


def test_only_the_formats_of_the_suffixes_are_opened(tmp_path, monkeypatch):
    """PostScript would start Ghostscript."""
    ran = []
    monkeypatch.setattr("subprocess.Popen", lambda *args, **kwargs: ran.append(args))
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"
    for data in (postscript, saved("TGA"), saved("ICO"), saved("PCX"), saved("JPEG2000"), b"qoif" + bytes(20)):
        for use in (decoding.channels, decoding.size, lambda given: decoding.pixels(given, 3)):
            with pytest.raises(DataError, match="not an image that Pillow knows"):
                use(data)
    assert not ran
    assert decoding.pixels(WHOLE["png"], 3).shape == (3, 12, 16)  # whatever its suffix


class TestBounds:
    def test_a_small_file_has_few_pixels(self, monkeypatch):
        head = part(b"IHDR", struct.pack(">IIBBBBB", 11000, 11000, 1, 0, 0, 0, 0))
        bomb = b"\x89PNG\r\n\x1a\n" + head + part(b"IDAT", zlib.compress(bytes(1376 * 11000), 9)) + part(b"IEND", b"")
        for use in (decoding.channels, decoding.size, lambda data: decoding.pixels(data, 3)):
            with pytest.raises(DataError, match=r"an image of 11000×11000; at most 16777216 pixels .* file this small"):
                use(bomb)
        monkeypatch.setattr(decoding, "FEW", 100)
        assert pixels(WHOLE["png"]).shape == (3, 12, 16)  # 192 pixels of 150 bytes
        monkeypatch.setattr(decoding, "PIXELS_OF_A_BYTE", 1)
        assert pixels(WHOLE["png"]) is None

    def test_far_too_many(self):
        with pytest.raises(DataError, match="more than 134217728 pixels"):
            decoding.size(saved("PPM")[:3] + b"65000 65000\n255\n")

    def test_tiles_beyond_the_image(self):
        tiles = (322, 4, [60000]), (323, 4, [60000]), (324, 4, [8]), (325, 4, [64])
        with pytest.raises(DataError, match="a TIFF of 8×8 in parts of 60000×60000"):
            decoding.pixels(tiff(more=tiles), 3)

    def test_scans_of_a_jpeg(self):
        jpeg = WHOLE["progressive jpeg"]
        at = jpeg.index(b"\xff\xda")
        with pytest.raises(DataError, match="a JPEG of more than 100 scans"):
            decoding.pixels(jpeg[:at] + jpeg[at : jpeg.index(b"\xff", at + 14)] * whole.SCANS + jpeg[at:], 3)

    def test_pixels_of_all_scans_of_a_jpeg(self, monkeypatch):
        jpeg = WHOLE["progressive jpeg"]
        scans = jpeg.count(b"\xff\xda")
        monkeypatch.setattr(whole, "SCANNED_OF_A_BYTE", 0)
        monkeypatch.setattr(whole, "SCANNED", 192 * scans)
        assert pixels(jpeg).shape == (3, 12, 16)
        monkeypatch.setattr(whole, "SCANNED", 192 * scans - 1)
        with pytest.raises(DataError, match=f"a JPEG of more than {scans - 1} scans"):
            decoding.pixels(jpeg, 3)


class TestQuiet:
    def test_warnings_of_this_thread_alone_are_silent(self):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            with quiet.here():
                warnings.warn("mine", stacklevel=1)
                other = threading.Thread(target=lambda: warnings.warn("another's", stacklevel=1))
                other.start()
                other.join()
            warnings.warn("later", stacklevel=1)
        assert [str(warning.message) for warning in heard] == ["another's", "later"]

    def test_the_list_of_filters_does_not_grow(self):
        with warnings.catch_warnings():
            for _ in range(5):
                warnings.simplefilter("error")
                with quiet.here():
                    warnings.warn("mine", stacklevel=1)
                length = len(warnings.filters)
            warnings.simplefilter("error")
            with quiet.here():
                assert len(warnings.filters) == length

    def test_a_palette_with_transparency_and_odd_metadata_are_no_one_s_business(self, capfd):
        image = PICTURE.convert("P")
        image.info["transparency"] = bytes(range(256))
        assert pixels(saved("PNG", image)).shape == (3, 12, 16)
        exif = b"Exif\0\0II*\0\x08\0\0\0\x05\0" + b"\x0f\x01\x02\0\xff\xff\0\0\xff\xff\0\0" * 2
        assert np.array_equal(pixels(saved("JPEG", exif=exif)), pixels(JPEG))
        assert capfd.readouterr() == ("", "")


def test_what_is_no_regular_file_is_no_image(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ok.png").write_bytes(WHOLE["png"])
    os.mkfifo(tmp_path / "a" / "pipe.png")
    (tmp_path / "a" / "zero.png").symlink_to("/dev/zero")
    dataset = parse(f"folder:{tmp_path}").open()
    for k, name in enumerate(("pipe", "zero"), 1):
        with pytest.raises(DataError, match=f"/a/{name}.png: not a regular file"):
            dataset.image(k)


@pytest.mark.parametrize("label", ["2147483648", "9" * 5000, "-1", "1.0", "1e3"])
def test_labels_of_a_list_have_32_bits(tmp_path, label):
    (tmp_path / "list.txt").write_text(f"a.png {label}\n")
    with pytest.raises(DataError, match=r"list\.txt:1: expected a path, a space and a label of at least 0"):
        parse(f"list:{tmp_path}/list.txt").open()
