"""Who is alive: the registry of workers."""
