//! The dashboard: which locks are held, whether applies may run, what was asked for, and what a run prints.
//!
//! Made for somebody who is woken at night and has a phone: every page is complete HTML from the server, works without
//! scripts, and says who, since when and why. The one script appends the output of a run while it is printed.
//! Everything shown may come from a pull request, so everything is escaped by the templates; [`ansi`] alone writes HTML
//! by hand.

mod ansi;
mod apps;
mod audit;
mod commands;
mod home;
mod jobs;
mod locks;
mod operations;
mod owner_forms;
mod owners;
mod stream;

use std::sync::Arc;

use crate::kit::web::Web;
use crate::kit::web::routes::{Access, Routes};

/// Pages and static files.
pub(super) fn routes() -> Routes<Arc<Web>> {
    Routes::new()
        .get("/", Access::Facts, home::show)
        .get("/index.html", Access::Facts, home::show)
        .get("/locks", Access::Facts, home::show)
        // The classic name of a lock has slashes, and some proxies decode them.
        .get("/locks/{*id}", Access::Facts, locks::show)
        .post("/locks/{*id}", Access::Change, locks::change)
        .get("/lock", Access::Facts, locks::by_query)
        .get("/jobs/{id}", Access::Facts, jobs::show)
        .post("/jobs/{id}/cancel", Access::Change, jobs::cancel)
        .get("/jobs/{id}/output.txt", Access::Account, jobs::plain)
        .get("/jobs/{id}/events", Access::Account, stream::events)
        .get("/operations", Access::Account, operations::show)
        .get("/owners", Access::Account, owners::list)
        .post("/owners", Access::Account, owner_forms::add)
        .get("/owners/{name}", Access::Account, owners::show)
        .post(
            "/owners/{name}/remove",
            Access::Account,
            owner_forms::remove,
        )
        .post("/owners/{name}/apps", Access::Account, owner_forms::add_app)
        .post(
            "/owners/{name}/{things}/{id}/remove",
            Access::Account,
            owner_forms::remove_thing,
        )
        .get("/claims", Access::Account, owners::claims)
        .get("/audit", Access::Account, audit::show)
        .get("/apps/{id}", Access::Account, apps::show)
        .post("/apps/{id}/cancel", Access::Account, apps::stop)
        .post("/apps/{id}/{deed}", Access::Account, apps::act)
        .get(
            "/static/{hash}/{name}",
            Access::Facts,
            crate::kit::web::templates::file,
        )
}
