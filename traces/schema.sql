-- The epsim database, version 1 (PRAGMA user_version). One file holds many runs.
-- Integers are picoseconds (_ps) and bytes unless said otherwise; indices count from 0. A layer
-- is an index among the MoE layers. Columns and tables may be added, never renamed or removed; a
-- file from before a table was added gets it when the next run is appended.
--
-- span and message get an index on (run, step, layer) when a run that filled them ends: kept up
-- row by row it would halve the speed of writing.

CREATE TABLE IF NOT EXISTS run (
    run INTEGER PRIMARY KEY, -- 1, 2, ... in the order of starting; FILE#N names run N
    tool_version TEXT NOT NULL, -- what epsim --version prints
    command TEXT NOT NULL, -- the command line
    settings_json TEXT NOT NULL, -- every option after defaults
    settings_digest TEXT NOT NULL, -- 16 hex digits over the options that change results
    seed INTEGER NOT NULL,
    digest TEXT, -- 16 hex digits over routing, check digests and event times; NULL until complete
    complete INTEGER NOT NULL DEFAULT 0, -- 1 once the run has ended well
    last_step INTEGER, -- the last step wholly recorded; NULL before the first
    started_utc TEXT NOT NULL, -- 2026-01-31T12:00:00Z
    wall_ns INTEGER -- how long the run took here, not there; NULL until complete
);

CREATE TABLE IF NOT EXISTS step (
    run INTEGER NOT NULL,
    step INTEGER NOT NULL,
    start_ps INTEGER NOT NULL, -- simulated time
    end_ps INTEGER NOT NULL,
    tokens INTEGER NOT NULL, -- over all ranks
    PRIMARY KEY (run, step)
) WITHOUT ROWID;

-- What ran where and when.
CREATE TABLE IF NOT EXISTS span (
    run INTEGER NOT NULL,
    step INTEGER NOT NULL,
    layer INTEGER, -- NULL: belongs to the whole step
    rank INTEGER NOT NULL,
    stream TEXT NOT NULL, -- the rank's stream: comm, compute, ...
    op TEXT NOT NULL, -- dispatch, combine, ...
    start_ps INTEGER NOT NULL,
    end_ps INTEGER NOT NULL,
    bytes INTEGER NOT NULL, -- moved by it, 0 where that means nothing
    rows INTEGER NOT NULL -- token rows it handled
);

