"""The native kernels, from the module in ``native/``: thin, checked calls."""
