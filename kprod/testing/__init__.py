"""A producer for tests of applications. It keeps its records instead of sending them."""

from __future__ import annotations

from kprod.testing.recording_producer import RecordedRecord, RecordingProducer

__all__ = ["RecordedRecord", "RecordingProducer"]
