"""For application code: the client and the plain queue, sync and async."""
