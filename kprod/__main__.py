"""``python -m kprod`` runs the ``kprod`` command, even if its script is not on the path."""

from __future__ import annotations

from kprod.cli import main

if __name__ == "__main__":
    main()
