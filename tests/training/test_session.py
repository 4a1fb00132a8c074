"""Sessions at the user's door: what is asked for wrongly is named, and nothing is run for it."""

from __future__ import annotations

import numpy as np
import pytest

import minidnn
from minidnn import L
from minidnn.errors import InvalidInput


class Two(minidnn.Net):
    def define(self):
        a = L.Input(name="a", shape=[{"dim": [4, 3]}])
        b = L.Input(name="b", shape=[{"dim": [4, 3]}])
        L.Eltwise(a, L.InnerProduct(b, num_output=3, name="ip"), name="sum")


@pytest.fixture(scope="module")
def session():
    with minidnn.Session(Two(), phases=("TEST",), device="reference", keep=["ip"]) as opened:
        yield opened


@pytest.mark.parametrize("a, b", [((0, 3), (0, 3)), ((5, 3), (6, 3)), ((), (1, 3))])
def test_inputs_that_are_not_as_many_samples_each(session, a, b):
    with pytest.raises(
        InvalidInput, match=r"the same number of samples for each input, at least one; got a \(.*\), b \("
    ):
        session.forward({"a": np.zeros(a), "b": np.zeros(b)})


def test_lists_of_samples_will_do(session):
    given = {"a": [[1, 2, 3]] * 5, "b": [[0, 0, 0]] * 5, "c": "not asked for"}
    says = session.forward(given)
    assert says["sum"].tolist() == [[1, 2, 3]] * 5 and says["ip"].shape == (5, 3)


def test_keep_is_a_list():
    with pytest.raises(InvalidInput, match=r"use keep=\['ip'\]"):
        minidnn.Session(Two(), phases=("TEST",), device="reference", keep="ip")


def test_a_layer_without_parameters_is_named(session):
    with pytest.raises(KeyError, match=r"no layer with parameters is called 'ip1' \(did you mean 'ip'\?"):
        session.params["ip1"]
    assert "sum" not in session.params and session.params.get("sum") is None
