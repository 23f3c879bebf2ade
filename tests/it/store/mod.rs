//! Every public method of the store, on both databases (P11). A file per resource, as in `src/store`.

mod locks;
mod samples;
