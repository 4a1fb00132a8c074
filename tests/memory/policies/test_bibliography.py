"""Each policy has its paper, or is said to be minidnn's own."""

from __future__ import annotations

from minidnn.memory.policies import POLICIES, SOME_NETS, names
from minidnn.memory.policies.bibliography import PAPERS, VARIANTS, paper
from tests.support.policies import ABOUT


def test_every_policy_has_an_entry_and_nothing_else_has():
    """What a merge lacks shows here: a main policy goes to PAPERS, a variant of one to VARIANTS."""
    assert sorted([*PAPERS, *VARIANTS]) == sorted(names())
    assert set(VARIANTS.values()) <= set(PAPERS) and set(ABOUT) == SOME_NETS


def test_a_paper_is_whole_and_a_policy_of_minidnn_s_own_says_what_it_does():
    for name, found in PAPERS.items():
        if found.authors:
            assert found.venue and found.year and 2015 < found.year < 2027 and found.section and found.silent, name
        else:
            assert found.title.startswith("minidnn's own: ") and found.short == "minidnn", name
        assert all(sentence.endswith(".") for sentence in found.silent), name


def test_a_paper_is_found_by_any_name_of_the_policy_and_told_in_a_few_words():
    assert paper("vdnn_conv:p") is paper("vdnn_all@4") is PAPERS["vdnn_all"] and paper("mine.plan") is None
    assert PAPERS["vdnn_all"].short == "Rhu et al., MICRO 2016"
    assert set(POLICIES) >= {"flashneuron"} and PAPERS["flashneuron"].style
