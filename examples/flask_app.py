"""A shop with Flask and psycopg: an order and the job that confirms it are one commit.

dibs migrate
flask --app examples.flask_app run
dibs worker examples.flask_app:app
"""

from __future__ import annotations

import os
from typing import Any

import psycopg
from flask import Flask, request
from psycopg_pool import ConnectionPool

import dibs

DSN = os.environ["DIBS_DSN"]
TABLES = """
create table if not exists item (id int primary key, stock int not null check (stock >= 0));
create table if not exists sale (id serial primary key, item int not null, count int not null, confirmed int default 0);
insert into item values (1, 10) on conflict do nothing;
"""

app = dibs.App(DSN, queue="shop")
pool = ConnectionPool(DSN, min_size=1, open=False)


@app.task
def confirm(sale: int) -> None:
    """Confirm a sale: exactly once, however often it is run."""
    with dibs.context().transaction() as conn:
        conn.execute("update sale set confirmed = confirmed + 1 where id = %s", (sale,))


def sell() -> tuple[dict[str, Any], int]:
    new = request.get_json()
    try:
        # Committed at the end of the block; rolled back, the job with it, if the block raises.
        with pool.connection() as conn:
            found = conn.execute(
                "insert into sale (item, count) values (%s, %s) returning id", (new["item"], new["count"])
            )
            [sale] = found.fetchone() or [0]
            job = confirm.using(conn=conn).enqueue(sale)
            conn.execute("update item set stock = stock - %s where id = %s", (new["count"], new["item"]))
    except psycopg.errors.CheckViolation:
        return {"detail": "not enough in stock"}, 409
    return {"sale": sale, "job": str(job.id)}, 201


def sales() -> dict[str, Any]:
    with pool.connection() as conn:
        return dict(conn.execute("select id::text, confirmed from sale").fetchall())


def create_app() -> Flask:
    """Make the app for `flask run`: a worker imports this module too, and needs neither the tables nor the pool."""
    pool.open()
    with pool.connection() as conn:
        conn.execute(TABLES)
    web = Flask(__name__)
    web.add_url_rule("/sales", view_func=sell, methods=["POST"])
    web.add_url_rule("/sales", view_func=sales)
    return web
