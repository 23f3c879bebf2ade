-- Gates in front of forges, one for what is read and one for what is written with some credentials. `until`: closed until
-- then, because the forge asked to wait. `next_at`: when the next write may leave. Both are times of the judge.
CREATE TABLE rate_gates (
    host TEXT NOT NULL,
    credential TEXT NOT NULL,
    traffic TEXT NOT NULL,
    until TEXT,
    next_at TEXT,
    PRIMARY KEY (host, credential, traffic)
);
