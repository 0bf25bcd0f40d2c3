"""Makes the report page, draws docs/plots, and writes the figures into the documentation.

    python -m benchmarks.report                    # build/benchmarks/report.html
    python -m benchmarks.report --output PAGE      # another file
    python -m benchmarks.report --only-page        # leave the documentation as it is

Nothing is measured: everything comes from ``benchmarks/results``.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from benchmarks.report.page import page
from benchmarks.report.plots import PLACE, plot_files
from benchmarks.report.quotes import PAGES, quoted

DEFAULT = Path(__file__).parents[2] / "build" / "benchmarks" / "report.html"


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=DEFAULT)
    parser.add_argument("--only-page", action="store_true", help="leave the documentation alone")
    options = parser.parse_args()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(page())
    print(f"Report: {os.path.relpath(options.output)}")
    if options.only_page:
        return
    PLACE.mkdir(exist_ok=True)
    for name, drawn in plot_files().items():
        (PLACE / name).write_text(drawn)
    print(f"Plots drawn: {os.path.relpath(PLACE)}")
    for file in PAGES:
        before = file.read_text()
        after = quoted(before)
        if after != before:
            file.write_text(after)
            print(f"Figures written: {os.path.relpath(file)}")


if __name__ == "__main__":
    main()
