"""The octavo command, and `python -m octavo`: fit for any environment before the rest of octavo is imported."""

from __future__ import annotations

import signal
import sys
from importlib import import_module


def main() -> None:
    """Run the command line and exit with its code.

    The first lines come before all other imports: from then on no signal is lost, and Ctrl-C ends imports without a traceback.
    """
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    import_module("octavo.cli.pid_one").leave_process_one()
    # Whoever started this process may have blocked signals, which is inherited.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
    streams = import_module("octavo.streams")
    streams.open_missing_streams()
    streams.hold_any_text()
    command = import_module("octavo.cli.main")
    signal.signal(signal.SIGINT, handler)
    try:
        command.main()
    finally:
        if handler is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the working folder: a user's random.py there is not ours
    main()
