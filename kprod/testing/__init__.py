"""For the tests of applications: a producer that keeps its records instead of sending them"""

from __future__ import annotations

from kprod.testing.recording_producer import RecordedRecord, RecordingProducer

__all__ = ["RecordedRecord", "RecordingProducer"]
