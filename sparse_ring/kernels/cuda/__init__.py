"""The kernels in Numba CUDA; nothing here is imported unless it is asked for, as it needs numba."""