-- Who sent how much to whom.
CREATE TABLE IF NOT EXISTS message_stat (
    run INTEGER NOT NULL,
    step INTEGER NOT NULL,
    layer INTEGER NOT NULL,
    op TEXT NOT NULL, -- dispatch, combine, ...
    src_rank INTEGER NOT NULL,
    dst_rank INTEGER NOT NULL,
    link_class TEXT NOT NULL, -- local, nvlink or nic
    messages INTEGER NOT NULL,
    formula_bytes INTEGER NOT NULL, -- selections x row bytes
    distinct_rank_bytes INTEGER NOT NULL, -- the same, once per (token, rank)
    wire_bytes INTEGER NOT NULL, -- whole messages with headers and scales, on this hop
    PRIMARY KEY (run, step, layer, op, src_rank, dst_rank, link_class)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS resource_use (
    run INTEGER NOT NULL,
    step INTEGER NOT NULL,
    layer INTEGER NOT NULL,
    op TEXT NOT NULL, -- during which operation: dispatch, combine, ...
    resource TEXT NOT NULL, -- rank3.nvlink.out, rank0.nic.in, leaf2.up, ...
    kind TEXT NOT NULL, -- link, nic, qp, sm_pool, switch (all ports of a leaf to spines), or hbm
                        -- (counted: nobody waits for it)
    busy_ps INTEGER NOT NULL, -- 0 for qp, which is a window and no server
    bytes INTEGER NOT NULL, -- that passed through it
    queue_peak INTEGER NOT NULL, -- most requests waiting at once; links and NICs: rows of backlog
    stall_ps INTEGER NOT NULL, -- waiting time, summed over the requests that waited; 0 where a server
                               -- is shared evenly (low latency: SMs, NVLink out): all are slower
    PRIMARY KEY (run, step, layer, op, resource)
) WITHOUT ROWID;

-- Rows that each expert received.
CREATE TABLE IF NOT EXISTS expert_load (
    run INTEGER NOT NULL,
    step INTEGER NOT NULL,
    layer INTEGER NOT NULL,
    rank INTEGER NOT NULL, -- where the expert lives
    expert INTEGER NOT NULL, -- global index
    rows INTEGER NOT NULL,
    PRIMARY KEY (run, step, layer, rank, expert)
) WITHOUT ROWID;

-- Who waited for whom.
CREATE TABLE IF NOT EXISTS wait (
    run INTEGER NOT NULL,
    step INTEGER NOT NULL,
    layer INTEGER NOT NULL,
    op TEXT NOT NULL,
    waiter INTEGER NOT NULL, -- rank
    awaited INTEGER NOT NULL, -- rank
    wait_ps INTEGER NOT NULL,
    PRIMARY KEY (run, step, layer, op, waiter, awaited)
) WITHOUT ROWID;

-- Where a rank's time of an operation went, with --explain only. The parts of a rank and operation
-- sum to its time there exactly (span: end_ps - start_ps); a part that is not there is 0.
CREATE TABLE IF NOT EXISTS attribution (
    run INTEGER NOT NULL,
    step INTEGER NOT NULL,
    layer INTEGER NOT NULL,
    op TEXT NOT NULL, -- dispatch, combine
    rank INTEGER NOT NULL,
    part TEXT NOT NULL, -- launch, notify, sync, sm, nvlink, nic, fabric, ...: sim/parts.h
    ps INTEGER NOT NULL, -- may be below 0: the part's slowness eases a queue elsewhere
    PRIMARY KEY (run, step, layer, op, rank, part)
) WITHOUT ROWID;

-- What one thing widened would give, simulated, with --explain only.
CREATE TABLE IF NOT EXISTS whatif (
    run INTEGER NOT NULL,
    step INTEGER NOT NULL,
    layer INTEGER NOT NULL,
    op TEXT NOT NULL, -- dispatch, combine
    knob TEXT NOT NULL, -- nvlink-rate, nic-rate, sms, ...: sim/widen.h
    before_ps INTEGER NOT NULL, -- the slowest rank's time as it is
    after_ps INTEGER NOT NULL, -- and with the knob turned
    PRIMARY KEY (run, step, layer, op, knob)
) WITHOUT ROWID;

-- What a stage left behind, against the reference. The columns from expert on describe the
-- first mismatch and are NULL where there is none, or where they mean nothing.
CREATE TABLE IF NOT EXISTS check_result (
    run INTEGER NOT NULL,
    step INTEGER NOT NULL,
    layer INTEGER NOT NULL,
    stage TEXT NOT NULL, -- dispatch, expert, combine, ...
    backend TEXT NOT NULL, -- ref, cuda or a plugin's name
    rank INTEGER NOT NULL, -- whose output
    rows INTEGER NOT NULL,
    bytes INTEGER NOT NULL, -- compared
    digest TEXT NOT NULL, -- 16 hex digits over the output
    mismatch_count INTEGER NOT NULL, -- elements that differ
    expert INTEGER, -- global index
    src_rank INTEGER,
    src_token INTEGER, -- index within the source rank
    channel INTEGER,
    expected_hex TEXT, -- the reference's bits
    actual_hex TEXT, -- the backend's bits
    cause TEXT, -- the likely cause, in words
    PRIMARY KEY (run, step, layer, rank, stage, backend)
) WITHOUT ROWID;

-- The rows behind check_result.mismatch_count, by name: of each layer of each step at most 1,024.
CREATE TABLE IF NOT EXISTS wrong_row (
    run INTEGER NOT NULL,
    step INTEGER NOT NULL,
    layer INTEGER NOT NULL,
    stage TEXT NOT NULL, -- as in check_result
    rank INTEGER NOT NULL, -- whose output
    expert INTEGER, -- global index; NULL where the stage has none
    src_rank INTEGER NOT NULL, -- home rank of the row's token
    src_token INTEGER -- index within the source rank; NULL: a count, not a token's row
);

-- The files that the routing came from; none for a generator.
CREATE TABLE IF NOT EXISTS routing (
    run INTEGER NOT NULL,
    path TEXT NOT NULL,
    file_digest TEXT NOT NULL, -- 16 hex digits over the file's bytes
    id_space TEXT NOT NULL, -- logical or physical
    model TEXT NOT NULL, -- as the container names it; '' = it does not
    PRIMARY KEY (run, path)
) WITHOUT ROWID;

-- One what-if of a sweep.
CREATE TABLE IF NOT EXISTS cell (
    run INTEGER NOT NULL,
    settings_digest TEXT NOT NULL,
    state TEXT NOT NULL, -- done, refused or failed
    summary_json TEXT NOT NULL,
    PRIMARY KEY (run, settings_digest)
) WITHOUT ROWID;

-- Every message, with --detail message only.
CREATE TABLE IF NOT EXISTS message (
    run INTEGER NOT NULL,
    step INTEGER NOT NULL,
    layer INTEGER NOT NULL,
    op TEXT NOT NULL,
    src_rank INTEGER NOT NULL,
    dst_rank INTEGER NOT NULL,
    link_class TEXT NOT NULL, -- local, nvlink or nic
    qp INTEGER, -- queue pair; NULL where there is none
    bytes INTEGER NOT NULL, -- on the wire
    rows INTEGER NOT NULL, -- above 1 for a train of messages
    send_ps INTEGER NOT NULL, -- first byte leaves
    land_ps INTEGER NOT NULL -- last byte is there
);

CREATE TABLE IF NOT EXISTS fault (
    run INTEGER NOT NULL,
    step INTEGER NOT NULL,
    at_ps INTEGER NOT NULL,
    kind TEXT NOT NULL, -- drop, double, swap, corrupt, ...
    target TEXT NOT NULL, -- what it hit
    detail TEXT NOT NULL
);

-- Predicted against measured times.
CREATE TABLE IF NOT EXISTS measured (
    run INTEGER NOT NULL,
    source TEXT NOT NULL, -- the file of measurements
    row_id TEXT NOT NULL, -- its id column, or FILE:LINE
    predicted_ps INTEGER NOT NULL,
    measured_ps INTEGER NOT NULL,
    PRIMARY KEY (run, source, row_id)
) WITHOUT ROWID;
