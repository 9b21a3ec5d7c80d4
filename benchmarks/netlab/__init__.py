"""Several hosts on one machine: network namespaces on a bridge, each behind a link as slow as you say.

    python -m benchmarks.netlab --hosts 4 --rate 100mbit -- python examples/digits.py --recipe gradsa

From Python::

    with Lab(hosts=4, rate="100mbit") as lab:
        result = lab.run(["python", "train.py"], starter="mpi")
        lab.set_rate("1gbit")

docs/network-lab.md is the page for users; ``python -m benchmarks.netlab.check`` measures what the links carry.
"""

from benchmarks.netlab.counters import Traffic
from benchmarks.netlab.lab import Lab, missing
from benchmarks.netlab.namespaces import LabError
from benchmarks.netlab.start import Result

__all__ = ["Lab", "LabError", "Result", "Traffic", "missing"]
