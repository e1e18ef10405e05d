"""Open files: the soft limit is raised, and some are kept for the server's own needs, however many clients come."""

from __future__ import annotations

import logging
import math
import os
import resource
import time
from contextlib import suppress

log = logging.getLogger("octavo.server")

MOST_DESCRIPTORS = 2**20
"""What to ask for where the hard limit is higher, or none."""
RESERVED = 24
"""Open files that no client gets: a new core process with its pipes and sockets, logs, files of the tokenizer."""
USED_WITHOUT_PROC = 32
LOG_EVERY_S = 60.0


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one; the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # some systems have a lower limit of their own
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return limit()


def limit() -> int:
    """How many files this process may have open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


class ConnectionLimit:
    """How many clients may be connected, judged by the files that are open when it is made."""

    def __init__(self) -> None:
        try:
            used = len(os.listdir("/proc/self/fd"))
        except OSError:
            used = USED_WITHOUT_PROC
        self.most = max(1, limit() - used - RESERVED)
        self._logged_s = -math.inf

    def is_exceeded(self, num_connections: int) -> bool:
        """Whether the last of so many connections is one too many; says so in the log, at most once a minute."""
        if num_connections <= self.most:
            return False
        now_s = time.monotonic()
        if now_s - self._logged_s >= LOG_EVERY_S:
            self._logged_s = now_s
            log.warning(
                "%d clients are connected, and more are turned away with 503: at most %d files may be open. Raise the limit "
                "(ulimit -n, LimitNOFILE, --ulimit nofile)",
                self.most,
                limit(),
            )
        return True
