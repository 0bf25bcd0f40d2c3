"""The real sender under a fake clock and a fake network, against a model of Kafka's brokers.

* ``setup``, ``actions``, ``broker_actions``: the input of a run; ``draw*`` make it from a seed.
* ``world`` runs it: ``app`` is the application, ``backend``, ``transport``, ``wires`` and
  ``events`` are network and time, ``model/`` the brokers, ``interference`` faults of requests.
* ``wire_watch``, ``sequence_watch``, ``samples`` check the run, ``checks`` the logs at its end.
* ``campaign`` runs many seeds and reduces a failing schedule; ``bugs`` are planted to
  prove that these checks detect them.

``pytest tests/simulation --seeds 1000 --first-seed 5000``; a failure prints what repeats it.
"""

from __future__ import annotations
