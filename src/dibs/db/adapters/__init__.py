"""Running calls on connections that are the caller's: psycopg, asyncpg, SQLAlchemy and Django."""
