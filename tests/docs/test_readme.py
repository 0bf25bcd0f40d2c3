"""What ``make docs`` does not see of the pages outside of ``docs``."""

from __future__ import annotations

import re
import runpy
import tomllib

import pytest

from tests.architecture.sources import ROOT

README = (ROOT / "README.md").read_text()
LINK = re.compile(r"\]\(([^()\s#:]+)(?:#[^()\s]*)?\)")
"""A link to a file of the checkout: what has a colon leads elsewhere."""


def test_the_extras_that_are_installed_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"pip install '[./a-z]*kprod\[([a-z,]+)\]'", README)
    assert named
    for extra in ",".join(named).split(","):
        assert extra in extras["optional-dependencies"]


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md"]
)
def test_links_lead_to_files(name: str) -> None:
    page = ROOT / name
    assert not [to for to in LINK.findall(page.read_text()) if not (page.parent / to).exists()]


def test_a_package_index_gets_links_that_lead_to_the_repository() -> None:
    setup = runpy.run_path(str(ROOT / "setup.py"))
    there = "https://example.org/kprod"
    page = setup["with_absolute_links"](README, there, "v1")
    links = re.findall(r"\]\(([^()\s]+)\)", page)
    assert f"{there}/raw/v1/docs/plots/throughput.svg" in links
    assert f"{there}/blob/v1/docs/guarantees.md" in links
    assert all(link.startswith((f"{there}/", "#")) for link in links)
