"""The real sender's transactions, byte by byte, against embedded brokers in simulated time.

* ``setup``, ``plan``, ``draw``: what determines a run.
* ``world`` runs it: ``application`` follows its plans with the producer's own calls; ``brokers``
  are those that kprod ships, with the network, the timers and the failures of the simulation.
* ``judge``: readers look at what is committed meanwhile, a judge at the end; ``bugs`` are planted
  to see whether they notice.

``pytest tests/simulation/exactly_once --seeds 100000`` for very many.
"""

from __future__ import annotations
