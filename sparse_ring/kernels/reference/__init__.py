"""The kernels in NumPy: written for reading, the oracle of all others."""
