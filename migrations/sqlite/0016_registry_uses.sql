-- Versions of the registry that a plan uses. They go with the record of the plan.
CREATE TABLE registry_uses (
    plan TEXT NOT NULL REFERENCES plans (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    PRIMARY KEY (plan, kind, name, version)
);
CREATE INDEX registry_uses_of_versions ON registry_uses (kind, name, version);

-- Finds the newest plan of a project, whatever its pull request.
CREATE INDEX plans_by_project ON plans (repo, dir, workspace, name, created_at);
