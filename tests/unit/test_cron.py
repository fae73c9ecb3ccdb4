"""Cron expressions over both changes of the clock, by the rules in docs/use/schedules.md."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import dibs
from dibs.cron import Cron
from tests.walls import expected_slots

pytestmark = pytest.mark.once


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def slots(cron: str, zone: str, after: str, count: int) -> list[str]:
    return [f"{slot:%m-%d %H:%M}" for slot in Cron(cron, zone).upcoming(at(after), count)]


def test_a_fixed_time_that_is_jumped_over_happens_at_the_jump() -> None:
    # Berlin, 31 March 2030: 02:00 becomes 03:00, at 01:00 UTC.
    assert slots("30 2 * * *", "Europe/Berlin", "2030-03-30", 3) == ["03-30 01:30", "03-31 01:00", "04-01 00:30"]
    # Two times in the gap are one moment, and so is the time the gap ends at.
    assert slots("0,30 2,3 * * *", "Europe/Berlin", "2030-03-31", 2) == ["03-31 01:00", "03-31 01:30"]
    # Lord Howe jumps by half an hour: 6 October 2030, 02:00 becomes 02:30, at 15:30 UTC of the 5th.
    assert slots("15 2 * * *", "Australia/Lord_Howe", "2030-10-05", 2) == ["10-05 15:30", "10-06 15:15"]


def test_a_fixed_time_that_comes_twice_happens_the_first_time() -> None:
    # Berlin, 27 October 2030: 03:00 becomes 02:00, at 01:00 UTC.
    assert slots("30 2 * * *", "Europe/Berlin", "2030-10-26T12:00", 2) == ["10-27 00:30", "10-28 01:30"]
    # Asked in the second of the two hours, the next one is tomorrow's.
    assert slots("30 2 * * *", "Europe/Berlin", "2030-10-27T01:10", 1) == ["10-28 01:30"]
    assert slots("45 1 * * *", "Australia/Lord_Howe", "2030-04-06", 2) == ["04-06 14:45", "04-07 15:15"]


def test_a_wildcard_follows_the_wall_clock() -> None:
    assert slots("*/30 * * * *", "Europe/Berlin", "2030-03-31T00:15", 3) == [
        "03-31 00:30",
        "03-31 01:00",
        "03-31 01:30",
    ]
    # In the gap there is no 02:xx; in the overlap there is one twice.
    assert slots("*/30 2 * * *", "Europe/Berlin", "2030-03-30T12:00", 2) == ["04-01 00:00", "04-01 00:30"]
    assert slots("*/30 2 * * *", "Europe/Berlin", "2030-10-26T12:00", 4) == [
        "10-27 00:00", "10-27 00:30", "10-27 01:00", "10-27 01:30",
    ]  # fmt: skip
    assert slots("30 * * * *", "America/New_York", "2030-11-03T05:00", 3) == [
        "11-03 05:30",
        "11-03 06:30",
        "11-03 07:30",
    ]
    # Half an hour is repeated: 01:30 to 02:00 of Lord Howe comes twice, and 02:00 is half an hour late.
    assert slots("*/15 1-2 * * *", "Australia/Lord_Howe", "2030-04-06T14:35", 5) == [
        "04-06 14:45", "04-06 15:00", "04-06 15:15", "04-06 15:30", "04-06 15:45",
    ]  # fmt: skip


def test_seconds_follow_the_same_rules() -> None:
    assert slots("0 30 2 * * *", "Europe/Berlin", "2030-03-31", 1) == ["03-31 01:00"]
    every_ten = Cron("*/10 * * * * *").upcoming(at("2030-01-01T00:00:05"), 2)
    assert every_ten == [at("2030-01-01T00:00:10"), at("2030-01-01T00:00:20")]
    assert Cron("@hourly").upcoming(at("2030-01-01T00:30"), 1) == [at("2030-01-01T01:00")]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"])
@pytest.mark.parametrize("months", [("2030-03-01", "2030-04-15"), ("2030-09-25", "2030-11-10")])
@pytest.mark.parametrize("cron", ["30 2 * * *", "15,45 1-3 * * *", "15 */3 * * *", "*/15 1,2,3 * * *"])
def test_both_changes_agree_with_a_walk_over_the_walls_clock(zone: str, cron: str, months: tuple[str, str]) -> None:
    start, end = map(at, months)
    found = Cron(cron, zone)
    every = found.due(start - timedelta(seconds=1), end - timedelta(seconds=1), 100_000)
    assert every == expected_slots(cron, zone, start, end)
    # From wherever one starts, the next slot is the same.
    for hours in range(0, 44 * 24, 7):
        after = start + timedelta(hours=hours, minutes=hours % 60)
        assert found.upcoming(after, 1) == [next(s for s in [*every, *found.upcoming(end, 1)] if s > after)]


def test_of_very_many_the_newest_are_told() -> None:
    until = at("2030-01-04")
    newest = Cron("* * * * * *").due(at("2030-01-01"), until, 100)
    assert newest == [until - timedelta(seconds=n) for n in range(99, -1, -1)]
    sparse = Cron("* 0 0 1 * *").due(at("2030-01-01T12:00"), at("2030-03-20"), 50)
    assert sparse == [at("2030-03-01T00:00") + timedelta(seconds=n) for n in range(10, 60)]


def test_what_cannot_be_read_is_refused_in_words() -> None:
    with pytest.raises(dibs.errors.InvalidSchedule, match="not a cron expression: Bad hour"):
        Cron("0 25 * * *")
    with pytest.raises(dibs.errors.InvalidSchedule, match="not a cron expression"):
        Cron("every day")
    with pytest.raises(dibs.errors.InvalidSchedule, match="no time zone 'Europe/Berlim'"):
        Cron("0 1 * * *", "Europe/Berlim")
    assert Cron("0 0 29 2 1#5").upcoming(at("2030-01-01"), 1) != []
