//! The web server: the webhook door, the pages, the API.

pub mod events;
