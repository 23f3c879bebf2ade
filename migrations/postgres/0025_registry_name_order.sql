-- The names below a namespace are a range of folded names in the order of their bytes, as on SQLite. The order of a language
-- may pass over slashes. Then the range misses names that are there, and has others.
CREATE INDEX registry_names_beginnings ON registry_names (kind, folded_name COLLATE "C");
