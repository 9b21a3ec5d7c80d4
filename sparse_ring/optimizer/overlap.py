"""Whether gradients leave from backward's hooks, or all together from ``step()``."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)

# The first step may be special (lazy initialisation, a warm-up pass); the second shows the loop as it is.
WATCHED_STEPS = 2


class Overlap:
    """Watches the first steps of a loop before it lets gradients leave early.

    A gradient that left can't be taken back: error feedback has absorbed it. So loops in which gradients come that no step
    uses (a GAN's generator pass through the discriminator, more backward passes than announced), or that change them before
    the step (a GradScaler, local clipping), keep them until ``step()``.

    wanted
        What the user asked for; False keeps gradients until ``step()``.
    """

    def __init__(self, wanted: bool) -> None:
        self._allowed = wanted
        self._steps = 0

    @property
    def early(self) -> bool:
        """Whether a hook may hand its gradient to the engine."""
        return self._allowed and self._steps >= WATCHED_STEPS

    def step_done(self) -> None:
        """Count an optimizer step."""
        self._steps += 1

    def refuse(self, reason: str) -> None:
        """Keep all gradients until ``step()`` from now on, because of ``reason``."""
        if self._allowed:
            logger.info("Gradients are exchanged in step(), not during backward: %s.", reason)
        self._allowed = False
