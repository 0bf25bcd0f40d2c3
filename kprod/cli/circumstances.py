"""What a figure depends on: the machine, the options, where the broker is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kprod.config import ProducerConfig

EMBEDDED = "embedded broker: Python, in a process of its own"


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def producer_options(config: ProducerConfig) -> str:
    """Those that decide most about speed."""
    acks = "all" if config.acks == -1 else str(config.acks)
    idempotent = "idempotent" if config.enable_idempotence else "not idempotent"
    return (
        f"acks={acks}, {idempotent}, batch_size={config.batch_size:,},"
        f" linger_ms={config.linger_ms}, compression={config.compression_type or 'none'},"
        f" {config.security_protocol}"
    )


def cpu_seconds(pid: int) -> float:
    """CPU time that another process has used so far, of all its threads; 0 where nobody tells."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return 0.0
    # man proc_pid_stat: 14 and 15 of all, the first two being before the parenthesis.
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
