select current_setting('server_version_num')::int / 10000 as version,
       pg_is_in_recovery() as is_standby,
       current_setting('fsync') = 'off' or current_setting('full_page_writes') = 'off' as is_torn,
       current_setting('server_encoding') as encoding,
       current_user::text as "user",
       current_database()::text as database,
       to_regclass(format('%%I.schema_version', %(schema)s::text)) is not null as has_schedule,
       case when to_regnamespace(quote_ident(%(schema)s)) is null
            then has_database_privilege(current_database(), 'create')
            else has_schema_privilege(%(schema)s, 'create')
       end as may_create,
       (
           select coalesce(bool_and(
               has_table_privilege(oid, 'select') and has_table_privilege(oid, 'insert')
               and has_table_privilege(oid, 'update') and has_table_privilege(oid, 'delete')
           ), true)
           from pg_class
           where relnamespace = to_regnamespace(quote_ident(%(schema)s)) and relkind = 'r'
       ) as may_write,
       pg_backend_pid() as pid
