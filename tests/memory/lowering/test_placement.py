"""Placement: every policy's arena on small programs is close to its live peak."""

from __future__ import annotations

import numpy as np
import pytest

from minidnn.memory.planning import arrange
from tests.support.policies import KINDS as POLICIES
from tests.support.programs import PROGRAMS, costs


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_arena_is_at_least_the_live_peak_and_close_to_it(name, policy):
    s = arrange([PROGRAMS[name]()], policy, costs()).schedules["TRAIN"]
    assert s.live_peak == int(np.max(s.curve()))
    assert s.live_peak <= s.arena <= 1.01 * s.live_peak + 256 * len(s.buffers)
