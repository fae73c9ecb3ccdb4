"""The server's cost of a claim that finds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED = {"server_us": ("≤", 300)}
CLAIMS = 3_000


def run(stage: Stage) -> dict[str, float]:
    with stage.connect() as conn:
        stage.fill(conn, 1_000)
        stage.drain(conn)
        conn.execute("select pg_stat_statements_reset()")
        for _ in range(CLAIMS):
            conn.execute("select * from dibs.claim('{q}', 10)")
        spent, calls = stage.server_ms(conn, "%dibs.claim%")
    return {"server_us": spent * 1000 / calls}
