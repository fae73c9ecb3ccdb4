"""A shop with Django, in one file: an order and the job that confirms it are one commit.

dibs migrate
python -m examples.django_app runserver
dibs worker examples.django_app:app
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

import dibs

if TYPE_CHECKING:
    from collections.abc import Callable

DSN = os.environ["DIBS_DSN"]
place = conninfo_to_dict(DSN)

# A project has these in its settings.py.
settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="only for this example",
    USE_TZ=True,
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": place["dbname"],
            "HOST": place.get("host", ""),
            "PORT": place.get("port", ""),
            "USER": place.get("user", ""),
            "PASSWORD": place.get("password", ""),
        }
    },
)
django.setup()

from django.core.management import execute_from_command_line  # noqa: E402
from django.db import IntegrityError, close_old_connections, connection, models, transaction  # noqa: E402
from django.http import HttpRequest, JsonResponse  # noqa: E402
from django.urls import path  # noqa: E402

app = dibs.App(DSN, queue="shop")


class Item(models.Model):  # type: ignore[misc]
    stock = models.IntegerField()

    class Meta:
        app_label = "shop"
        constraints = (models.CheckConstraint(condition=models.Q(stock__gte=0), name="item_stock_check"),)


class Sale(models.Model):  # type: ignore[misc]
    item = models.ForeignKey(Item, models.PROTECT)
    count = models.IntegerField()
    confirmed = models.IntegerField(default=0)

    class Meta:
        app_label = "shop"


class Connections(dibs.Middleware):
    """Django closes its connections after a request when they are old or broken. A job is such a request."""

    def run(self, context: dibs.Context, proceed: Callable[[], Any]) -> Any:
        close_old_connections()
        try:
            return proceed()
        finally:
            close_old_connections()


app.add_middleware(Connections())


@app.task
def confirm(sale: int) -> None:
    """Confirm a sale. It may be run twice when a worker dies, so it does the same the second time."""
    Sale.objects.filter(id=sale).update(confirmed=1)


def sales(request: HttpRequest) -> JsonResponse:
    if request.method == "GET":
        return JsonResponse(dict(Sale.objects.values_list("id", "confirmed")))
    new = json.loads(request.body)
    try:
        with transaction.atomic():
            sale = Sale.objects.create(item_id=new["item"], count=new["count"])
            job = confirm.using(conn=connection).enqueue(sale.id)
            Item.objects.filter(id=new["item"]).update(stock=models.F("stock") - new["count"])
    except IntegrityError:
        return JsonResponse({"detail": "not enough in stock"}, status=409)  # no sale, and no job
    return JsonResponse({"sale": sale.id, "job": str(job.id)}, status=201)


urlpatterns = [path("sales", sales)]


def prepare() -> None:
    """Make the tables. A project has migrations for that."""
    if "shop_item" not in connection.introspection.table_names():
        with connection.schema_editor() as editor:
            editor.create_model(Item)
            editor.create_model(Sale)
        Item.objects.create(id=1, stock=10)


if __name__ == "__main__":
    prepare()
    execute_from_command_line(sys.argv)
