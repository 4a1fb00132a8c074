"""Each policy has its paper, or is said to be minidnn's own; and what is in a paper's style is called so everywhere."""

from __future__ import annotations

import inspect
import re
from functools import partial

import pytest

from minidnn.cli.help import policies as help_of_policies
from minidnn.memory.policies import CHOOSING, POLICIES, SOME_NETS, names
from minidnn.memory.policies.bibliography import PAPERS, RELATIVES, VARIANTS, paper
from minidnn_papers.papers_page import papers_page
from tests.support.paths import ROOT
from tests.support.policies import ABOUT

SYSTEMS = {name: found for name, found in PAPERS.items() if found.system}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


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
    assert PAPERS["vdnn_all"].short == "vDNN (Rhu et al. 2016)" and PAPERS["sqrt_n"].short == "Chen et al. 2016"
    assert PAPERS["superneurons"].short == "SuperNeurons-style (Wang et al. 2018)"
    assert set(POLICIES) >= {"flashneuron"} and PAPERS["flashneuron"].style


def styles(text: str) -> set[str]:
    """The systems in whose style something is, as the text says."""
    return {found.system for found in SYSTEMS.values() if f"{found.system}-style" in text}


STYLED = {found.system for found in SYSTEMS.values() if found.style}


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_docstring_the_help_and_the_page_of_papers_call_a_policy_what_the_table_does(name):
    found = SYSTEMS[name]
    decide = (POLICIES | CHOOSING)[name]
    while isinstance(decide, partial):
        decide = decide.func
    told = re.sub(r"\s+", " ", inspect.getmodule(decide).__doc__)
    assert (found.called if found.style else found.system) in told
    assert re.search(rf"\b{name}\b[^;]*: {re.escape(found.short)}(;|$)", help_of_policies(10_000, ""), re.M)
    assert f"**`{name}`**, {found.called}: " in papers_page()


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_table_s_row_of_a_policy_calls_it_what_the_table_of_papers_does(name):
    lines = [line for page in PAGES for line in page.read_text().splitlines()]
    rows = [row for row in lines if re.match(rf"\|[^|]*`{name}`[^|]*\|[^|]*\|$", row)]  # the name, and what it does
    assert rows
    for row in rows:
        others = [paper(n) for n in re.findall(r"`(\w+)`", row.split("|")[1])]
        assert styles(row) == {other.system for other in others if other.style}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_page_calls_a_system_style_that_is_not(page):
    assert styles(page.read_text()) <= STYLED


def test_relatives_are_no_systems_that_a_policy_follows():
    told = {r.system for r in RELATIVES}
    assert len(told) == len(RELATIVES) and not told & {found.system for found in PAPERS.values()}
    assert all(name in names() for r in RELATIVES for name in re.findall(r"`([a-z_0-9]+)`", r.here))
