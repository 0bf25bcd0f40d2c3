"""Producer ids are never given twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from kprod.broker.log.checkpoint_files import StorageError
from kprod.broker.transactions.transaction import ProducerIds


def test_ids_go_on_and_never_come_back(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    first = [ProducerIds(path).take() for _ in range(3)]
    assert first == [0, 1000, 2000]
    ids = ProducerIds(path)
    many = [ids.take() for _ in range(2500)]
    assert many == list(range(3000, 5500))
    assert ProducerIds(path).take() == 6000


@pytest.mark.parametrize("content", ["", "1\n5\n", "0\n", "0\n-3\n", "0\nx\n"])
def test_a_file_it_did_not_write_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "ids"
    path.write_text(content)
    with pytest.raises(StorageError):
        ProducerIds(path)
