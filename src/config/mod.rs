<<<<<<< HEAD
//! What people configure: the operator the server, a repository its projects.

pub mod repo;
pub mod server;
=======
//! Configuration: what repositories and operators may say, read strictly and with errors a person can act on.

pub mod repo;
>>>>>>> discovery
