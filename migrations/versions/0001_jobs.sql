-- An enum prints as a word and sorts in the order of its declaration, which is the order jobs run in.
CREATE TYPE job_status AS ENUM ('queued', 'processing', 'completed', 'failed', 'cancelled');
CREATE TYPE job_priority AS ENUM ('high', 'medium', 'low');
CREATE TYPE job_lane AS ENUM ('priority', 'fifo');
CREATE TYPE log_level AS ENUM ('debug', 'info', 'warning', 'error');

-- Time-ordered ids on every server version: PostgreSQL 18 has uuidv7(), older ones get the same layout
-- (RFC 9562: 48 bits of milliseconds, 12 bits of their fraction, 62 random bits).
DO $do$
BEGIN
  IF current_setting('server_version_num')::int >= 180000 THEN
    CREATE FUNCTION new_job_id() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE
      RETURN uuidv7();
  ELSE
    CREATE FUNCTION new_job_id() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $fn$
      SELECT encode(
          substr(int8send(tick / 4096), 3)
          || substr(int8send(28672 + tick % 4096), 7)
          || substr(uuid_send(gen_random_uuid()), 9),
        'hex')::uuid
      FROM (SELECT (extract(epoch FROM clock_timestamp()) * 4096000)::bigint AS tick) AS clock
    $fn$;
  END IF;
END
$do$;

CREATE TABLE queues (
  name text COLLATE "C" PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 255),
  lane job_lane NOT NULL DEFAULT 'priority',
  created_at timestamptz NOT NULL DEFAULT now()
);

INSERT INTO queues (name, lane) VALUES ('default', 'priority'), ('fifo', 'fifo');

-- The one truth. fillfactor leaves room for the new row versions of claim and finish on the same page;
-- autovacuum starts by a fixed number of dead rows, since a share of ten million is far too late.
CREATE TABLE jobs (
  id uuid PRIMARY KEY DEFAULT new_job_id(),
  status job_status NOT NULL DEFAULT 'queued',
  type text NOT NULL CHECK (length(type) BETWEEN 1 AND 255),
  priority job_priority NOT NULL DEFAULT 'medium',
  queue text COLLATE "C" NOT NULL DEFAULT 'default',
  attempts smallint NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  max_attempts smallint NOT NULL DEFAULT 5 CHECK (max_attempts BETWEEN 1 AND 10),
  next_run_at timestamptz NOT NULL DEFAULT now(),
  next_retry_at timestamptz GENERATED ALWAYS AS (
    CASE WHEN status = 'queued' AND attempts > 0 THEN next_run_at END
  ) STORED,
  created_at timestamptz NOT NULL DEFAULT now(),
  started_at timestamptz,
  completed_at timestamptz,
  error text,
  worker_id uuid,
  lease_token uuid,
  lease_expires_at timestamptz,
  idempotency_key text COLLATE "C" CHECK (length(idempotency_key) BETWEEN 1 AND 255),
  request_hash bytea,
  lane job_lane NOT NULL DEFAULT 'priority',
  trace_context text,
  payload jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(payload) = 'object'),
  result jsonb,
  CONSTRAINT jobs_finished_has_end
    CHECK ((status IN ('completed', 'failed', 'cancelled')) = (completed_at IS NOT NULL)),
  CONSTRAINT jobs_processing_has_lease
    CHECK ((status = 'processing') = (lease_token IS NOT NULL)),
  CONSTRAINT jobs_lease_only_while_processing
    CHECK (lease_expires_at IS NULL OR status = 'processing'),
  CONSTRAINT jobs_completed_has_no_error
    CHECK (status <> 'completed' OR error IS NULL),
  CONSTRAINT jobs_result_only_when_completed
    CHECK (result IS NULL OR status = 'completed')
) WITH (
  fillfactor = 80,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_scale_factor = 0.05,
  autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 2000
);

CREATE INDEX jobs_claim_idx ON jobs (priority, next_run_at, created_at, id)
  WHERE status = 'queued' AND lane = 'priority';
CREATE INDEX jobs_fifo_idx ON jobs (created_at, id)
  WHERE status = 'queued' AND lane = 'fifo';
CREATE INDEX jobs_lease_idx ON jobs (lease_expires_at)
  WHERE status = 'processing';
CREATE UNIQUE INDEX jobs_idempotency_key_idx ON jobs (idempotency_key)
  WHERE idempotency_key IS NOT NULL;

-- No foreign key: it would lock the job's row for every log line. The trigger below takes a job's lines along.
CREATE TABLE job_logs (
  id uuid NOT NULL DEFAULT new_job_id(),
  job_id uuid NOT NULL,
  level log_level NOT NULL DEFAULT 'info',
  message text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  attempt smallint,
  event text NOT NULL DEFAULT 'executor'
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);

CREATE INDEX job_logs_job_id_idx ON job_logs (job_id);

