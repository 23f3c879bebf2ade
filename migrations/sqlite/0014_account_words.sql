-- Words by which searches find accounts, derived from the rows of `accounts` (`features::accounts::search`). No released
-- version had accounts; those of another one are found after `lockkeeper reindex accounts`.
CREATE TABLE account_words (
    -- Where the word is: `name`, `username` or `email`.
    field TEXT NOT NULL,
    -- In lower case.
    word TEXT NOT NULL,
    account BIGINT NOT NULL,
    PRIMARY KEY (field, word, account)
) WITHOUT ROWID;
CREATE INDEX account_words_accounts ON account_words (account);
-- SQLite would use the primary key. PostgreSQL needs this one, and both have the same indexes.
CREATE INDEX account_emails_beginnings ON account_emails (email);
