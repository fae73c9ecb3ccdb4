-- Who may do what: the worker runs the functions on the list, applications kick processes off, and nobody has a table.

revoke all on all functions in schema comms from public;
revoke all on schema comms from public;

-- A job that kills its worker again and again is given up after ten times; one that was only there when it died is not.
select dibs.set_queue('comms', '{"max_losses": 10}');

grant usage on schema comms to dibs_worker, comms_user;

select dibs.allow_function(f.f::regprocedure)
from unnest(array[
  'comms.send_email_supervisor(jsonb)', 'comms.get_email_payload(jsonb)', 'comms.record_email_success(jsonb)',
  'comms.record_email_failure(jsonb)', 'comms.send_sms_supervisor(jsonb)', 'comms.get_sms_payload(jsonb)',
  'comms.record_sms_success(jsonb)', 'comms.record_sms_failure(jsonb)']) as f (f);

grant execute on function
  comms.send_email_supervisor(jsonb), comms.get_email_payload(jsonb), comms.record_email_success(jsonb),
  comms.record_email_failure(jsonb), comms.send_sms_supervisor(jsonb), comms.get_sms_payload(jsonb),
  comms.record_sms_success(jsonb), comms.record_sms_failure(jsonb)
to dibs_worker;

grant execute on function
  comms.kickoff_send_email(jsonb), comms.kickoff_send_sms(jsonb), comms.send_email_facts(bigint),
  comms.send_sms_facts(bigint), comms.is_send_email_stuck(bigint), comms.is_send_sms_stuck(bigint)
to comms_user;
