"""The hot loops behind one contract (``base.py``): a readable NumPy twin and the native implementations."""
