"""Green threads: a producer cannot run on them, and says so instead of hanging"""

from __future__ import annotations

import sys

from kprod.errors import IllegalStateError

_ADVICE = (
    "%s has replaced Python's threads by green ones, on which a producer would hang: it needs a"
    " thread of its own. %s, or send from a process that is not patched"
)
_GEVENT = "Call gevent.monkey.patch_all(thread=False, queue=False, select=False, socket=False)"
_EVENTLET = "Call eventlet.monkey_patch(os=True, time=True) without thread, select and socket"


def refuse_green_threads() -> None:
    """Raise IllegalStateError where gevent or eventlet has patched the module threading."""
    gevent = sys.modules.get("gevent.monkey")
    if gevent is not None and gevent.is_module_patched("threading"):
        raise IllegalStateError(_ADVICE % ("gevent", _GEVENT))
    eventlet = sys.modules.get("eventlet.patcher")
    if eventlet is not None and eventlet.is_monkey_patched("thread"):
        raise IllegalStateError(_ADVICE % ("eventlet", _EVENTLET))