CREATE TABLE job_types (
  name text COLLATE "C" PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 255),
  max_execution_seconds double precision,
  payload_schema jsonb,
  registered_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE workers (
  id uuid PRIMARY KEY,
  hostname text NOT NULL,
  pid integer NOT NULL,
  version text NOT NULL,
  types text[] NOT NULL,
  concurrency integer NOT NULL,
  running integer NOT NULL DEFAULT 0,
  is_idle boolean NOT NULL DEFAULT true,
  is_stopping boolean NOT NULL DEFAULT false,
  started_at timestamptz NOT NULL DEFAULT now(),
  heartbeat_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

-- Kept for the default queue without a function call: the WHEN clause is checked first.
CREATE FUNCTION jobs_take_lane() RETURNS trigger LANGUAGE plpgsql AS $fn$
BEGIN
  SELECT lane INTO NEW.lane FROM queues WHERE name = NEW.queue;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'queue "%" does not exist', NEW.queue
      USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'jobs_queue_exists',
        HINT = 'Add it first: INSERT INTO queues (name, lane) VALUES (…, ''priority'').';
  END IF;
  RETURN NEW;
END
$fn$;

CREATE TRIGGER jobs_take_lane BEFORE INSERT ON jobs
  FOR EACH ROW WHEN (NEW.queue <> 'default') EXECUTE FUNCTION jobs_take_lane();

-- One wake-up per statement, and only while a worker sleeps: NOTIFY takes a lock that all commits share.
-- A worker that falls asleep in this very moment looks again shortly after, so a missed one costs little.
CREATE FUNCTION jobs_wake_workers() RETURNS trigger LANGUAGE plpgsql AS $fn$
BEGIN
  IF EXISTS (SELECT FROM workers WHERE is_idle) THEN
    NOTIFY jobqueue_jobs;
  END IF;
  RETURN NULL;
END
$fn$;

CREATE TRIGGER jobs_wake_workers AFTER INSERT ON jobs
  FOR EACH STATEMENT EXECUTE FUNCTION jobs_wake_workers();

CREATE FUNCTION jobs_remove_logs() RETURNS trigger LANGUAGE plpgsql AS $fn$
BEGIN
  DELETE FROM job_logs USING removed WHERE job_logs.job_id = removed.id;
  RETURN NULL;
END
$fn$;

CREATE TRIGGER jobs_remove_logs AFTER DELETE ON jobs
  REFERENCING OLD TABLE AS removed
  FOR EACH STATEMENT EXECUTE FUNCTION jobs_remove_logs();

-- Every attempt of every job, read from the log lines that were written with the state changes.
CREATE VIEW job_attempts AS
SELECT job_id,
       attempt,
       min(created_at) FILTER (WHERE event = 'claimed') AS started_at,
       max(created_at) FILTER (WHERE event NOT IN ('claimed', 'executor', 'discarded')) AS finished_at,
       max(event) FILTER (WHERE event NOT IN ('claimed', 'executor', 'discarded')) AS outcome,
       max(message) FILTER (WHERE event IN ('retried', 'failed', 'recovered')) AS message
FROM job_logs
WHERE attempt IS NOT NULL
GROUP BY job_id, attempt;

COMMENT ON TYPE job_status IS 'Where a job stands; completed, failed and cancelled are final.';
COMMENT ON TYPE job_priority IS 'high before medium before low.';
COMMENT ON TYPE job_lane IS 'priority: by priority and time. fifo: by arrival, only while no priority job is due.';
COMMENT ON TYPE log_level IS 'Severity of a log line.';
COMMENT ON FUNCTION new_job_id() IS 'A time-ordered id (UUID version 7).';
COMMENT ON FUNCTION jobs_take_lane() IS 'Copies the lane of a job''s queue into the job; refuses unknown queues.';
COMMENT ON FUNCTION jobs_wake_workers() IS 'Wakes sleeping workers once per insert statement.';
COMMENT ON FUNCTION jobs_remove_logs() IS 'Removes the log lines of removed jobs.';

COMMENT ON TABLE queues IS 'The queues that jobs may name. Operators add their own.';
COMMENT ON COLUMN queues.name IS 'Name used in jobs.queue.';
COMMENT ON COLUMN queues.lane IS 'How its jobs are ordered; fixed once jobs wait in it.';
COMMENT ON COLUMN queues.created_at IS 'When the queue was added.';

COMMENT ON TABLE jobs IS 'One row per job, from the moment it is accepted until retention removes it. The only truth.';
COMMENT ON COLUMN jobs.id IS 'UUID version 7; sorts by time of creation.';
COMMENT ON COLUMN jobs.status IS 'queued → processing → completed | failed | cancelled, or back to queued.';
COMMENT ON COLUMN jobs.type IS 'Selects the executor.';
COMMENT ON COLUMN jobs.priority IS 'First key of the claim order.';
COMMENT ON COLUMN jobs.queue IS 'Name of the queue, see queues.';
COMMENT ON COLUMN jobs.attempts IS 'Starts so far, counted when a worker claims; a release at shutdown takes its start back.';
COMMENT ON COLUMN jobs.max_attempts IS 'The attempt after which a failure is final.';
COMMENT ON COLUMN jobs.next_run_at IS 'Not before this time; second key of the claim order.';
COMMENT ON COLUMN jobs.next_retry_at IS 'next_run_at while a retry waits, else null.';
COMMENT ON COLUMN jobs.created_at IS 'When the job was accepted; third key of the claim order.';
COMMENT ON COLUMN jobs.started_at IS 'Start of the latest attempt.';
COMMENT ON COLUMN jobs.completed_at IS 'End of a completed, failed or cancelled job.';
COMMENT ON COLUMN jobs.error IS 'The latest failure; null once completed.';
COMMENT ON COLUMN jobs.worker_id IS 'Worker of the latest attempt, see workers.';
COMMENT ON COLUMN jobs.lease_token IS 'New with every claim. Only who knows it may change the attempt.';
COMMENT ON COLUMN jobs.lease_expires_at IS 'Past this time, by this server''s clock, the job may be recovered.';
COMMENT ON COLUMN jobs.idempotency_key IS 'Creates with the same key answer with this job. Compared byte by byte.';
COMMENT ON COLUMN jobs.request_hash IS 'Fingerprint of the body that came with the key.';
COMMENT ON COLUMN jobs.lane IS 'Lane of the queue, copied at insert.';
COMMENT ON COLUMN jobs.trace_context IS 'W3C traceparent of the request that created the job.';
COMMENT ON COLUMN jobs.payload IS 'Handed to the executor; always an object.';
COMMENT ON COLUMN jobs.result IS 'What the executor returned.';
COMMENT ON INDEX jobs_claim_idx IS 'claim_jobs: the waiting jobs of priority queues in claim order.';
COMMENT ON INDEX jobs_fifo_idx IS 'claim_jobs: the waiting jobs of fifo queues in order of arrival.';
COMMENT ON INDEX jobs_lease_idx IS 'list_lost_jobs: running jobs by the end of their lease.';
COMMENT ON INDEX jobs_idempotency_key_idx IS 'create_jobs and get_jobs_by_key: one job per key.';

COMMENT ON TABLE job_logs IS 'What happened to each job, written with the state change, and what its executor logged.';
COMMENT ON COLUMN job_logs.id IS 'UUID version 7.';
COMMENT ON COLUMN job_logs.job_id IS 'The job. Not a foreign key; removed together with the job.';
COMMENT ON COLUMN job_logs.level IS 'Severity.';
COMMENT ON COLUMN job_logs.message IS 'The line.';
COMMENT ON COLUMN job_logs.created_at IS 'When it happened, by this server''s clock.';
COMMENT ON COLUMN job_logs.attempt IS 'The attempt it belongs to; null for what happens between attempts.';
COMMENT ON COLUMN job_logs.event IS 'claimed, completed, retried, failed, released, recovered, cancelled, discarded or executor.';
COMMENT ON INDEX job_logs_job_id_idx IS 'list_job_logs: the lines of one job.';

COMMENT ON TABLE job_types IS 'Job types that some API process or worker has registered; the API accepts these.';
COMMENT ON COLUMN job_types.name IS 'Name used in jobs.type.';
COMMENT ON COLUMN job_types.max_execution_seconds IS 'Time limit of an attempt; null: JOB_MAX_EXECUTION_SECONDS.';
COMMENT ON COLUMN job_types.payload_schema IS 'JSON Schema of the payload, when the executor declares one.';
COMMENT ON COLUMN job_types.registered_at IS 'Latest registration.';

COMMENT ON TABLE workers IS 'Worker processes. For people and wake-ups only: ownership of a job is its own lease.';
COMMENT ON COLUMN workers.id IS 'Random per process start.';
COMMENT ON COLUMN workers.hostname IS 'Where it runs.';
COMMENT ON COLUMN workers.pid IS 'Its process id there.';
COMMENT ON COLUMN workers.version IS 'Version of jobqueue.';
COMMENT ON COLUMN workers.types IS 'Job types it can run; it claims no others.';
COMMENT ON COLUMN workers.concurrency IS 'Jobs it runs at once at most.';
COMMENT ON COLUMN workers.running IS 'Jobs it held at its latest heartbeat.';
COMMENT ON COLUMN workers.is_idle IS 'It sleeps and wants to be woken by NOTIFY.';
COMMENT ON COLUMN workers.is_stopping IS 'It claims nothing more.';
COMMENT ON COLUMN workers.started_at IS 'Start of the process.';
COMMENT ON COLUMN workers.heartbeat_at IS 'Latest sign of life.';
COMMENT ON VIEW job_attempts IS 'Every attempt: start, end, outcome and failure text.';
