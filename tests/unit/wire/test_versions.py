from __future__ import annotations

import pytest

from kprod.errors import UnsupportedVersionError
from kprod.wire.versions import ApiKey, ApiVersions


@pytest.mark.parametrize(
    ("theirs", "cap", "picked"),
    [
        ((3, 13), None, 13),
        ((0, 99), None, 13),
        ((0, 8), None, 8),
        ((0, 3), None, 3),
        ((13, 20), None, 13),
        ((3, 13), 12, 12),
        ((3, 13), 99, 13),
    ],
)
def test_the_newest_shared_version_is_picked(
    theirs: tuple[int, int], cap: int | None, picked: int
) -> None:
    assert ApiVersions({ApiKey.PRODUCE: theirs}).pick(ApiKey.PRODUCE, cap) == picked


def test_produce_5_is_passed_over_for_4() -> None:
    """Its responses cannot be read from every broker that offers it."""
    assert ApiVersions({ApiKey.PRODUCE: (0, 5)}).pick(ApiKey.PRODUCE) == 4
    assert ApiVersions({ApiKey.PRODUCE: (0, 13)}).pick(ApiKey.PRODUCE, cap=5) == 4
    assert ApiVersions({ApiKey.METADATA: (0, 5)}).pick(ApiKey.METADATA) == 5
    with pytest.raises(UnsupportedVersionError):
        ApiVersions({ApiKey.PRODUCE: (5, 5)}).pick(ApiKey.PRODUCE)


@pytest.mark.parametrize("theirs", [(0, 2), (14, 20), (9, 3), (-5, -1), (32767, 32767)])
def test_no_shared_version_names_api_and_both_ranges(theirs: tuple[int, int]) -> None:
    with pytest.raises(UnsupportedVersionError) as raised:
        ApiVersions({ApiKey.PRODUCE: theirs}).pick(ApiKey.PRODUCE)
    for part in ("PRODUCE", f"{theirs[0]}-{theirs[1]}", "3-13"):
        assert part in str(raised.value)


def test_a_cap_below_every_shared_version_is_told() -> None:
    with pytest.raises(UnsupportedVersionError, match="at most 4"):
        ApiVersions({ApiKey.PRODUCE: (7, 13)}).pick(ApiKey.PRODUCE, cap=4)


def test_an_api_the_broker_does_not_offer_is_named() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"INIT_PRODUCER_ID.*0-5"):
        ApiVersions({}).pick(ApiKey.INIT_PRODUCER_ID)
