"""A shop with FastAPI and psycopg: an order and the job that confirms it are one commit.

dibs migrate
uvicorn examples.fastapi_app:web
dibs worker examples.fastapi_app:app
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import psycopg
from fastapi import Depends, FastAPI, HTTPException
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel

import dibs

DSN = os.environ["DIBS_DSN"]
TABLES = """
create table if not exists item (id int primary key, stock int not null check (stock >= 0));
create table if not exists sale (id serial primary key, item int not null, count int not null, confirmed int default 0);
insert into item values (1, 10) on conflict do nothing;
"""

app = dibs.App(DSN, queue="shop")
pool = AsyncConnectionPool(DSN, min_size=1, open=False)


@app.task
async def confirm(sale: int) -> None:
    """Confirm a sale: exactly once, however often it is run."""
    async with dibs.context().transaction() as conn:
        await conn.execute("update sale set confirmed = confirmed + 1 where id = %s", (sale,))


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    await pool.open()
    async with pool.connection() as conn:
        await conn.execute(TABLES)
    yield
    await app.aclose()
    await pool.close()


async def transaction() -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """A connection for one request: committed if the request succeeds, rolled back if it raises."""
    async with pool.connection() as conn:
        yield conn


Transaction = Annotated[psycopg.AsyncConnection[Any], Depends(transaction, scope="function")]
web = FastAPI(lifespan=lifespan)


class NewSale(BaseModel):
    item: int
    count: int


@web.post("/sales", status_code=201)
async def sell(new: NewSale, conn: Transaction) -> dict[str, Any]:
    found = await conn.execute("insert into sale (item, count) values (%s, %s) returning id", (new.item, new.count))
    [sale] = await found.fetchone() or [0]
    job = await confirm.using(conn=conn).aenqueue(sale)
    try:
        await conn.execute("update item set stock = stock - %s where id = %s", (new.count, new.item))
    except psycopg.errors.CheckViolation:
        raise HTTPException(409, "not enough in stock") from None  # no sale, and no job
    return {"sale": sale, "job": str(job.id)}


@web.get("/sales")
async def sales(conn: Transaction) -> dict[int, int]:
    return {sale: confirmed async for sale, confirmed in await conn.execute("select id, confirmed from sale")}
