"""Process 1 of a container: a small parent that passes signals on and reaps, so that the command is an ordinary process.

The kernel gives process 1 only the signals for which it has handlers, so that an early SIGTERM would be lost; and it gives it
every orphan of the container, to be reaped.
"""

from __future__ import annotations

import os
import signal

_SIGNALS = {
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCHLD,
}
_SI_KERNEL = 0x80
"""si_code of a signal from the terminal, which every process in front of it gets by itself."""


def leave_process_one() -> None:
    """In process 1, return in a child of it; process 1 itself ends with the child's exit code. Elsewhere return at once."""
    if os.getpid() != 1:
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        child = os.fork()
    except OSError:
        child = 0  # no process is left for a child: serve as process 1
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        return
    os._exit(_attend(child))


def _attend(child: int) -> int:
    """Pass signals on and reap until the child has ended; its exit code, 128 and more for a signal."""
    while True:
        info = signal.sigwaitinfo(_SIGNALS)
        if info.si_signo != signal.SIGCHLD:
            if info.si_code != _SI_KERNEL:
                os.kill(child, info.si_signo)
            continue
        for pid, status in _ended():
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code


def _ended() -> list[tuple[int, int]]:
    """(pid, status) of all processes that have ended and are reaped now."""
    found = []
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
            found.append(ended)
    except ChildProcessError:
        pass
    return found
