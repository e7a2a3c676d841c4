-- query shown: The current files of every table whose commits can be shown.
SELECT table_name, list(DISTINCT path ORDER BY path) AS paths FROM facts.files JOIN facts.current USING (commit_id)
WHERE rows > 0 AND commit_id NOT IN (FROM facts.broken) GROUP BY table_name

-- query kinds: The tables and views that users query.
SELECT table_name, if(table_type = 'VIEW', 'VIEW', 'TABLE') FROM information_schema.tables WHERE table_schema = 'main'

-- query version_parts: The files of every dataset record, with whether an intact commit lists each.
CREATE OR REPLACE TEMP TABLE version_parts AS
WITH whole AS (
    SELECT DISTINCT path, digest FROM facts.files WHERE commit_id NOT IN (FROM facts.broken)
)
SELECT d.name, d.version, d.made, d.number, d.created, f.path, f.digest, f.rows, f.bytes, w.path IS NOT NULL AS whole
FROM facts.datasets AS d JOIN facts.dataset_files AS f USING (name, version, made)
LEFT JOIN whole AS w ON w.path = f.path AND w.digest = f.digest

-- query unlisted: Those that none lists.
SELECT DISTINCT path, digest, rows, bytes FROM version_parts WHERE NOT whole

-- query mark_whole: Of these, the intact ones count as well.
UPDATE version_parts SET whole = true WHERE (path, digest) IN (SELECT (unnest($paths), unnest($digests)))

-- query version_files: The last made of the records of a version whose files are all there, and each file's number.
CREATE OR REPLACE TABLE facts.version_files AS
WITH chosen AS (
    SELECT name, version, made FROM version_parts GROUP BY name, version, made HAVING bool_and(whole)
    QUALIFY row_number() OVER (PARTITION BY name, version
                                 ORDER BY any_value(number) DESC, any_value(created) DESC, made DESC) = 1
), parts AS (SELECT DISTINCT name, version, path FROM version_parts SEMI JOIN chosen USING (name, version, made)
             WHERE rows > 0)
SELECT dense_rank() OVER (ORDER BY path) - 1 AS file, name AS dataset, version, path
FROM parts ORDER BY file, name, version
