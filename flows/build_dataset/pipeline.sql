-- query slowest_stage: What the slowest stage took a document.
SELECT max(s.seconds / s.documents) AS seconds FROM (
    SELECT c.stage, sum(c.seconds) AS seconds, max(d.documents) AS documents
    FROM facts.commits AS c JOIN facts.current USING (commit_id)
    JOIN (SELECT c.tool, sum(b.rows) AS documents FROM facts.commits AS c JOIN facts.current USING (commit_id)
          JOIN facts.balances AS b USING (commit_id)
          WHERE c.stage = 'prefilter' AND b.kind = 'in' GROUP BY c.tool) AS d USING (tool)
    GROUP BY c.stage, c.tool
) AS s WHERE s.documents > 0
