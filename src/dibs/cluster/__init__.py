"""Who is alive, and who of them leads."""

from dibs.cluster.leader import Leader
from dibs.cluster.member import Member

__all__ = ["Leader", "Member"]
