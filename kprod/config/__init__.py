"""The producer's options: one table, and the validated configuration made from it."""

from __future__ import annotations

from kprod.config.option import Option
from kprod.config.producer_config import ProducerConfig
from kprod.config.table import OPTIONS

__all__ = ["OPTIONS", "Option", "ProducerConfig"]
