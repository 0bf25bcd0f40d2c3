"""The ``kprod`` command, with which users try kprod out, and work with a cluster."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command line, and end the process with the command's exit code."""
    missing = [name for name in ("typer", "rich") if find_spec(name) is None]
    if missing and sys.argv[1:2] == ["errors"]:  # tracebacks mention it: it needs no extra
        sys.exit(_print_pages(sys.argv[2:]))
    if missing:
        sys.exit(f"the kprod command needs {' and '.join(missing)}: pip install 'kprod[cli]'")
    from kprod.cli.app import app

    try:
        app(prog_name="kprod")
    except ModuleNotFoundError as error:
        if error.name != "kio":
            raise
        sys.exit(f"kprod: {error}")
    except OSError as error:  # the output cannot be written: a full disk
        sys.exit(f"kprod: {error}")


def _print_pages(wanted: list[str]) -> str | None:
    """Return an error message for invalid arguments, else None."""
    from kprod.cli.error_pages import error_pages

    try:
        print(error_pages(wanted))
    except LookupError as unknown:
        return f"kprod errors: {unknown.args[0]}"
    return None
