"""Does it train as well, in how many bytes, in how many steps; ``python -m benchmarks.convergence``."""
