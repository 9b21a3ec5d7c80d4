"""Which builds of Python the native module is for."""

from __future__ import annotations

import sys
import sysconfig


def check_build(*, free_threaded: bool = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))) -> None:
    """Raise ImportError under a free-threaded Python, which the stable ABI of the native module does not cover.

    ``free_threaded`` is this Python's own build.
    """
    if free_threaded:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise ImportError(
            f"sparse_ring's native module needs a Python with the GIL, but this is free-threaded Python {version}t; "
            f"use the ordinary build of Python {version}."
        )
