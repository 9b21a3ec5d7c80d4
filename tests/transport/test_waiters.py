"""Threads for blocking waits."""

from __future__ import annotations

import threading

from sparse_ring.transport.torch_distributed.waiters import Waiters


def test_jobs_do_not_queue_behind_one_that_blocks_and_threads_are_used_again() -> None:
    waiters = Waiters("waiter")
    release, ran = threading.Event(), threading.Semaphore(0)
    for _ in range(3):
        waiters.run(lambda: release.wait(60) and ran.release())
    waiters.run(ran.release)
    assert ran.acquire(timeout=60)
    assert len(waiters.threads) == 4
    release.set()
    for _ in range(3):
        assert ran.acquire(timeout=60)
    waiters.close()
    for thread in waiters.threads:
        thread.join(60)
        assert not thread.is_alive()
