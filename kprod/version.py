"""The version of kprod, for ``kprod.__version__`` and for requests to brokers."""

from __future__ import annotations

# pyproject.toml has the same version. Reading it from the installation would take 10 ms, to import
# the modules that read metadata.
VERSION = "0.1.0"
