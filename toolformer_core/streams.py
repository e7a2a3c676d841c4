"""The standard streams of a program whose caller has closed some of them."""

import os
import sys

_STREAMS = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))


def open_closed_streams() -> None:
    """Open each standard stream that the caller has closed (`>&-`, some schedulers) on the null device.

    Python has None in its place, and the next file that is opened would take its number: what a library or a child
    process prints would then land in that file.
    """
    for number, name, mode in _STREAMS:
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDONLY if mode == "r" else os.O_WRONLY)
            os.set_inheritable(null, True)
            if null != number and not _is_open(number):
                os.dup2(null, number)
                os.close(null)
                null = number
            stream = os.fdopen(null, mode, encoding="utf-8", errors="replace", closefd=False)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
