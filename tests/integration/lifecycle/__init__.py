"""Producers with threads, signals, other processes and at exit.

``KPROD_CAMPAIGN=long`` runs larger tests, for minutes. Modules without ``test_`` in their names are
programs that the tests run as processes.
"""
