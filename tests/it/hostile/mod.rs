//! Attacks. Each succeeds against a server that does not hold what it claims to hold.

mod door;
