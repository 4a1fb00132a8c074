"""`reproduce accudnn` on a small network under small budgets: what its rows mean, not what the paper says."""

from dataclasses import replace

import pytest

from minidnn_papers import accudnn, accuracy, rows
from minidnn_papers.row import KEEPS


@pytest.fixture(scope="module")
def found():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accudnn, "NETWORK", "resnet18")
        patch.setattr(accudnn, "GIB", 32 * 2**20)
        patch.setattr(accudnn, "FIRST", 8)
        patch.setattr(accudnn, "GRID", 4)
        patch.setattr(accuracy, "TASKS", ())
        accudnn._programs.cache_clear()
        yield list(rows("accudnn"))
    accudnn._programs.cache_clear()


@pytest.mark.slow
def test_every_figure_of_the_abstracts_has_its_row_and_reason(found):
    assert sorted(r.paper for r in found if r.paper is not None) == [1.9, 4.2, 7.7, 8, 24]
    assert all(r.system == "accudnn" and r.reason and r.ours is not None for r in found)


@pytest.mark.slow
def test_memory_rows(found):
    base, lean = (r.ours for r in found if r.quantity == "needs, GiB")
    assert base > 24 and lean <= 8
    (slower,) = (r.ours for r in found if r.quantity.startswith("time over"))
    assert slower >= 1


@pytest.mark.slow
def test_a_larger_batch_synchronises_less_often(found):
    (speed,) = (r.ours for r in found if r.quantity.startswith("speed-up"))
    (gain,) = (r.ours for r in found if r.quantity.startswith("scaling efficiency"))
    over_caffe, over_unmoved = (r.ours for r in found if r.quantity.startswith("efficiency-optimal"))
    assert 1 < speed < 8 and 1 < gain < over_caffe
    assert over_caffe > over_unmoved >= 1


@pytest.mark.slow
def test_accuracy_is_that_of_trainings(monkeypatch):
    monkeypatch.setattr(accuracy, "SEEDS", (1, 2))
    task = replace(accuracy.DIGITS, batches=(32, 128), epochs=3, rate=0.01)
    small, large, kept = accuracy.of_task(task, lambda what: None)
    assert small.paper is large.paper is None and small.ours > 80 and "134 updates, base_lr 0.01" in small.said
    assert "34 updates, base_lr 0.04" in large.said
    assert (kept.figure, kept.quantity, kept.paper) == ("abstract", KEEPS, 1)
    assert kept.ours == float(large.ours >= small.ours - 0.5)
    assert task.accuracy(32, 1) == task.accuracy(32, 1) != task.accuracy(32, 2), "a function of the seed"


def test_made_up_pictures_have_all_classes_and_the_same_ones_each_time():
    x, y = accuracy.pictures(200, 1)
    assert x.shape == (200, 3, 32, 32) and x.dtype == "float32" and set(y) == set(range(10))
    again, _ = accuracy.pictures(200, 1)
    assert (x == again).all() and (accuracy.pictures(200, 2)[0] != x).any()
