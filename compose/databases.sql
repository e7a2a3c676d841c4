-- A role and a database of its own for each of Prefect, MLflow and the catalog, made where they are missing, and the
-- passwords as .env has them now: run it as often as is liked. psql runs it; passwords come by the environment.
\set ON_ERROR_STOP on
\getenv prefect PREFECT_PASSWORD
\getenv mlflow MLFLOW_PASSWORD
\getenv catalog CATALOG_PASSWORD

SELECT format('CREATE ROLE %I LOGIN', name)
FROM unnest(ARRAY['prefect', 'mlflow', 'catalog']) AS name
WHERE name NOT IN (SELECT rolname FROM pg_roles) \gexec

ALTER ROLE prefect PASSWORD :'prefect';
ALTER ROLE mlflow PASSWORD :'mlflow';
ALTER ROLE catalog PASSWORD :'catalog';

SELECT format('CREATE DATABASE %I OWNER %I', name, name)
FROM unnest(ARRAY['prefect', 'mlflow', 'catalog']) AS name
WHERE name NOT IN (SELECT datname FROM pg_database) \gexec

SELECT format('REVOKE ALL ON DATABASE %I FROM PUBLIC', name)
FROM unnest(ARRAY['prefect', 'mlflow', 'catalog']) AS name \gexec
