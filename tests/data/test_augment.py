"""Augmentation: each formula against its definition, and each result a function of the sample's number."""

from __future__ import annotations

import hashlib
import math
from importlib.util import find_spec

import numpy as np
import pytest

from minidnn.data import DataError, shapes, transform
from minidnn.data.augment import Augment, rotated
from minidnn.schema.sources import DataParameter, TransformationParameter

IMAGE = np.random.default_rng(5).integers(0, 256, (3, 9, 13)).astype(np.uint8)
SMOOTH = np.add.outer(np.arange(40) * 3, np.arange(60) * 2)[None].repeat(3, 0).astype(np.uint8)


def made(augment: Augment, number: int, image=IMAGE) -> np.ndarray:
    sizes = augment.shape(image.shape)
    found = augment(image, number, sizes)
    assert found.shape == sizes and found.dtype == image.dtype
    return found


class TestRotation:
    @pytest.mark.parametrize("quarters", [0, 1, 2, 3])
    def test_quarter_turns_of_a_square_move_pixels_alone(self, quarters):
        for image in (IMAGE[:, :9, :9], IMAGE[:, :8, :8], IMAGE[:, :8, :8].astype(np.float32)):
            found = rotated(image, 90.0 * quarters, (0, 0, *image.shape[1:]))
            assert found.dtype == image.dtype and np.array_equal(found, np.rot90(image, quarters, (1, 2)))

    def test_it_is_bilinear_and_the_edge_goes_on(self):
        degrees, (_, h, w) = 23.0, IMAGE.shape
        found = rotated(IMAGE.astype(np.float32), degrees, (0, 0, h, w))
        cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        for row in range(h):
            for column in range(w):
                dy, dx = row - (h - 1) / 2, column - (w - 1) / 2
                y = min(max((h - 1) / 2 + sin * dx + cos * dy, 0), h - 1)
                x = min(max((w - 1) / 2 + cos * dx - sin * dy, 0), w - 1)
                top, left = min(int(y), h - 2), min(int(x), w - 2)
                fy, fx = y - top, x - left
                square = IMAGE[:, top : top + 2, left : left + 2].astype(float)
                weights = np.array([[(1 - fy) * (1 - fx), (1 - fy) * fx], [fy * (1 - fx), fy * fx]])
                want = (square * weights).sum((1, 2))
                assert np.abs(found[:, row, column] - want).max() < 2 * 255 / 256, (row, column)

    def test_a_window_is_a_part_of_the_whole(self):
        whole = rotated(IMAGE, 17.5, (0, 0, 9, 13))
        assert np.array_equal(rotated(IMAGE, 17.5, (2, 3, 5, 6)), whole[:, 2:7, 3:9])

    def test_bytes_are_rounded_floats(self):
        exact = rotated(IMAGE.astype(np.float32), -8.0, (0, 0, 9, 13))
        assert np.array_equal(rotated(IMAGE, -8.0, (0, 0, 9, 13)), np.floor(exact + 0.5))

    def test_angles_are_even_between_both_ends(self):
        angles = [Augment(rotation=30.0, seed=2)._around(np.array([n]), 6, 0.0, 30.0) for n in range(400)]
        assert -30 <= min(angles) < -29 and 29 < max(angles) < 30 and abs(np.mean(angles)) < 3


class TestColours:
    def factor(self, name: str, lane: int, number: int) -> float:
        return Augment(**{name: 0.5}, seed=1)._around(np.array([number]), lane, 1.0, 0.5)

    @pytest.mark.parametrize("order", ["BGR", "RGB"])
    def test_each_is_its_formula(self, order):
        x = IMAGE.astype(float)
        luma = np.array([0.299, 0.587, 0.114])[:: 1 if order == "RGB" else -1]
        grey = np.tensordot(luma, x, 1)
        bases = {"brightness": (7, 0.0), "contrast": (8, grey.mean()), "saturation": (9, grey)}
        for name, (lane, base) in bases.items():
            for number in range(5):
                want = base + self.factor(name, lane, number) * (x - base)
                found = made(Augment(**{name: 0.5}, order=order, seed=1), number)
                assert np.abs(found - np.clip(want, 0, 255)).max() <= 0.501, name
                real = made(Augment(**{name: 0.5}, order=order, seed=1), number, IMAGE.astype(np.float32))
                assert np.allclose(real, want, atol=1e-3), name  # floats are not held to 0 to 255

    def test_without_saturation_an_image_is_grey(self):
        augment = Augment(saturation=1.0, seed=3)
        least = min(range(300), key=lambda n: augment._around(np.array([n]), 9, 1.0, 1.0))
        found = made(augment, least).astype(int)
        assert np.ptp(found, axis=0).max() <= 4

    def test_grey_images_have_brightness_and_contrast(self):
        found = made(Augment(brightness=0.5, contrast=0.5), 3, IMAGE[:1])
        assert not np.array_equal(found, IMAGE[:1])


