"""The real sender under a fake clock and a fake network, against a model of Kafka's brokers.

* ``setup``, ``actions``, ``broker_actions``: what determines a run; ``draw*`` make it of a seed.
* ``world`` runs it in its ``surroundings``: ``app`` sends and listens, ``backend``, ``transport``,
  ``wires`` and ``events`` are the network and its time, ``model/`` the brokers, ``interference``
  what spoils a request.
* ``wire_watch``, ``sequence_watch``, ``samples`` judge while it runs, ``checks`` judges the logs.
* ``campaign`` runs many seeds, ``shrink`` makes a failing schedule small; ``bugs`` are ``planted``
  to see whether all this notices them.

``pytest tests/simulation --seeds 1000 --first-seed 5000``; a failure prints what repeats it.
"""

from __future__ import annotations
