"""Builds of Python that the native module is not for are refused by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sparse_ring.kernels.build import check_build

SAID = (
    "sparse_ring's native module needs a Python with the GIL, but this is free-threaded Python {0}t; "
    "use the ordinary build of Python {0}."
).format(f"{sys.version_info.major}.{sys.version_info.minor}")


def test_free_threaded_python_is_refused() -> None:
    with pytest.raises(ImportError) as error:
        check_build(free_threaded=True)
    assert str(error.value) == SAID
    check_build(free_threaded=False)


def test_refusal_comes_before_the_native_module_is_looked_for() -> None:
    code = (
        "import sys, sysconfig\n"
        "known = sysconfig.get_config_var\n"
        "sysconfig.get_config_var = lambda name: 1 if name == 'Py_GIL_DISABLED' else known(name)\n"
        "sys.modules['sparse_ring._native'] = None\n"
        "import sparse_ring.kernels.table\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stderr.splitlines()[-1] == f"ImportError: {SAID}"
