"""What there is to compute with."""

import os


def cores() -> int:
    """Those that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # no such thing on macOS and Windows
        return os.cpu_count() or 1
