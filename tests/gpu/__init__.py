"""The CUDA twin in numba's simulator: ``make simulated``."""
