"""What tests queue for a sender that they drive by hand has an end."""

from __future__ import annotations

from tests.support.sender_rig import records_end

__all__ = ["records_end"]
