"""Whether this Python itself goes on where an allocation fails"""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest

FORGETS_A_REFERENCE = """
import sys
import _testcapi

def make():
    return lambda: None

code = next(each for each in make.__code__.co_consts if hasattr(each, "co_code"))
before = sys.getrefcount(code)
try:
    _testcapi.set_nomemory(0, 1)
    make()
except MemoryError:
    pass
finally:
    _testcapi.remove_mem_hooks()
sys.exit(sys.getrefcount(code) < before)
"""
HAS_THE_DEFECT = {(3, 12), (3, 13)}
"""Of their releases at least 3.12.1, 3.13.0 and 3.13.5; 3.14 is mended."""


@cache
def _crashes() -> bool:
    """A function without memory costs its code a reference; at the last one Python crashes."""
    if sys.version_info[:2] not in HAS_THE_DEFECT:
        return False
    return subprocess.run([sys.executable, "-c", FORGETS_A_REFERENCE], check=False).returncode != 0


needs_functions_without_memory = pytest.mark.skipif(
    _crashes(), reason="Python itself crashes here where it has no memory for a function: gh-122752"
)
"""For tests in which kprod's Python code makes functions while allocations fail."""
