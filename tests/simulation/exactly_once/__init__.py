"""The real sender's transactions, byte by byte, against embedded brokers in simulated time.

* ``setup``, ``plan``, ``draw``: what determines a run.
* ``world`` runs it: ``application`` follows its plans with the producer's own calls; ``brokers``
  are those that kprod ships, with the network, the timers and the failures of the simulation.
* ``checks``: readers of committed records during the run, and checks at its end; ``bugs`` are
  planted to prove that they detect them.

``pytest tests/simulation/exactly_once --seeds 100000`` for very many.
"""

from __future__ import annotations
