"""Forks are detected however they are made, and children have no copies of descriptors."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kprod_ext import Descriptor, Poller, generation
from tests.support.forks import FORKS, by_c, by_python, in_child

pytestmark = pytest.mark.alone  # a thread that asks for the GIL at a fork by C code hangs the child

MANY = 200
"""More descriptors than the initial table has places."""


def opened() -> Descriptor:
    return Descriptor(os.open(os.devnull, os.O_RDONLY))


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


@pytest.mark.parametrize("fork", FORKS)
def test_each_child_has_a_generation_of_its_own(fork: Callable[[], int]) -> None:
    own = generation()

    def child() -> list[int]:
        return [generation(), generation(), int(in_child(fork, generation))]

    assert in_child(fork, child) == str([own + 1, own + 1, own + 2])
    assert generation() == own


@pytest.mark.parametrize("fork", [by_python, by_c])
def test_a_child_has_no_copy_of_a_descriptor(fork: Callable[[], int]) -> None:
    descriptors = [opened() for _ in range(MANY)]
    numbers = [each.fd for each in descriptors]
    assert in_child(fork, lambda: [fd for fd in numbers if is_open(fd)]) == "[]"
    assert all(map(is_open, numbers))
    for each in descriptors:
        each.close()
    assert not any(map(is_open, numbers))


@pytest.mark.parametrize("fork", FORKS)
def test_files_that_a_child_opens_under_an_old_number_are_never_closed(
    fork: Callable[[], int], tmp_path: Path
) -> None:
    """As in a daemon, which closes all inherited files and opens its own."""
    descriptors = [opened() for _ in range(MANY)]
    poller = Poller()
    last = os.dup(0)

    def child() -> list[int]:
        os.closerange(3, last)
        files = [(tmp_path / str(number)).open("w") for number in range(MANY)]
        poller.wake()
        poller.close()
        descriptors[0].close()
        descriptors.clear()
        grandchild = in_child(by_c, lambda: [f.name for f in files if not is_open(f.fileno())])
        assert grandchild == "[]"
        own = opened()
        assert is_open(own.fd)
        return [file.fileno() for file in files if not is_open(file.fileno())]

    assert in_child(fork, child) == "[]"
    assert all(is_open(each.fd) for each in descriptors)
    poller.close()
    os.close(last)


def test_a_closed_number_is_not_closed_again_in_a_child() -> None:
    descriptor = opened()
    number = descriptor.fd
    descriptor.close()
    assert descriptor.fd == -1
    descriptor.close()
    other = os.open(os.devnull, os.O_RDONLY)
    assert other == number
    assert in_child(by_c, lambda: is_open(other)) == "True"
    os.close(other)


@pytest.mark.parametrize("fork", FORKS)
def test_a_child_cannot_wait_at_the_poller_of_the_parent(fork: Callable[[], int]) -> None:
    poller = Poller()
    assert in_child(fork, lambda: poller.wait(0)).startswith("ValueError: the poller belongs to")
    assert poller.wait(0) == []
    poller.close()
