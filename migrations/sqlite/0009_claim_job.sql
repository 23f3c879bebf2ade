-- Only PostgreSQL has a function for claims, and a vacuum to set.
SELECT 1;
