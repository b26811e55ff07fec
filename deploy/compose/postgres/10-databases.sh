#!/bin/bash
# Runs once, on an empty data folder. Each service gets a database, an owner who may change its tables, and a role for
# the running service that may only read and write rows. The file has one line per service:
# name, the owner's password, the role's password. It comes from the secrets job.
set -euo pipefail
while read -r service owner_password role_password; do
  psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" \
    -v db="$service" -v owner="${service}_owner" -v owner_password="$owner_password" -v role_password="$role_password" <<'SQL'
create role :"owner" login password :'owner_password';
create role :"db" login password :'role_password';
create database :"db" owner :"owner";
revoke all on database :"db" from public;
grant connect on database :"db" to :"db";
\connect :"db"
alter schema public owner to :"owner";
grant usage on schema public to :"db";
alter default privileges for role :"owner" grant select, insert, update, delete on tables to :"db";
alter default privileges for role :"owner" grant usage on sequences to :"db";
SQL
done < /run/secrets/databases
