"""Who is alive, who of them leads, and who pulls from what."""

from dibs.cluster.leader import Leader
from dibs.cluster.member import Member
from dibs.cluster.pulling import Pulling

__all__ = ["Leader", "Member", "Pulling"]
