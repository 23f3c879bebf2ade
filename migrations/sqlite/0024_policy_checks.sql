-- Policy checks of plans.

-- Verdicts of policy sets on a plan. They go with the record of the plan.
CREATE TABLE policy_verdicts (
    plan TEXT NOT NULL REFERENCES plans (id) ON DELETE CASCADE,
    set_name TEXT NOT NULL,
    -- Position of the set in the configuration.
    place BIGINT NOT NULL,
    -- SHA-256 of the settings of the set that decide on the verdict.
    definition TEXT NOT NULL,
    outcome TEXT NOT NULL,
    -- Reason why the set was not evaluated, if so.
    why TEXT,
    origin TEXT NOT NULL,
    -- SHA-256 of the policies, if it is known.
    content TEXT,
    -- Program that evaluated the set, with its version, if it is known.
    tool TEXT,
    findings TEXT NOT NULL,
    -- Findings without their texts, each once: what decides whether the plan may be applied.
    weights TEXT NOT NULL,
    more_findings BIGINT NOT NULL,
    -- Digests of the violations that an approval has to cover.
    items TEXT NOT NULL,
    -- Remarks about waivers, for people.
    notes TEXT NOT NULL,
    output TEXT NOT NULL,
    -- SHA-256 of the findings, the remarks, the output and the program, so that they need not be read to check the rest.
    texts TEXT NOT NULL,
    -- SHA-256 of the other columns. A verdict whose row was changed counts as not evaluated.
    checksum TEXT NOT NULL,
    PRIMARY KEY (plan, set_name)
);

-- Approvals of violations. They stay when their plan is replaced or removed, and go when the pull is closed.
CREATE TABLE policy_approvals (
    plan TEXT NOT NULL,
    set_name TEXT NOT NULL,
    -- Account of the forge, or of this server if the forge named none.
    person TEXT NOT NULL,
    -- Account of this server at that time.
    account BIGINT,
    login TEXT NOT NULL,
    teams TEXT NOT NULL,
    is_author BOOLEAN NOT NULL,
    -- Digests of the violations that the person saw.
    items TEXT NOT NULL,
    definition TEXT NOT NULL,
    approved_at TEXT NOT NULL,
    -- Project of the plan.
    repo TEXT NOT NULL,
    pull BIGINT NOT NULL,
    dir TEXT NOT NULL,
    workspace TEXT NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (plan, set_name, person)
);
CREATE INDEX policy_approvals_of_projects ON policy_approvals (repo, pull, dir, workspace, name);
