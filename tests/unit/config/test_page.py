"""The page of the options in docs is what the table of options says."""

from __future__ import annotations

import re

from kprod.config import OPTIONS
from kprod.config.foreign_options import IGNORED, UNAVAILABLE_FAMILIES, unavailable
from tools.pages.configuration import configuration_page


def test_every_option_says_which_version_brought_it() -> None:
    assert configuration_page().count("\n- since: ") == len(OPTIONS)
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", row.since) for row in OPTIONS.values())


def test_no_option_of_ours_is_also_called_foreign() -> None:
    ours = [name for name in OPTIONS if not name.startswith(tuple(UNAVAILABLE_FAMILIES))]
    assert not [name for name in ours if name in IGNORED or unavailable(name)]