@pytest.mark.skipif(find_spec("PIL") is None, reason="images are resized by Pillow")
class TestSizes:
    def test_the_shorter_side_and_both_sides(self):
        assert made(Augment(resize=(6,)), 0).shape == (3, 6, 9)
        assert made(Augment(resize=(6,)), 0, IMAGE.transpose(0, 2, 1)).shape == (3, 9, 6)
        assert made(Augment(resize=(7, 5)), 0).shape == (3, 7, 5)
        assert np.array_equal(made(Augment(resize=(9,)), 0), IMAGE)

    def test_values_stay_in_place(self):
        for image in (SMOOTH, SMOOTH.astype(np.float32), SMOOTH[:1], SMOOTH[:, ::-1].transpose(0, 2, 1)):
            half = made(Augment(resize=(20, 30)), 0, image).astype(float)
            if image.shape[1:] == (40, 60):
                mean = image.astype(float).reshape(len(image), 20, 2, 30, 2).mean((2, 4))
                assert np.abs(half - mean)[:, 1:-1, 1:-1].max() <= 1

    def test_a_random_part_has_the_asked_area_and_ratio(self):
        augment = Augment(crop=8, area=(0.2, 0.5), ratio=(0.5, 2.0), seed=4)
        parts = [augment._part((200, 300), np.array([n])) for n in range(300)]
        for top, left, height, width in parts:
            assert 0 <= top <= 200 - height and 0 <= left <= 300 - width
            assert 0.19 < height * width / 60000 < 0.51 and 0.48 < width / height < 2.05
        areas = [height * width / 60000 for _, _, height, width in parts]
        assert min(areas) < 0.22 and max(areas) > 0.48
        assert augment._part((1, 1), np.array([0])) == (0, 0, 1, 1)
        assert made(augment, 3, SMOOTH).shape == (3, 8, 8)

    def test_images_of_different_sizes_are_cut_to_one(self):
        for image in (SMOOTH, SMOOTH[:, :30, :31]):
            for train in (True, False):
                augment = Augment(resize=(20,), crop=16, train=train, seed=1)
                assert augment.shape((3, 0, 0)) == (3, 16, 16)
                found = augment(image, 5, (3, 16, 16))
                whole = made(Augment(resize=(20,)), 0, image)
                places = [
                    (r, c)
                    for r in range(whole.shape[1] - 15)
                    for c in range(whole.shape[2] - 15)
                    if np.array_equal(whole[:, r : r + 16, c : c + 16], found)
                ]
                middle = (whole.shape[1] - 16) // 2, (whole.shape[2] - 16) // 2
                assert places and (train or middle in places)


class TestNumbers:
    every = Augment(rotation=25.0, brightness=0.4, contrast=0.4, saturation=0.4, seed=6)

    def test_a_result_is_a_function_of_seed_and_number(self):
        first = [made(self.every, n).tobytes() for n in range(50)]
        assert first[::-1] == [made(self.every, n).tobytes() for n in reversed(range(50))]
        assert len(set(first)) == 50
        other = Augment(rotation=25.0, brightness=0.4, contrast=0.4, saturation=0.4, seed=7)
        assert made(other, 0).tobytes() not in first

    def test_it_is_the_same_on_every_machine(self):
        found = b"".join(made(self.every, n, image).tobytes() for n in range(20) for image in (IMAGE, SMOOTH))
        assert hashlib.sha256(found).hexdigest()[:16] == "1ce4a2dbc610b61a"

    def test_the_image_is_not_changed(self):
        before = IMAGE.copy()
        made(self.every, 1)
        assert np.array_equal(before, IMAGE)


class TestFields:
    def param(self, **fields) -> TransformationParameter:
        return TransformationParameter(crop_size=6, crop_area=(0.1, 1.0), rotation=5.0, brightness=0.1, **fields)

    def test_random_changes_are_for_training(self):
        train, test = (transform(self.param(resize=8), phase).augment for phase in ("TRAIN", "TEST"))
        assert (train.area, train.ratio, train.rotation, train.brightness) == ((0.1, 1.0), (3 / 4, 4 / 3), 5.0, 0.1)
        assert test == Augment(resize=(8,), crop=6, train=False)

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"resize": [1, 2, 3]}, "expected one or two numbers as resize"),
            ({"crop_area": [0.5], "crop_size": 3}, "expected the least and the largest value as crop_area"),
            ({"crop_area": [0.5, 0.2], "crop_size": 3}, r"got \[0.5, 0.2\]"),
            ({"crop_area": [0.5, 0.7]}, "crop_area needs crop_size"),
            ({"crop_ratio": [1.0, 2.0]}, "crop_ratio needs crop_area"),
            ({"rotation": 181.0}, "less than or equal to 180"),
            ({"contrast": 1.5}, "less than or equal to 1"),
        ],
    )
    def test_what_is_refused(self, fields, said):
        with pytest.raises(ValueError, match=said):
            TransformationParameter(**fields)

    def test_what_does_not_fit_the_samples(self):
        with pytest.raises(DataError, match="need images"):
            Augment(rotation=1.0).shape((8,))
        with pytest.raises(DataError, match="need 1 or 3 channels, not 4"):
            Augment(contrast=0.1).shape((4, 8, 8))
        with pytest.raises(DataError, match="saturation needs 3 channels"):
            Augment(saturation=0.1).shape((1, 8, 8))
        with pytest.raises(DataError, match=r"sizes of their own: give crop_size.*\[256, 256\]"):
            Augment(resize=(8,)).shape((3, 0, 0))
        with pytest.raises(DataError, match="9×13 is smaller than 10×10: give transform_param resize"):
            Augment(crop=10)(IMAGE, 0, (3, 10, 10))
        with pytest.raises(DataError, match="1×9000 would be longer than 32768"):
            Augment(resize=(8,), crop=8)(np.zeros((3, 1, 9000), np.uint8), 0, (3, 8, 8))

    def test_several_labels_do_not_turn_with_their_sample(self, tmp_path):
        np.savez(tmp_path / "a.npz", x=np.zeros((2, 3, 8, 8), np.uint8), y=np.zeros((2, 8, 8), int))
        data = DataParameter(source=f"{tmp_path}/a.npz", batch_size=2)
        with pytest.raises(DataError, match="resize and rotation move the pixels"):
            shapes(data, TransformationParameter(rotation=3.0), "TRAIN")
        assert shapes(data, TransformationParameter(rotation=3.0), "TEST") == ((3, 8, 8), (8, 8))
