"""A shop with SQLAlchemy's ORM, sync and async: an order and the job that confirms it are one commit.

dibs migrate
python -m examples.sqlalchemy_app 1 2
python -m examples.sqlalchemy_app 1 2 --async
dibs worker examples.sqlalchemy_app:app
"""

from __future__ import annotations

import argparse
import asyncio
import os

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import dibs

DSN = os.environ["DIBS_DSN"]
URL = DSN.replace("postgresql://", "postgresql+psycopg://", 1)

app = dibs.App(DSN, queue="shop")
engine = sa.create_engine(URL)


class Base(DeclarativeBase):
    pass


class Item(Base):
    __tablename__ = "item"
    id: Mapped[int] = mapped_column(primary_key=True)
    stock: Mapped[int] = mapped_column(sa.CheckConstraint("stock >= 0"))


class Sale(Base):
    __tablename__ = "sale"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[int] = mapped_column(sa.ForeignKey("item.id"))
    count: Mapped[int]
    confirmed: Mapped[int] = mapped_column(default=0)


@app.task
def confirm(sale: int) -> None:
    """Confirm a sale. It may be run twice when a worker dies, so it does the same the second time."""
    with Session(engine) as session, session.begin():
        session.get_one(Sale, sale).confirmed = 1


def sell(item: int, count: int) -> int:
    with Session(engine) as session, session.begin():
        sale = Sale(item=item, count=count)
        session.add(sale)
        session.flush()  # the database makes the id
        confirm.using(conn=session).enqueue(sale.id)
        session.get_one(Item, item).stock -= count
        return sale.id


async def sell_async(item: int, count: int) -> int:
    async_engine = create_async_engine(URL)
    try:
        async with AsyncSession(async_engine) as session, session.begin():
            sale = Sale(item=item, count=count)
            session.add(sale)
            await session.flush()
            await confirm.using(conn=session).aenqueue(sale.id)
            (await session.get_one(Item, item)).stock -= count
            return sale.id
    finally:
        await app.aclose()
        await async_engine.dispose()


def prepare() -> None:
    """Make the tables, and something to sell."""
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        if session.get(Item, 1) is None:
            session.add(Item(id=1, stock=10))


def main() -> None:
    parser = argparse.ArgumentParser(description="Sell something.")
    parser.add_argument("item", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--async", dest="is_async", action="store_true")
    given = parser.parse_args()
    prepare()
    try:
        sale = asyncio.run(sell_async(given.item, given.count)) if given.is_async else sell(given.item, given.count)
    except IntegrityError:
        raise SystemExit("not enough in stock") from None  # no sale, and no job
    finally:
        app.close()
        engine.dispose()
    print("sold as", sale)


if __name__ == "__main__":
    main()
