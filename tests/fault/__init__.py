"""Failures of brokers, networks and processes; ``COVERAGE.md`` lists the tests of each.

``make campaign`` runs them at full size (``KPROD_CAMPAIGN=long``), for minutes each.
"""
