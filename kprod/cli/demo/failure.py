"""Why the demo cannot go on."""

from __future__ import annotations


class DemoFailure(Exception):
    """Something the user can act on; the text says how."""
