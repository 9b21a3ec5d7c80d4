"""Fixtures of the launcher's tests."""

from tests.launcher.support import starter

__all__ = ["starter"]
