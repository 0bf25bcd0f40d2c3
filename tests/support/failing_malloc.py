"""Whether this Python itself goes on where an allocation fails"""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest

MAKES_FUNCTIONS = """
import _testcapi
for failing in range(20):
    try:
        _testcapi.set_nomemory(failing, failing + 1)
        [lambda: n for n in range(100)]
    except MemoryError:
        pass
    finally:
        _testcapi.remove_mem_hooks()
"""
HAS_THE_DEFECT = {(3, 12), (3, 13)}
"""Of their releases at least 3.12.1, 3.13.0 and 3.13.5; 3.14 is mended."""


@cache
def _crashes() -> bool:
    if sys.version_info[:2] not in HAS_THE_DEFECT:
        return False
    return subprocess.run([sys.executable, "-c", MAKES_FUNCTIONS], check=False).returncode < 0


needs_functions_without_memory = pytest.mark.skipif(
    _crashes(), reason="Python itself crashes here where it has no memory for a function: gh-122752"
)
"""For tests in which kprod's Python code makes functions while allocations fail."""
