"""The pages of the file map say what the files say."""

from __future__ import annotations

import pytest

from tests.architecture.file_map import PAGES, file_maps


@pytest.mark.parametrize("name", file_maps())
def test_the_file_map_is_up_to_date(name: str) -> None:
    assert (PAGES / name).read_text() == file_maps()[name], "make file-map writes it anew"
