-- The schedule, the parent and the follow-ups of a job.

create or replace function dibs._job_summary(job dibs.jobs) returns jsonb
language sql stable
return jsonb_build_object('id', (job).id, 'queue', (job).queue, 'kind', (job).kind, 'state', (job).state);

comment on function dibs._job_summary is 'Return what the page of one job shows of another.';

create or replace function dibs._relatives_of(id uuid) returns jsonb
language sql stable
begin atomic
  -- Each job is one lookup in the view: OFFSET 0 keeps the planner from reading all jobs of the view for a join.
  select jsonb_build_object(
    'schedule', (
      select s.name from dibs.schedule_run as r join dibs.schedule as s on s.id = r.schedule_id
      where r.id = _relatives_of.id),
    'parent', (
      select dibs._job_summary(v) from dibs.follow_up as f
      cross join lateral (select v.* from dibs.jobs as v where v.id = f.parent offset 0) as v
      where f.id = _relatives_of.id),
    'follow_ups', coalesce((
      select jsonb_agg(dibs._job_summary(v) order by v.id)
      from (select f.id from dibs.follow_up as f where f.parent = _relatives_of.id order by f.id limit 100) as f
      cross join lateral (select v.* from dibs.jobs as v where v.id = f.id offset 0) as v), '[]'));
end;

comment on function dibs._relatives_of is
'Return the schedule that made a job, the job it followed, and its first 100 follow-ups by id. Of these, jobs that were
deleted or that the caller may not see are left out.';
