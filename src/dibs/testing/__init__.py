"""For tests of code that uses dibs: virtual time."""

from dibs.testing.clock import Clock

__all__ = ["Clock"]
