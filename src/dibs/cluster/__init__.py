"""Who is alive, who of them leads, and who pulls from what."""

from dibs.cluster.holding import Holding
from dibs.cluster.leader import Leader
from dibs.cluster.member import Member

__all__ = ["Holding", "Leader", "Member"]
