"""The pages of the file map say what the files say."""

from __future__ import annotations

from tests.architecture.file_map import PAGES, file_maps


def test_the_file_map_is_up_to_date() -> None:
    for name, page in file_maps().items():
        assert (PAGES / name).read_text() == page, "make file-map writes it anew"
