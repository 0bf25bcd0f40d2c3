"""Imports kio, or says how to install it. The broker imports this module first."""

from __future__ import annotations

import datetime
import sys
from importlib.util import find_spec

if find_spec("kio") is None:
    raise ModuleNotFoundError(
        "the embedded broker needs kio: pip install 'kprod[broker]'", name="kio"
    )

# kio derives a class from ``datetime``. While freezegun freezes time, its own class is in that
# place, and its metaclass conflicts with kio's: kio is imported with the class beneath it.
_in_place = datetime.datetime
_beneath = next(kind for kind in _in_place.__mro__ if type(kind) is type)
datetime.datetime = _beneath  # type: ignore[assignment, misc]
# kio imports Hypothesis where it is installed, to register its types: half a second for each
# process of a test suite that starts a broker. Where nobody has imported it, it is not there.
_not_imported = "hypothesis" not in sys.modules
if _not_imported:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
try:
    import kio.static.primitive  # noqa: F401
finally:
    datetime.datetime = _in_place  # type: ignore[misc]
    if _not_imported:
        del sys.modules["hypothesis"]
