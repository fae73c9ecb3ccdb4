-- A group's group_key, its policy and its lock.

create or replace function dibs._group_key(queue_id integer, name text) returns uuid
language sql immutable strict parallel safe
return encode(substring(sha256(convert_to(queue_id || ':' || name, 'UTF8')) for 16), 'hex')::uuid;

comment on function dibs._group_key is 'The group_key of a group: the same for the same queue and name.';

create or replace function dibs._bucket_of(group_key uuid) returns integer
language sql immutable strict parallel safe
return (get_byte(uuid_send(group_key), 0) << 4) | (get_byte(uuid_send(group_key), 1) & 15);

comment on function dibs._bucket_of is 'Which row of group_lock is a group''s.';

-- Of this form, so that it becomes a part of the statement that uses it.
create or replace function dibs._policy_of(queue_id integer, group_key uuid) returns setof dibs.group_policy
language sql stable
begin atomic
  select p.* from dibs.group_policy as p
  where p.queue_id = _policy_of.queue_id and p.group_key in (_policy_of.group_key, dibs._nil_id()) order by p.group_key desc limit 1;
end;

comment on function dibs._policy_of is 'What was set for a group: its own policy, otherwise that of every group of the queue; no row if neither is set.';

create or replace function dibs._check_group(name text) returns void
language plpgsql immutable
as $$
begin
  if length(name) not between 1 and 200 or name ~ '[[:cntrl:]]' then
    raise exception using errcode = 'DI010',
      message = format('a group''s name has 1 to 200 characters and no control characters, not %L', left(name, 80));
  end if;
end
$$;

comment on function dibs._check_group is 'Refuse a name no group can have.';

create or replace function dibs._pointer_key(n bigint) returns uuid
language sql immutable strict parallel safe
return lpad(to_hex(n), 32, '0')::uuid;

comment on function dibs._pointer_key is 'A pointer''s number in the form floors are kept in.';

create or replace function dibs._pointer_number(key uuid) returns bigint
language sql immutable strict parallel safe
return ('x' || right(replace(key::text, '-', ''), 16))::bit(64)::bigint;

comment on function dibs._pointer_number is 'A pointer''s number from its key.';
