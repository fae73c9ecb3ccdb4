"""Which processes are alive, which one leads, and which holds what."""

from dibs.cluster.holding import Holding
from dibs.cluster.leader import Leader
from dibs.cluster.member import Member

__all__ = ["Holding", "Leader", "Member"]
