"""How the engine's thread waits for other ranks: it looks, sleeps a little, looks again, and takes no core for it."""

from __future__ import annotations

import ctypes
import os
import sys
import time

SPINS = 8
SHORTEST_SLEEP_SECONDS = 20e-6
LONGEST_SLEEP_SECONDS = 500e-6
# While the training thread computes, an eighth of what was waited; while it waits too, nobody else needs this core.
PATIENT_PART, HURRIED_PART = 8, 32
YIELDING_SECONDS = 200e-6

TIMER_SLACK_NANOSECONDS = 1000
_PR_SET_TIMERSLACK = 29


def pause_seconds(waited_seconds: float, hurry: bool = False) -> float:
    """Return how long a wait sleeps next: a part of what it has waited, from 20 to 500 us; 0: give way to others only."""
    if hurry and waited_seconds < YIELDING_SECONDS:
        return 0.0
    part = HURRIED_PART if hurry else PATIENT_PART
    return min(max(waited_seconds / part, SHORTEST_SLEEP_SECONDS), LONGEST_SLEEP_SECONDS)


def pause(waited_seconds: float, hurry: bool) -> None:
    """Sleep between two looks. ``hurry``: a caller waits for the outcome and does nothing else."""
    seconds = pause_seconds(waited_seconds, hurry)
    if seconds:
        time.sleep(seconds)
    else:
        os.sched_yield()


def sleep_precisely() -> None:
    """Let this thread's sleeps end on time: Linux may prolong each by 50 us, more than most of them are long."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(TIMER_SLACK_NANOSECONDS), 0, 0, 0)
