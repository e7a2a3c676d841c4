"""What came of what, as OpenLineage events: corpus, stages, C*, checkpoints, exports, evaluations.

steps      a step: a job's run with what it read and wrote, in plain values
names      datasets as OpenLineage names them: tables, files, models, the hub
build      the steps of a flow run, from its commits
outcomes   the steps that come after: a version of C*, a training, an export
select     the steps of a run, of a dataset, of a whole data folder
events     steps as events of the official client
send       events to a file or a server; a flow's, at its end

Events are made from the stored records alone, which never change: the same records give the same events, byte for byte.
"""
