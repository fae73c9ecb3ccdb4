-- Installs the schema comms, or brings it up to date:
--
--   psql -v ON_ERROR_STOP=1 -f examples/comms/install.sql "$DIBS_DSN"
--
-- dibs has to be there already (dibs migrate). Safe to run again.

begin;
set local client_min_messages = warning;
\ir roles.sql
set local role comms_owner;
\ir tables.sql
\ir email.sql
\ir sms.sql
reset role;
\ir grants.sql
commit;
