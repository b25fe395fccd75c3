"""The learning rate of a stage: it rises, stays, and falls.

A constant rate that falls in the end alone learns as much as one that falls all the time (Hu et al. 2024, "MiniCPM",
section 4: warm-up, stable, decay).
"""

import math
from typing import Any

import keras
from keras import ops


class RiseStayFall(keras.optimizers.schedules.LearningRateSchedule):
    """A straight line from 0 to ``peak`` in ``rising`` steps, ``peak``, and half a cosine to ``end`` in ``falling``."""

    def __init__(self, peak: float, end: float, steps: int, rising: int, falling: int) -> None:
        self.peak, self.end, self.steps, self.rising, self.falling = peak, end, steps, rising, falling

    def __call__(self, step: Any) -> Any:
        step = ops.cast(step, "float32")
        fallen = ops.clip((step - (self.steps - self.falling)) / self.falling, 0.0, 1.0)
        rate = self.end + (self.peak - self.end) * (1.0 + ops.cos(math.pi * fallen)) / 2.0
        return ops.where(step < self.rising, self.peak * step / max(1, self.rising), rate)

    def get_config(self) -> dict[str, Any]:
        return dict(vars(self))
