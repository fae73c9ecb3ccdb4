-- A group's key, its lock and its policy.

create or replace function dibs._group_key(queue_id integer, name text) returns uuid
language sql immutable strict parallel safe
return encode(substring(sha256(convert_to(queue_id || ':' || name, 'UTF8')) for 16), 'hex')::uuid;

comment on function dibs._group_key is 'Return the key of a group: a hash of queue and name.';

create or replace function dibs._group_bucket(group_key uuid) returns integer
language sql immutable strict parallel safe
return (get_byte(uuid_send(group_key), 0) << 4) | (get_byte(uuid_send(group_key), 1) & 15);

comment on function dibs._group_bucket is
'Return which row of group_lock locks a group: 0 to 4095. Several groups share a row.';

-- PostgreSQL inlines a set-returning SQL function of this form into the statement that uses it.
create or replace function dibs._find_group_policy(queue_id integer, group_key uuid) returns setof dibs.group_policy
language sql stable
begin atomic
  select p.* from dibs.group_policy as p
  where p.queue_id = _find_group_policy.queue_id and p.group_key in (_find_group_policy.group_key, dibs._nil_id())
  order by p.group_key desc limit 1;  -- The nil id is the lowest.
end;

comment on function dibs._find_group_policy is
'Return the policy of a group: its own, otherwise the one for all groups of the queue. No row if neither is set.';
