"""`reproduce accudnn` on a small network under small budgets: what its rows mean, not what the paper says."""

import pytest

from minidnn_papers import accudnn, rows


@pytest.fixture(scope="module")
def found():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accudnn, "NETWORK", "resnet18")
        patch.setattr(accudnn, "GIB", 32 * 2**20)
        patch.setattr(accudnn, "FIRST", 8)
        patch.setattr(accudnn, "GRID", 4)
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
