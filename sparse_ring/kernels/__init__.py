"""The hot loops behind one contract (``base.py``): a readable NumPy twin and the native implementations."""

from sparse_ring.kernels.build import check_build

check_build()
