"""The limit of open files of a broker's process."""

from __future__ import annotations

import resource


def allow_many_files() -> None:
    """Raise the limit of open files to the maximum that the system allows this process.

    Each segment needs up to five descriptors, and each client one.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
