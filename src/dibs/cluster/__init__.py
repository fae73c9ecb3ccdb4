"""Which processes are alive, and which holds what."""

from dibs.cluster.holding import Holding
from dibs.cluster.member import Member

__all__ = ["Holding", "Member"]
