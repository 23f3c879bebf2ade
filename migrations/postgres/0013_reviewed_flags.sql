-- Patch sets: the heads of a change, numbered in the order in which they came (`features::accounts`). A head that comes
-- again keeps its number.
CREATE TABLE patch_sets (
    change_number BIGINT NOT NULL,
    number BIGINT NOT NULL,
    head TEXT NOT NULL,
    -- Orders the heads by the time when each was last the head of the pull.
    last_turn BIGINT NOT NULL,
    PRIMARY KEY (change_number, number)
);
CREATE UNIQUE INDEX patch_sets_heads ON patch_sets (change_number, head);

-- Triggers also serve servers of the version before, and need no statement of their own. The head of a pull is mostly
-- stored before its change.
CREATE FUNCTION number_first_patch_set() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO patch_sets (change_number, number, head, last_turn)
    SELECT NEW.number, 1, h.head, 1 FROM pull_heads h WHERE h.repo = NEW.repo AND h.number = NEW.pull;
    RETURN NULL;
END $$;
CREATE TRIGGER changes_get_patch_sets AFTER INSERT ON changes FOR EACH ROW EXECUTE FUNCTION number_first_patch_set();

CREATE FUNCTION number_patch_set() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    -- Whoever numbers a head of a change holds its row.
    PERFORM 1 FROM changes WHERE repo = NEW.repo AND pull = NEW.number ORDER BY number FOR NO KEY UPDATE;
    IF TG_OP = 'UPDATE' THEN
        -- The old head has no number if its row and that of the change were inserted by two transactions at once.
        INSERT INTO patch_sets (change_number, number, head, last_turn)
        SELECT c.number, 1 + COALESCE(MAX(s.number), 0), OLD.head, 1 + COALESCE(MAX(s.last_turn), 0)
        FROM changes c LEFT JOIN patch_sets s ON s.change_number = c.number
        WHERE c.repo = NEW.repo AND c.pull = NEW.number GROUP BY c.number
        ON CONFLICT (change_number, head) DO NOTHING;
    END IF;
    INSERT INTO patch_sets (change_number, number, head, last_turn)
    SELECT c.number, 1 + COALESCE(MAX(s.number), 0), NEW.head, 1 + COALESCE(MAX(s.last_turn), 0)
    FROM changes c LEFT JOIN patch_sets s ON s.change_number = c.number
    WHERE c.repo = NEW.repo AND c.pull = NEW.number GROUP BY c.number
    ON CONFLICT (change_number, head) DO UPDATE SET last_turn = excluded.last_turn;
    RETURN NULL;
END $$;
CREATE TRIGGER first_heads_get_numbers AFTER INSERT ON pull_heads FOR EACH ROW EXECUTE FUNCTION number_patch_set();
CREATE TRIGGER heads_get_numbers AFTER UPDATE OF head ON pull_heads FOR EACH ROW
    WHEN (NEW.head <> OLD.head) EXECUTE FUNCTION number_patch_set();
INSERT INTO patch_sets (change_number, number, head, last_turn)
SELECT c.number, 1, h.head, 1 FROM pull_heads h JOIN changes c ON c.repo = h.repo AND c.pull = h.number;

-- What accounts have looked at. With --reviewed-flags-url, another database has this table.
CREATE TABLE reviewed_flags (
    account BIGINT NOT NULL,
    -- Change and patch set of a file; 0 for a resource, because its plan names them.
    change_number BIGINT NOT NULL,
    patch_set BIGINT NOT NULL,
    -- Plan of a resource; empty for a file.
    plan TEXT NOT NULL,
    -- Path of a file or address of a resource.
    item TEXT NOT NULL,
    PRIMARY KEY (account, change_number, patch_set, plan, item)
);
