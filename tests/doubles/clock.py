"""Time that a test moves on."""


class Clock:
    """Stands still at `now`; stands for a function that returns the time, and for the module `time`."""

    def __init__(self, now=0.0):
        self.now = now

    def __call__(self):
        return self.now

    monotonic = perf_counter = time = __call__

    def sleep(self, seconds):
        self.now += seconds
