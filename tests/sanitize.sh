#!/bin/sh
# Runs what reaches the native core under AddressSanitizer and UndefinedBehaviorSanitizer: see `make sanitize`, which sets PYTHON,
# PYTHONPATH and PRELOAD. The tools need more address space than the file fuzz allows, so that it must know of them. SIGBUS is the
# core's own: a file that is cut short raises it. The tools look for the throw of the C++ library when they start, so that it is
# preloaded behind them. What they report goes to the descriptor of stderr, which pytest must leave alone.
set -e
export ASAN_OPTIONS=detect_leaks=0:handle_sigbus=0 UBSAN_OPTIONS=print_stacktrace=1 FUZZ_SANITIZED=1 PYTHONDONTWRITEBYTECODE=1
run() { LD_PRELOAD="$PRELOAD" "$PYTHON" "$@"; }
run -c 'from octavo import _native; assert "sanitize" in _native.__file__, _native.__file__'
run -m pytest -p no:cacheprovider --capture=sys tests/unit/loader/test_mapped_file.py tests/ops
run -m tests.fuzz.files --gguf 100 --folders 100
