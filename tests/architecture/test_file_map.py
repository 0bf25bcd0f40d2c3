"""The page with the file map says what the files say."""

from __future__ import annotations

from tests.architecture.file_map import PAGE, file_map


def test_the_file_map_is_up_to_date() -> None:
    assert PAGE.read_text() == file_map(), "make file-map writes it anew"
