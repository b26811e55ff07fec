#!/bin/bash
# Runs once, on an empty data folder. Each service gets a role and a database of its own, and nobody else may connect to
# it. The file has one "service password" per line and comes from the secrets job.
set -euo pipefail
while read -r service password; do
  psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" -v name="$service" -v password="$password" <<'SQL'
create role :"name" login password :'password';
create database :"name" owner :"name";
revoke all on database :"name" from public;
SQL
done < /run/secrets/databases
