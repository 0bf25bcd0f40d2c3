"""The producer against everything that can go wrong; ``COVERAGE.md`` says what is tested where.

``KPROD_CAMPAIGN=long`` runs the campaigns at full size, for minutes each: ``make campaign``.
"""
