"""Where the CPU time goes: samples become shares, by thread and kind of work."""

from __future__ import annotations

import pytest

from benchmarks.profiles.kinds import KINDS, kind
from benchmarks.profiles.profiled_turn import shares
from benchmarks.profiles.sampling import parsed
from benchmarks.profiles.tables import HEAD, rows


@pytest.mark.parametrize(
    ("library", "expected"),
    [
        ("/venv/kprod_ext/send.cpython-311-x86_64-linux-gnu.so", "records"),
        ("/lib/x86_64-linux-gnu/libc.so.6", "records"),
        ("/venv/crc32c/_crc32c.cpython-311-x86_64-linux-gnu.so", "checksum"),
        ("/venv/lz4/block/_block.cpython-311-x86_64-linux-gnu.so", "codec"),
        ("/venv/zstandard/backend_c.cpython-311-x86_64-linux-gnu.so", "codec"),
        ("/venv/kprod/sender/loop.cpython-311-x86_64-linux-gnu.so", "engine"),
        ("/venv/kprod_ext/network.cpython-311-x86_64-linux-gnu.so", "engine"),
        ("/usr/lib/libpython3.11.so.1.0", "interpreter"),
        ("/usr/bin/python3.12", "interpreter"),
        ("[kernel.kallsyms]", "system"),
        ("[vdso]", "system"),
        ("/lib/x86_64-linux-gnu/libstdc++.so.6", "other"),
    ],
)
def test_a_library_tells_the_kind_of_work(library: str, expected: str) -> None:
    assert kind(library) == expected
    assert expected in KINDS


WRITTEN = """\
    840  7f3a10 __pyx_f_take_values+0x1b (/venv/kprod_ext/bulk.cpython-311.so)
    843  ffffffff81 _copy_from_iter+0x40 ([kernel.kallsyms])
    843  7f3a11 operator new(unsigned long)+0x2 (/lib/libstdc++.so.6)

    843  7f3a12 [unknown] ([unknown])
perf: something else
"""


def test_every_sample_counts_once() -> None:
    found = list(parsed(WRITTEN.splitlines()))
    assert found == [
        (840, "/venv/kprod_ext/bulk.cpython-311.so"),
        (843, "[kernel.kallsyms]"),
        (843, "/lib/libstdc++.so.6"),
        (843, "[unknown]"),
    ]
    by_thread = shares(found, caller=840)
    assert by_thread["caller"]["records"] == by_thread["sender"]["system"] == 0.25
    assert by_thread["sender"]["other"] == 0.5
    assert sum(sum(kinds.values()) for kinds in by_thread.values()) == 1


def test_no_samples_are_no_shares() -> None:
    assert not any(shares([], caller=1)["caller"].values())


def test_a_row_for_each_thread_that_did_something() -> None:
    threads = {"caller": {"records": 12.34, "engine": 0.01}, "sender": {"system": 0.0}}
    profile = {"wall": {"wall": 1234.5}, **threads, "receiver": {"system": 3.0}}
    first, second = rows({"bulk: it": profile})
    assert len(first) == len(HEAD)
    assert first[:3] == ["bulk: it", "caller", "12"]
    assert second[:2] == ["", "receiver"]
    assert (first[-1], second[-2:]) == ("", ["3.0", "1,234"])
