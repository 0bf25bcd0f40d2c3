"""A producer's life with everything else that lives: threads, signals, other processes, the end.

``KPROD_CAMPAIGN=long`` runs the tests at the size of a campaign, which takes minutes; the modules
without ``test_`` in their names are programs that tests, or you, run as processes of their own.
"""
