-- SQLite has this order already. PostgreSQL needs the index, and both have the same indexes.
CREATE INDEX registry_names_beginnings ON registry_names (kind, folded_name);
