"""Fixtures of the launcher's tests."""

from tests.launcher.namespaces import hosts
from tests.launcher.slurm import slurm
from tests.launcher.support import starter

__all__ = ["hosts", "slurm", "starter"]
