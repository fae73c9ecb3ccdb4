"""Who is alive: the registry of workers."""

from dibs.cluster.member import Member

__all__ = ["Member"]
