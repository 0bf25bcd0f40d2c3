"""Every error of the face, under the names of ``kafka.errors``"""

from __future__ import annotations

from kprod.kafka.broker_errors import *  # noqa: F403
from kprod.kafka.error_base import *  # noqa: F403
