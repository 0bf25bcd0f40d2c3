"""The version of kprod: what ``kprod.__version__`` says, and what brokers are told."""

from __future__ import annotations

# The same stands in pyproject.toml. Asking the installation instead takes 10 ms, for the modules
# that read its metadata.
VERSION = "0.1.0"
