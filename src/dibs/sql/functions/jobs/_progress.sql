-- What a run says of itself.

create or replace function dibs._check_progress(progress jsonb) returns void
language plpgsql stable
as $$
declare
  v_names constant text[] := '{done,of,message,data}'::text[];
  v_wrong text;
begin
  if progress is null then
    return;
  end if;
  if jsonb_typeof(progress) <> 'object' then
    v_wrong := 'a JSON ' || jsonb_typeof(progress);
  elsif dibs._json_bytes(progress) > dibs._bound('progress') then
    v_wrong := format('%s bytes, and at most %s are taken', dibs._json_bytes(progress), dibs._bound('progress'));
  elsif progress - v_names <> '{}' then
    v_wrong := 'something named ' || quote_literal((select k from jsonb_object_keys(progress - v_names) as k limit 1));
  elsif jsonb_typeof(progress -> 'done') <> 'number' or jsonb_typeof(progress -> 'of') <> 'number' then
    v_wrong := 'done or of that is no number';
  elsif (progress ->> 'done')::numeric < 0 or (progress ->> 'of')::numeric <= 0
    or (progress ->> 'done')::numeric > (progress ->> 'of')::numeric then
    v_wrong := format('%s done of %s', progress ->> 'done', coalesce(progress ->> 'of', 'unknown'));
  elsif jsonb_typeof(progress -> 'message') <> 'string' or length(progress ->> 'message') > 1000 then
    v_wrong := 'a message that is no text, or longer than 1000 characters';
  elsif jsonb_typeof(progress -> 'data') <> 'object' then
    v_wrong := 'data that is no object';
  end if;
  if v_wrong is not null then
    raise exception using errcode = 'DI010', message = 'progress cannot be ' || v_wrong,
      hint = 'such as: {"done": 3, "of": 10, "message": "resizing", "data": {"file": "a.png"}}; all are optional';
  end if;
end
$$;

comment on function dibs._check_progress is 'Refuse progress that is not of the one shape it has.';
